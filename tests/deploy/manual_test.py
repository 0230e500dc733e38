"""Manual pages and docs/cli.md say what the program says. Shells complete its words."""

import gzip
import os
import re
import shutil
import subprocess
import unittest

from deploy.package import make_manual
from tests import running
from tests.kit import PULSE, RUNFILES

COMPLETIONS = os.path.join(RUNFILES, "deploy/package/completions")

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
    result = subprocess.run(["bash", "-c", PRESS, "bash", os.path.join(COMPLETIONS, "bash/pulse"), PULSE, *words], check=True,
                            stdout=subprocess.PIPE, universal_newlines=True)
    return result.stdout.split()


def manual(name):
    with gzip.open(os.path.join(RUNFILES, "deploy/package/manual", name + ".1.gz"), "rt", encoding="utf-8") as file:
        return file.read()


class ManualTest(unittest.TestCase):

    def test_the_first_page_names_every_command(self):
        self.assertGreater(len(commands()), 3)
        for name, summary in commands():
            self.assertIn(make_manual.roff("%-10s %s" % (name, summary)), manual("pulse"))
            self.assertIn(make_manual.roff("pulse-%s(1)" % name), manual("pulse"))

    def test_every_line_of_a_commands_help_is_on_its_page(self):
        for name, _ in commands() + [("connect", "")]:
            page = manual("pulse-" + name)
            for line in say("help", name).splitlines():
                line = re.sub(r"^(usage|Exit status|Examples): *", "", line.strip())
                self.assertIn(make_manual.roff(line) if line != "Examples:" else ".SH EXAMPLES", page)
            if name != "connect":
                for title in ("SYNOPSIS", "DESCRIPTION", "EXAMPLES", "EXIT STATUS", "SEE ALSO"):
                    self.assertIn("\n.SH %s\n.nf\n" % title, page, name)

    def test_the_version_is_the_programs(self):
        version = say("--version").split()[1]
        self.assertIn('"NCCL Pulse %s"' % version, manual("pulse").splitlines()[0])

    def test_nothing_is_taken_for_a_request(self):
        self.assertEqual("\\&.x \\-\\- \\e \\(aq\\(ga", make_manual.roff(".x -- \\ '`"))


class DocumentTest(unittest.TestCase):

    def test_the_document_is_what_the_program_says(self):
        with open(os.path.join(RUNFILES, "deploy/package/cli.md"), encoding="utf-8") as made:
            with open(os.path.join(RUNFILES, "docs/cli.md"), encoding="utf-8") as document:
                self.assertEqual(made.read(), document.read(), "Run: ./bazelw build //deploy/package:pulse_manual && "
                                 "cp bazel-bin/deploy/package/cli.md docs/cli.md")

    def test_a_command_has_a_section_and_a_link(self):
        commands = [make_manual.Command("look", "look at it", "usage: pulse look\n"),
                    make_manual.Command("topic", "", "It says.\n")]
        text = make_manual.markdown(commands)
        self.assertIn("\n- [look](#pulse-look): look at it\n- [help topic](#pulse-help-topic): ", text)
        self.assertTrue(text.endswith("\n## pulse look\n\n```\nusage: pulse look\n```\n"
                                      "\n## pulse help topic\n\n```\nIt says.\n```\n"))
        self.assertEqual(commands, make_manual.read(text))


class CompletionTest(unittest.TestCase):

    def test_commands(self):
        names = [name for name, _ in commands()]
        self.assertEqual(names + ["help", "--help", "--version"], complete(""))
        self.assertEqual(["status"], complete("sta"))
        self.assertEqual(names + ["connect"], complete("help", ""))

    def test_every_flag_of_every_help_text(self):
        for name, _ in commands():
            offered = complete(name, "--")
            for flag in re.findall(r"^  (--[a-z-]+=?)", say("help", name), re.MULTILINE):
                self.assertIn(flag, offered)
            for flag in offered:
                known = say("help", name) + say("help", "connect")
                self.assertTrue(flag == "--help" or re.search(re.escape(flag) + "(?![a-z-])", known) or
                                (flag[-1] == "=" and flag in known), (name, flag))
        for name in ("diagnose", "capture", "trace"):
            self.assertIn("--endpoint=", complete(name, "--e"))
            self.assertIn("--prometheus=", complete(name, "--p"))

    def test_values(self):
        # The words as bash parts them at "=".
        self.assertEqual(["never"], complete("status", "--color", "=", "n"))
        self.assertEqual(["bundle", "flight-recorder"], complete("capture", "--format", "="))
        self.assertEqual(["HANG_SECONDS="], complete("set", "H"))

    def test_files_are_left_to_the_shell(self):
        self.assertEqual([], complete("trace", "/tm"))
        self.assertEqual([], complete("capture", "--out", "=", "/tm"))
        self.assertEqual([], complete("no-such", ""))

    def test_zsh(self):
        if not shutil.which("zsh"):
            self.skipTest("no zsh")
        # compadd is what takes the candidates.
        script = """compadd() { local last=${@[-1]}; print -l -- ${(P)last}; }
_files() { print files; }
compset() { :; }
words=("$2" "${@:3}"); CURRENT=${#words}
press() { source "$FILE"; }
press"""
        for words, expected in ((("sta",), ["status"]), (("status", "--ca"), ["--calls-of=", "--ca-cert=", "--calls"]),
                                (("trace", "/tm"), ["files"]), (("status", "--color=n"), ["--color=never"])):
            done = subprocess.run(["zsh", "-f", "-c", script, "zsh", "", PULSE, *words], check=False, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, env=dict(os.environ, FILE=os.path.join(COMPLETIONS, "zsh/_pulse")))
            self.assertEqual(expected, done.stdout.split())

    def test_fish(self):
        if not shutil.which("fish"):
            self.skipTest("no fish")
        for line, expected in (("sta", "status"), ("capture --form", "--format="), ("status --color=n", "--color=never")):
            done = subprocess.run(["fish", "-N", "-c", "set PATH %s $PATH; source %s; complete -C 'pulse %s'" % (
                os.path.dirname(PULSE), os.path.join(COMPLETIONS, "fish/pulse.fish"), line)], check=False, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ, HOME=os.environ["TEST_TMPDIR"]))
            self.assertIn(expected, done.stdout.split())


if __name__ == "__main__":
    running.main()
