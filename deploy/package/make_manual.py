"""Writes docs/cli.md from the help texts of the program, and the manual pages from docs/cli.md.

    make_manual --program PULSE DOCUMENT
    make_manual --document DOCUMENT VERSION_HEADER FOLDER
"""

import collections
import gzip
import os
import re
import subprocess
import sys

Command = collections.namedtuple("Command", "name summary help")

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


def ask(program):
    """Returns the commands of the program, and its topic of help."""
    def say(*arguments):
        return subprocess.run([program, *arguments], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
    found = re.findall(r"^  (\w+) +(\S.*)$", say("help"), re.MULTILINE)
    return [Command(name, summary, say("help", name))
            for name, summary in found + [("connect", "find and reach endpoints: addresses, TLS, passwords")]]


def typed(command):
    """What a person types: a topic of help has no usage."""
    return "%s%s" % ("" if command.help.startswith("usage:") else "help ", command.name)


def markdown(commands):
    """Returns the text of docs/cli.md."""
    links = ["- [%s](#pulse-%s): %s\n" % (typed(each), typed(each).replace(" ", "-"), each.summary) for each in commands]
    return CLI_PAGE + "".join(links) + "".join("\n## pulse %s\n\n```\n%s```\n" % (typed(each), each.help) for each in commands)


def read(document):
    """Returns the commands of docs/cli.md."""
    summaries = re.findall(r"^- \[(?:help )?(\w+)\]\(#[\w-]+\): (.*)$", document, re.MULTILINE)
    helps = dict(re.findall(r"^## pulse (?:help )?(\w+)\n\n```\n(.*?)```$", document, re.MULTILINE | re.DOTALL))
    return [Command(name, summary, helps[name]) for name, summary in summaries]


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


def contents(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main(what, source, *rest):
    if what == "--program":
        with open(rest[0], "w", encoding="utf-8") as file:
            file.write(markdown(ask(source)))
        return
    header, folder = rest
    version = re.search(r'\bkVersion\[\]\s*=\s*"([^"]*)"', contents(header)).group(1)
    commands = read(contents(source))
    pages = {"pulse-" + command.name: command_page(command, version) for command in commands}
    for name, text in dict(pages, pulse=manual(commands, version)).items():
        with open(os.path.join(folder, name + ".1.gz"), "wb") as file:
            file.write(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
