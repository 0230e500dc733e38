#!/usr/bin/env python3
"""Draws the arrows between folders, and fails where one goes up or where folders stand in a circle.

  tools/check_arrows.py            checks; silent when all is well
  tools/check_arrows.py --print    prints each folder and what it includes, as a Markdown table
  tools/check_arrows.py --root=DIR checks another tree

An arrow goes from a folder to another one whose files it includes (C++) or imports (Python). FLOORS has the
folders of the product from the bottom up: an arrow goes down only.
"""

import argparse
import collections
import os
import re
import subprocess
import sys

# A folder may include those above it in this list. Folders that are not named have no floor of their own:
# `bench` may include all of these, `tests` all of these and `bench`.
FLOORS = [
    "plugin/abi",
    "metrics",
    "metrics/testing",
    "exporter/base",
    "exporter/diagnosis",
    "exporter/diagnosis/testing",
    "exporter/exposition",
    "exporter/exposition/json",
    "exporter/node",
    "exporter/control",
    "exporter/page",
    "exporter/http",
    "exporter/endpoint",
    "exporter/web",
    "exporter/flight_recorder",
    "exporter/fleet",
    "exporter/outside",
    "exporter/capture",
    "exporter/watch",
    "exporter/timeline",
    "plugin/cuda",
    "plugin/tracker",
    "plugin/runtime",
    "plugin/adapter",
    "plugin/next",
    "plugin/example_tuner",
    "simulation",
    "exporter/cli/status",
    "exporter/cli",
]

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
IMPORT = re.compile(r"^\s*from\s+((?:bench|deploy|tests|tools)(?:\.\w+)*)\s+import\s+(\w+)", re.M)


def floor_of(folder):
    """Higher folders have higher numbers."""
    if folder in FLOORS:
        return FLOORS.index(folder)
    top = folder.split("/")[0]
    if top in ("metrics", "plugin", "exporter", "simulation"):
        return None
    return len(FLOORS) + (top == "tests")


# Folders without a package of their own belong to the one above.
SUBFOLDERS = {
    "exporter/diagnosis": ("facts", "waits", "stragglers", "words"),
    "exporter/node": ("peers",),
    "exporter/cli": ("flags",),
}
ROOMS = {os.path.join(room, each): room for room, folders in SUBFOLDERS.items() for each in folders}


def room_of(folder):
    return ROOMS.get(folder, folder)


def targets(path, text):
    """The files or modules that a file names."""
    if path.endswith(".py"):
        for module, name in IMPORT.findall(text):
            yield module.replace(".", "/"), name
    else:
        for included in INCLUDE.findall(text):
            yield included, None


def list_files(root):
    """What git knows, and what it would."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard",
                             "--", "*.cc", "*.h", "*.c", "*.py"],
                            cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [path for path in listed.split("\0") if path and os.path.isfile(os.path.join(root, path))]


def read_arrows(root, paths):
    """{folder: {folder that it includes: a file that does}}, and the folders that have code."""
    folders = {room_of(os.path.dirname(path)) for path in paths}
    arrows = collections.defaultdict(dict)
    for path in paths:
        folder = room_of(os.path.dirname(path))
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        for target, name in targets(path, text):
            if name is None:
                other = room_of(os.path.dirname(target))
            else:  # a module, or a folder of modules
                other = room_of(target if target in folders else os.path.dirname(target))
            if other in folders and other != folder:
                arrows[folder].setdefault(other, path)
    return arrows, folders


def circles(arrows):
    """Groups of folders that reach each other."""
    def reached(start):
        seen, todo = set(), [start]
        while todo:
            for other in arrows.get(todo.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return seen

    reach = {folder: reached(folder) for folder in list(arrows)}
    groups = {frozenset(other for other in reach[folder] if folder in reach.get(other, ()))
              for folder in reach if folder in reach[folder]}
    return sorted(sorted(group) for group in groups)


def problems(arrows, folders):
    for folder in sorted(folders):
        if floor_of(folder) is None:
            yield "%s: has no place in FLOORS (tools/check_arrows.py)" % folder
    for folder in sorted(arrows):
        for other, path in sorted(arrows[folder].items()):
            floors = floor_of(folder), floor_of(other)
            if None not in floors and floors[1] > floors[0]:
                yield "%s: includes %s, which is above %s" % (path, other, folder)
    for group in circles(arrows):
        yield "folders in a circle: %s" % ", ".join(group)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--print", action="store_true")
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    options = parser.parse_args()
    arrows, folders = read_arrows(options.root, list_files(options.root))
    if options.print:
        print("| folder | includes |\n|---|---|")
        for folder in sorted(folders, key=lambda each: (floor_of(each) or 0, each)):
            print("| `%s` | %s |" % (folder, ", ".join("`%s`" % each for each in sorted(arrows[folder]))))
    found = list(problems(arrows, folders))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
