#!/usr/bin/env python3
"""inject.sh and prove.sh with several NCCLs, and one table of what was right with each.

    tests/gpu/run_versions.py [--parts=inject,prove] [--gpus=N] [--budget=SECONDS] BINARIES OUT LIBRARY...

BINARIES   what those scripts need: their first lines say
OUT        a folder, which gets table.txt, report.txt (what all of them printed), results.jsonl (a line for
           each cell of the table) and logs-VERSION.tar (their own files); table and report are written
           after every script, so that a run that is cut short leaves what it had
LIBRARY    "own": the NCCL of PULSE_LIBRARIES, else of python3's packages. Else a folder with a libnccl.so.2, or
           such a file; .xz is unpacked. The CUDA runtime and all else is taken as with "own".
--parts    inject, prove or both, in this order for each library
--budget   for all of it, 570 s; a script gets what is left, and says what it had no time for

What the scripts take from the environment they take here, too: PULSE_PARTS, INJECT_PARTS, INJECT_CASES,
INJECT_DELAYS, INJECT_PARALLEL. PAT is off: a build of NCCL for tests may lack it. Exit status: 0 when all was
right; 1 else; 2 for bad arguments. Python 3.9's standard library alone.
"""

import argparse
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import nccl_versions  # noqa: E402  (beside this file)

SCRIPTS = {"inject": "inject.sh", "prove": "prove.sh"}
BUDGETS = {"inject": "INJECT_BUDGET_S", "prove": "PULSE_BUDGET_S"}
MOST_S = {"inject": 290, "prove": 280}
ENDING_S = 15  # of a script that its budget is over for
LEAST_S = 40

_VERSION = ("import ctypes, sys; v = ctypes.c_int(); "
            "ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); print(v.value)")


class BadLibrary(Exception):
    pass


class Library:
    """An NCCL and where it lies."""

    def __init__(self, argument, own, work):
        self.is_own = argument == "own"
        folder = None if self.is_own else self._folder(argument, work)
        self.folders = ":".join(filter(None, [folder, own]))
        path = next((path for path in (os.path.join(each, "libnccl.so.2")
                                       for each in self.folders.split(":")) if os.path.exists(path)),
                    None)
        if path is None:
            raise BadLibrary("%s: no libnccl.so.2 in %s" % (argument, self.folders or "any folder"))
        done = subprocess.run([sys.executable, "-c", _VERSION, path], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False,
                              env=self.environment())
        if done.returncode != 0:
            raise BadLibrary("%s: %s" % (argument, (done.stderr.strip().splitlines() or ["?"])[-1]))
        self.version = nccl_versions.text(int(done.stdout))

    @staticmethod
    def _folder(argument, work):
        if os.path.isdir(argument):
            return os.path.abspath(argument)
        if not os.path.exists(argument):
            raise BadLibrary("%s: no such file or folder" % argument)
        folder = tempfile.mkdtemp(prefix="nccl-", dir=work)
        opener = lzma.open if argument.endswith(".xz") else open
        try:
            with opener(argument, "rb") as packed, \
                    open(os.path.join(folder, "libnccl.so.2"), "wb") as file:
                shutil.copyfileobj(packed, file, 1 << 20)
        except lzma.LZMAError as error:
            raise BadLibrary("%s: %s" % (argument, error)) from error
        return folder

    def environment(self):
        environment = dict(os.environ, PULSE_LIBRARIES=self.folders, NCCL_PAT_ENABLE="0", NCCL_NVLS_ENABLE="0")
        if not self.is_own:  # for PyTorch, which finds its own NCCL before LD_LIBRARY_PATH's
            environment["PULSE_PRELOAD"] = os.path.join(self.folders.split(":")[0], "libnccl.so.2")
        return environment


def own_folders():
    """As machine.sh finds them."""
    if os.environ.get("PULSE_LIBRARIES"):
        return os.environ["PULSE_LIBRARIES"]
    done = subprocess.run(["bash", "-c", 'source "$0"; libraries', os.path.join(HERE, "machine.sh")],
                          stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


# ---- what a script said --------------------------------------------------------------------------


def cells_of_inject(folder):
    """[(name, state, seconds, version or None)]"""
    cells, late = [], []
    path = os.path.join(folder, "results.jsonl")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for row in map(json.loads, file):
                if row["kind"] == "straggler":
                    late.append(row["state"])
                    continue
                version = nccl_versions.text(row["nccl"]) if "nccl" in row else None
                cells.append(("%s, %s" % (row["case"], row["variant"]), row["state"], row.get("seconds"), version))
    if late:
        right = late.count("OK")
        cells.append(("%d stragglers" % len(late), "OK" if right == len(late) else
                      "%d of them not right" % (len(late) - right), None, None))
    return cells


_ROW = re.compile(r"^(\S+) +(?:(\d+) s +)?(.*)$")


def cells_of_table(report):
    """As cells_of_inject, of the table at the end of prove.sh's report."""
    _, found, table = report.rpartition("\n==== summary")
    cells = {}
    for line in table.splitlines()[1:] if found else ():
        name, seconds, said = _ROW.match(line).groups()
        state = "OK" if said.startswith("OK") else said.split(":")[0]
        if cells.get(name, ("", "OK"))[1] == "OK":
            cells[name] = (name, state, float(seconds) if seconds else None, None)
    return list(cells.values())


def versions_of(report):
    """That the ranks of check.py said."""
    return set(re.findall(r"note rank0: NCCL (\d+\.\d+\.\d+),", report))


# ---- the run -------------------------------------------------------------------------------------


class Table:
    def __init__(self, out):
        self.out = out
        self.names = []  # (part, name), in the order of appearance
        self.versions = []
        self.cells = {}  # ((part, name), version) -> (state, seconds)

    def add(self, part, version, name, state, seconds):
        for known, new in ((self.names, (part, name)), (self.versions, version)):
            if new not in known:
                known.append(new)
        self.cells[(part, name), version] = state, seconds
        with open(os.path.join(self.out, "results.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps({"part": part, "name": name, "nccl": version, "state": state,
                                   "seconds": seconds}) + "\n")

    def wrong(self):
        return sum(state not in ("OK", "NOT RUN") for state, _ in self.cells.values())

    def write(self):
        header = "%-7s %-26s" % ("", "NCCL") + "".join("%-22s" % v for v in self.versions)
        lines = [header.rstrip()]
        for part, name in self.names:
            line = "%-7s %-26s" % (part, name)
            for version in self.versions:
                state, seconds = self.cells.get(((part, name), version), ("-", None))
                took = "" if seconds is None else " %.1f s" % seconds
                line += "%-22s" % ({"OK": "right", "NOT RUN": "not run"}.get(state, state)[:12] + took)
            lines.append(line.rstrip())
        text = "\n".join(lines) + "\n"
        with open(os.path.join(self.out, "table.txt"), "w", encoding="utf-8") as file:
            file.write(text)
        return text


