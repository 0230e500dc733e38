"""Writes pulse(1), a page for each command and docs/cli.md from the help texts in the program's sources.

From the sources, not from the program: one that is built for another processor cannot be run here.
//tests/deploy:package_test holds the texts against what the program prints.
"""

import argparse
import collections
import gzip
import os
import re

Command = collections.namedtuple("Command", "name summary help")

HELP = re.compile(r'constexpr char kHelp\[\] =\s*R"(\w*)\((?P<text>.*?)\)\1";', re.DOTALL)
COMMAND = re.compile(r'const Command k\w+ = \{\s*"(\w+)",\s*"([^"]*)",\s*kHelp,')
# The parts of a help text: usage, description, examples, exit statuses.
PARTS = re.compile(r"(?:usage: (?P<usage>.*?)\n\n)?(?P<description>.*?)(?:\nExamples:\n(?P<examples>.*?)\n)?"
                   r"(?:\nExit status: (?P<status>.*))?", re.DOTALL)

CLI_PAGE = """# Commands

<!-- Written by deploy/package/make_manual.py. Do not edit:
./bazelw build //deploy/package:pulse_manual && cp bazel-bin/deploy/package/cli.md docs/cli.md -->

`pulse help COMMAND` and `man pulse-COMMAND` show the same texts. The Debian package completes commands and flags in bash, zsh and fish.

## Exit status

| | |
|---|---|
| 0 | done; no hang is suspected, or only an expected wait |
| 1 | bad usage |
| 2 | no endpoint or process answers, or the address or folder can't be used |
| 3 | a hang is suspected (`status`, `diagnose`) |
| 4 | incomplete: an endpoint, a process or a rank is missing, or its work can't be seen |
| 5 | the output, or the file to make, couldn't be written |
| 6 and more | see the command |

## All commands
"""
SUMMARY = "metrics of NCCL: status, diagnosis and captures of jobs, agent, demo"


def read_command(path):
    """Returns the Command of a *_command.cc."""
    with open(path, encoding="utf-8") as file:
        source = file.read()
    text, command = HELP.search(source), COMMAND.search(source)
    if not text or not command:
        raise SystemExit("make_manual: %s has no help text or no command" % path)
    return Command(command.group(1), command.group(2), text["text"])


def roff(text):
    """Text that roff prints as it stands."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return re.sub(r"^\.", r"\\&.", text, flags=re.MULTILINE)


def page(name, summary, version, sections):
    """Returns a manual page; lines of `sections`, [(title, text)], stay as they are."""
    parts = ['.TH %s 1 "" "NCCL Pulse %s"' % (name.upper(), version),
             ".SH NAME", "%s \\- %s" % (roff(name), roff(summary))]
    for title, text in sections:
        if text:
            parts += [".SH " + title, ".nf", roff(text.strip("\n")), ".fi"]
    return "\n".join(parts) + "\n"


def command_page(command, version):
    """Returns the text of pulse-COMMAND(1)."""
    part = PARTS.fullmatch(command.help.rstrip("\n")).groupdict()
    return page("pulse-" + command.name, command.summary, version, [
        ("SYNOPSIS", re.sub(r"^ +", "", part["usage"] or "", flags=re.MULTILINE)), ("DESCRIPTION", part["description"]),
        ("EXAMPLES", part["examples"]), ("EXIT STATUS", part["status"]), ("SEE ALSO", "pulse(1), pulse-connect(1)")])


def manual(commands, version):
    """Returns the text of pulse(1)."""
    return page("pulse", SUMMARY, version, [
        ("SYNOPSIS", "pulse COMMAND [flags]"),
        ("COMMANDS", "\n".join("%-10s %s" % (command.name, command.summary) for command in commands)),
        ("FILES", "/usr/share/doc/nccl-pulse          README.md, all documents, licences\n"
                  "/usr/share/nccl-pulse/deploy       rules, dashboards, manifests\n"
                  "/etc/default/nccl-pulse-agent      flags of the agent's unit"),
        ("SEE ALSO", ", ".join("pulse-%s(1)" % command.name for command in commands))])


def typed(command):
    """What a person types: a topic of help has no usage."""
    return "%s%s" % ("" if command.help.startswith("usage:") else "help ", command.name)


def markdown(commands):
    """Returns the text of docs/cli.md."""
    parts = [CLI_PAGE, " ·\n".join("[%s](#pulse-%s)" % (typed(command), typed(command).replace(" ", "-"))
                                   for command in commands)]
    for command in commands:
        parts += ["", "## pulse %s" % typed(command), "", "```", command.help.rstrip("\n"), "```"]
    return "\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version_header", required=True)
    parser.add_argument("--manual", required=True, help="the folder for compressed manual pages, which exists")
    parser.add_argument("--markdown", required=True, help="the document to write")
    parser.add_argument("commands", nargs="+", help="*_command.cc, in the order of `pulse --help`, and connect_topic.cc")
    options = parser.parse_args()
    with open(options.version_header, encoding="utf-8") as file:
        version = re.search(r'\bkVersion\[\]\s*=\s*"([^"]*)"', file.read()).group(1)
    commands = [read_command(path) for path in options.commands]
    pages = {"pulse-" + command.name: command_page(command, version) for command in commands}
    pages["pulse"] = manual(commands, version)
    for name, text in pages.items():
        with open(os.path.join(options.manual, name + ".1.gz"), "wb") as file:
            file.write(gzip.compress(text.encode(), mtime=0))
    with open(options.markdown, "w", encoding="utf-8") as file:
        file.write(markdown(commands))


if __name__ == "__main__":
    main()
