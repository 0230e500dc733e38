"""Commands of `pulse` in documents: the subcommand exists, and each flag is in its help text."""

import functools
import glob
import os
import re
import subprocess
import unittest

from tests import running
from tests.kit import PULSE, RUNFILES

COMMAND = re.compile(r"(?:^|[\s`/$(])pulse ([a-z]+)((?: [^\n`|&#]*)?)", re.MULTILINE)


@functools.lru_cache(maxsize=None)
def help_of(command):
    """The help text of a subcommand, or None if there is no such subcommand."""
    asked = subprocess.run([PULSE, "help", command], check=False, text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL)
    if asked.returncode:
        return None
    return asked.stdout + (help_of("connect") if "`pulse help connect`" in asked.stdout else "")


def code(text):
    """The parts of a document in fences, in indented blocks and between backticks, continued lines joined."""
    text = text.replace("\\\n", " ")
    blocks = re.findall(r"^ *```[a-z]*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    rest = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    return blocks + re.findall(r"`([^`\n]+)`", rest) + re.findall(r"^    (.*)$", rest, re.MULTILINE)


def commands(text):
    """Yields (subcommand, its flags)."""
    for command, arguments in (each for part in code(text) for each in COMMAND.findall(part)):
        # A program that is passed in quotes has flags of its own.
        yield command, re.findall(r"(?<!\S)--[a-z][a-z-]*", re.sub(r"'[^']*'", "", arguments))


def problems(text):
    for command, flags in commands(text):
        if command in ("help", "command", "complete"):
            continue
        known = help_of(command)
        if known is None:
            yield "there is no pulse %s" % command
        yield from ("pulse %s has no %s" % (command, flag) for flag in flags
                    if known and not re.search(re.escape(flag) + r"(?![a-z-])", known))


class CommandsTest(unittest.TestCase):

    def test_what_is_wrong_is_found(self):
        self.assertEqual(["pulse set has no --fo", "there is no pulse stauts", "pulse status has no --cal",
                          "pulse agent has no --for"],
                         list(problems("```\n$ pulse set HANG_SECONDS=9 \\\n  --fo=1m --for=1m\nbin/pulse stauts --x\n```\n"
                                       "Say `pulse status --calls --cal`.\n\n    pulse agent --for=1m\n")))
        self.assertEqual([], list(problems("```\npulse capture --stack-command='gdb --batch'  # --x\n```\npulse --x\n")))

    def test_commands_of_our_documents(self):
        wrong, flags = [], 0
        for path in glob.glob(os.path.join(RUNFILES, "docs/*.md")) + [os.path.join(RUNFILES, "README.md")]:
            with open(path, encoding="utf-8") as file:
                text = file.read()
            wrong += ["%s: %s" % (os.path.relpath(path, RUNFILES), problem) for problem in problems(text)]
            flags += sum(len(each) for _, each in commands(text))
        self.assertEqual([], wrong)
        self.assertGreater(flags, 30)


if __name__ == "__main__":
    running.main()
