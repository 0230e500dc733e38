"""The manual page, docs/cli.md and bash's completion, made from the sources, say what the program says."""

import gzip
import os
import re
import subprocess
import unittest

from deploy.package import make_manual
from tests import running

RUNFILES = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])
PULSE = os.path.join(RUNFILES, "exporter/pulse")
COMPLETION = os.path.join(RUNFILES, "deploy/package/completions/pulse")

# What bash does when somebody presses the tabulator behind the words.
PRESS = r"""
source "$1"; shift
compopt() { :; }
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_pulse
printf '%s\n' "${COMPREPLY[@]}"
"""


def say(*arguments):
    return subprocess.run([PULSE, *arguments], check=True, stdout=subprocess.PIPE,
                          universal_newlines=True).stdout


def commands():
    """Of the program itself: [(name, summary)]."""
    return re.findall(r"^  (\w+) +(\S.*)$", say("--help"), re.MULTILINE)


def complete(*words):
    """What bash offers for the last word."""
    result = subprocess.run(["bash", "-c", PRESS, "bash", COMPLETION, *words], check=True,
                            stdout=subprocess.PIPE, universal_newlines=True)
    return result.stdout.split()


class ManualTest(unittest.TestCase):

    def setUp(self):
        with gzip.open(os.path.join(RUNFILES, "deploy/package/manual/pulse.1.gz"), "rt",
                       encoding="utf-8") as file:
            self.page = file.read()

    def test_every_command_stands_there_with_all_that_its_help_says(self):
        self.assertGreater(len(commands()), 3)
        places = []
        for name, summary in commands():
            self.assertIn(".TP\n.B %s\n%s\n" % (name, make_manual.roff(summary)), self.page)
            text = make_manual.roff(say(name, "--help").rstrip("\n"))
            self.assertIn(".nf\n%s\n.fi\n" % text, self.page)
            places.append(self.page.index(text))
        self.assertEqual(sorted(places), places, "in the program's order")

    def test_the_version_is_the_programs(self):
        version = say("--version").split()[1]
        self.assertIn('"NCCL Pulse %s"' % version, self.page.splitlines()[0])

    def test_nothing_is_taken_for_a_request(self):
        self.assertEqual("\\&.x \\-\\- \\e \\(aq\\(ga", make_manual.roff(".x -- \\ '`"))


class DocumentTest(unittest.TestCase):

    def test_the_document_is_what_the_sources_make(self):
        with open(os.path.join(RUNFILES, "deploy/package/cli.md"), encoding="utf-8") as made:
            with open(os.path.join(RUNFILES, "docs/cli.md"), encoding="utf-8") as document:
                self.assertEqual(made.read(), document.read(), "Run: ./bazelw build //deploy/package:pulse_manual && "
                                 "cp bazel-bin/deploy/package/cli.md docs/cli.md")

    def test_a_command_has_a_section_and_a_row(self):
        text = make_manual.markdown([make_manual.Command("look", "look at it", "usage: pulse look\n")])
        self.assertIn("\n| [`pulse look`](#pulse-look) | look at it |\n", text)
        self.assertTrue(text.endswith("\n## pulse look\n\n```\nusage: pulse look\n```\n"))


class CompletionTest(unittest.TestCase):

    def test_commands(self):
        self.assertEqual([name for name, _ in commands()] + ["--help", "--version"], complete("pulse", ""))
        self.assertEqual(["status"], complete("pulse", "sta"))

    def test_every_flag_of_every_help_text(self):
        for name, _ in commands():
            flags = re.findall(r"^  (--[a-z-]+)(=?)", say(name, "--help"), re.MULTILINE)
            self.assertEqual(["".join(flag) for flag in flags] + ["--help"], complete("pulse", name, "--"))
            for flag, _ in flags:
                done = subprocess.run([PULSE, name, flag + "=1", "--no-such"], stderr=subprocess.PIPE, text=True, check=False)
                self.assertEqual(1, done.returncode)
                self.assertNotIn(flag + " is no flag", done.stderr)
        for name in ("diagnose", "capture", "trace"):
            self.assertIn("--endpoint=", complete("pulse", name, "--e"))

    def test_values(self):
        # The words as bash parts them at "=".
        self.assertEqual(["never"], complete("pulse", "status", "--color", "=", "n"))

    def test_files(self):
        self.assertIn(COMPLETION, complete("pulse", "trace", COMPLETION[:-2]))


if __name__ == "__main__":
    running.main()