def run_script(options, library, part, seconds, folder):
    """(report, exit status, seconds that it took)"""
    environment = dict(library.environment(), **{BUDGETS[part]: "%d" % (seconds - ENDING_S)})
    command = [os.path.join(HERE, SCRIPTS[part]), options.binaries, folder]
    if options.gpus:
        environment["PULSE_GPUS"] = str(options.gpus)
    begin = time.monotonic()
    with open(os.path.join(folder, "output.txt"), "wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()  # it ends what it started
            try:
                process.wait(timeout=ENDING_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    name = "report.txt" if os.path.exists(os.path.join(folder, "report.txt")) else "output.txt"
    with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
        report = file.read()
    return report, process.returncode, time.monotonic() - begin


def run_part(options, table, library, part, work):
    left = options.end - time.monotonic()
    if left < LEAST_S:
        table.add(part, library.version, "(all)", "no time", None)
        return
    folder = os.path.join(work, library.version, part)
    os.makedirs(folder)
    print("==== NCCL %s, %s: %.0f s left" % (library.version, part, left), flush=True)
    report, status, took = run_script(options, library, part, min(left - ENDING_S, MOST_S[part] + ENDING_S), folder)
    with open(os.path.join(options.out, "report.txt"), "a", encoding="utf-8") as file:
        file.write("======== NCCL %s, %s: exit status %s, %.0f s\n%s\n" % (library.version, part, status, took, report))
    cells = cells_of_inject(folder) if part == "inject" else cells_of_table(report)
    for name, state, seconds, version in cells:
        if version not in (None, library.version):
            state = "ran " + version
        table.add(part, library.version, name, state, seconds)
    others = versions_of(report) - {library.version}
    if others:
        table.add(part, library.version, "(all)", "ran " + ", ".join(sorted(others)), took)
    elif not cells or (status != 0 and all(cell[1] in ("OK", "NOT RUN") for cell in cells)):
        table.add(part, library.version, "(all)", "status %s" % status, took)
        print(report[-2000:], flush=True)
    for line in report.splitlines():
        if re.match(r"RESULT (WRONG|DIFFERENT|LEFT OUT|NOT RUN)|FAILED", line):
            print(line[:400])
    print("%.0f s\n%s" % (took, table.write()), flush=True)
    with tarfile.open(os.path.join(options.out, "logs-%s.tar" % library.version), "w") as tar:
        tar.add(os.path.join(work, library.version), library.version)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("binaries")
    parser.add_argument("out")
    parser.add_argument("library", nargs="+")
    parser.add_argument("--parts", default="inject,prove", help="of " + ", ".join(SCRIPTS))
    parser.add_argument("--gpus", type=int, default=0, help="default: all")
    parser.add_argument("--budget", type=float, default=570, help="seconds for all of it")
    options = parser.parse_args()
    options.parts = options.parts.split(",")
    if not set(options.parts) <= set(SCRIPTS):
        parser.error("--parts takes some of " + ", ".join(SCRIPTS))
    options.end = time.monotonic() + options.budget
    return options


def main():
    options = parse_options()
    os.makedirs(options.out, exist_ok=True)
    table = Table(options.out)
    with tempfile.TemporaryDirectory(prefix="pulse-versions-", dir="/tmp") as work:
        try:
            own = own_folders()
            libraries = [Library(argument, own, work) for argument in options.library]
        except BadLibrary as error:
            print("run_versions.py: %s" % error, file=sys.stderr)
            return 2
        twice = [library.version for library in libraries]
        if len(set(twice)) < len(twice):
            print("run_versions.py: a version twice: %s" % ", ".join(twice), file=sys.stderr)
            return 2
        for library in libraries:
            for part in options.parts:
                run_part(options, table, library, part, work)
    print("%s\n%d cells, %d not right" % (table.write(), len(table.cells), table.wrong()))
    return 1 if table.wrong() or not table.cells else 0


if __name__ == "__main__":
    sys.exit(main())
