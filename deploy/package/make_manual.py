"""Writes pulse(1), the shells' completions and docs/cli.md from the help texts in the program's sources.

From the sources, not from the program: one that is built for another processor cannot be run here.
//tests/deploy:package_test holds the texts against what the program prints.
"""

import argparse
import collections
import gzip
import re

Command = collections.namedtuple("Command", "name summary help")

HELP = re.compile(r'constexpr char kHelp\[\] =\s*R"\((.*?)\)";', re.DOTALL)
COMMAND = re.compile(r'const Command k\w+ = \{\s*"(\w+)",\s*"([^"]*)",\s*kHelp,')
# At the beginning of a line of help text, and what may follow "=".
FLAG = re.compile(r"^  (--[a-z-]+)(?:=(\S+))?", re.MULTILINE)

CLI_PAGE = """# Commands

<!-- Written by deploy/package/make_manual.py. Do not edit:
./bazelw build //deploy/package:pulse_manual && cp bazel-bin/deploy/package/cli.md docs/cli.md -->

`pulse help COMMAND` prints the same texts, and `man pulse` has them if the package is installed. How to find endpoints, TLS and
credentials: [find the endpoints](debug-a-hang.md#find-the-endpoints).

## Exit status

| | |
|---|---|
| 0 | done; no hang is suspected, or only an expected wait |
| 1 | bad usage |
| 2 | no endpoint or process answers, or the address or folder can't be used |
| 3 | a hang is suspected (`status`, `diagnose`) |
| 4 | incomplete: an endpoint, a process or a rank is missing, or its work can't be seen |
| 5 and more | see the command |

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
    return Command(command.group(1), command.group(2), text.group(1))


def roff(text):
    """Text that roff prints as it stands."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return re.sub(r"^\.", r"\\&.", text, flags=re.MULTILINE)


def manual(commands, version):
    """Returns the text of pulse(1)."""
    parts = ['.TH PULSE 1 "" "NCCL Pulse %s"' % version,
             ".SH NAME", "pulse \\- %s" % roff(SUMMARY),
             ".SH SYNOPSIS", ".B pulse", ".I COMMAND", "[flags]",
             ".SH COMMANDS"]
    for command in commands:
        parts += [".TP", ".B %s" % command.name, roff(command.summary)]
    for command in commands:
        usage, _, rest = command.help.partition("\n")
        parts += [".SH PULSE %s" % command.name.upper(), ".nf", roff(usage), roff(rest.rstrip("\n")), ".fi"]
    parts += [".SH FILES", ".TP", "/usr/share/doc/nccl\\-pulse", "README.md, all documents, licences",
              ".TP", "/usr/share/nccl\\-pulse/deploy", "rules, dashboards, manifests",
              ".TP", "/etc/default/nccl\\-pulse\\-agent", "flags of the agent's unit"]
    return "\n".join(parts) + "\n"


def markdown(commands):
    """Returns the text of docs/cli.md."""
    parts = [CLI_PAGE, "| command | |", "|---|---|"]
    parts += ["| [`pulse %s`](#pulse-%s) | %s |" % (command.name, command.name, command.summary)
              for command in commands]
    for command in commands:
        parts += ["", "## pulse %s" % command.name, "", "```", command.help.rstrip("\n"), "```"]
    return "\n".join(parts) + "\n"


def flags_of(command):
    """Returns [(flag, values or None)]; "" stands for any value."""
    return [(flag, values) for flag, values in FLAG.findall(command.help)]


def bash_completion(commands):
    """Returns a completion for bash. Values of flags that name one of a few words are completed, too."""
    lines = ["# Completion of pulse for bash; made by deploy/package/make_manual.py.", "_pulse() {",
             "  local word=\"${COMP_WORDS[COMP_CWORD]}\" flags='' values=''", "  COMPREPLY=()",
             "  if ((COMP_CWORD == 1)); then",
             "    mapfile -t COMPREPLY < <(compgen -W '%s --help --version' -- \"${word}\")" % (
                 " ".join(command.name for command in commands)),
             "    return", "  fi",
             "  # With \"=\" among the characters that part words, the flag is a word of its own.",
             "  if [[ \"${word}\" == '=' ]]; then word=''; fi",
             "  local before=\"${COMP_WORDS[COMP_CWORD - 1]}\"",
             "  if [[ \"${before}\" == '=' ]]; then before=\"${COMP_WORDS[COMP_CWORD - 2]}\"; fi",
             "  case \"${COMP_WORDS[1]} ${before}\" in"]
    for command in commands:
        for flag, values in flags_of(command):
            if re.fullmatch(r"[a-z]+(\|[a-z]+)+", values):
                lines.append("    '%s %s') values='%s' ;;" % (command.name, flag, values.replace("|", " ")))
    lines += ["  esac",
              "  if [[ -n \"${values}\" ]]; then",
              "    mapfile -t COMPREPLY < <(compgen -W \"${values}\" -- \"${word}\")", "    return", "  fi",
              "  case \"${COMP_WORDS[1]}\" in"]
    for command in commands:
        flags = [flag + ("=" if values else "") for flag, values in flags_of(command)]
        lines.append("    %s) flags='%s' ;;" % (command.name, " ".join(flags + ["--help"])))
    lines += ["  esac",
              "  if [[ \"${word}\" == -* ]]; then",
              "    mapfile -t COMPREPLY < <(compgen -W \"${flags}\" -- \"${word}\")",
              "    [[ \"${COMPREPLY[0]:-}\" == *= ]] && compopt -o nospace",
              "  else", "    mapfile -t COMPREPLY < <(compgen -f -- \"${word}\")", "    compopt -o filenames",
              "  fi", "} && complete -F _pulse pulse"]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version_header", required=True)
    parser.add_argument("--manual", required=True, help="the compressed manual page to write")
    parser.add_argument("--bash", required=True, help="bash's completion to write")
    parser.add_argument("--markdown", required=True, help="the document to write")
    parser.add_argument("commands", nargs="+", help="*_command.cc, in the order of `pulse --help`")
    options = parser.parse_args()
    with open(options.version_header, encoding="utf-8") as file:
        version = re.search(r'\bkVersion\[\]\s*=\s*"([^"]*)"', file.read()).group(1)
    commands = [read_command(path) for path in options.commands]
    with open(options.manual, "wb") as file:
        file.write(gzip.compress(manual(commands, version).encode(), mtime=0))
    with open(options.bash, "w", encoding="utf-8") as file:
        file.write(bash_completion(commands))
    with open(options.markdown, "w", encoding="utf-8") as file:
        file.write(markdown(commands))


if __name__ == "__main__":
    main()
