#!/usr/bin/env python3
"""Prints a compilation database of our own C++ sources, as clang-tidy and clangd read it.

    tools/compile_commands.py > compile_commands.json

The commands are Bazel's, with the flags left out that only GCC knows.
"""

import json
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GCC_ONLY = {
    "-fno-canonical-system-headers",
    "-Wno-free-nonheap-object",
    "-Wunused-but-set-parameter",
}
# What tests see of gtest before their first line, translated by g++. They include it themselves, too.
TRANSLATED = ["-include", "tests/prelude/gtest.h"]


def bazel(*arguments):
    command = [os.path.join(ROOT, "bazelw"), *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    execution_root = bazel("info", "--ui_event_filters=-info", "execution_root").strip()
    actions = json.loads(
        bazel(
            "aquery",
            "--output=jsonproto",
            "--noshow_progress",
            "--ui_event_filters=-info",
            'mnemonic("CppCompile", //...)',
        )
    )
    commands = {}
    for action in actions.get("actions", []):
        arguments = [flag for flag in action["arguments"] if flag not in GCC_ONLY]
        if TRANSLATED[1] in arguments:
            at = arguments.index(TRANSLATED[1]) - 1
            assert arguments[at : at + 2] == TRANSLATED, arguments
            del arguments[at : at + 2]
        compiled = arguments[arguments.index("-c") + 1]
        sources = [compiled]
        if compiled.endswith("_in_one_piece.cc") and compiled.startswith("bazel-out/"):
            with open(os.path.join(execution_root, compiled), encoding="utf-8") as piece:
                sources = re.findall('"(.*)"', piece.read())
        for source in sources:
            if source.startswith(("external/", "bazel-out/")):
                continue
            commands[source] = {
                "directory": execution_root,
                "file": os.path.join(ROOT, source),
                "arguments": [os.path.join(ROOT, source) if f == compiled else f for f in arguments],
            }
    print(json.dumps(list(commands.values()), indent=1))


if __name__ == "__main__":
    main()
