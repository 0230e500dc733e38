#!/usr/bin/env python3
"""Which operations of NCCL are seen, with each release: a table for docs/, every cell of it from a run.

    tests/gpu/visibility.py [--gpus=2] [--budget=SECONDS] [--operations=A;B] BINARIES OUT LIBRARY...

BINARIES   a folder with visibility_program and libnccl-profiler-pulse.so
OUT        a folder, which gets visibility.md, results.jsonl (a line for each cell, with what was on the page)
           and logs-VERSION.tar; the first two are written after every operation
LIBRARY    as for run_versions.py
--budget   for each library, 230 s; an operation for which no time is left is said to be left out
--operations  some of OPERATIONS, with semicolons between

Each operation is made in several ways (visibility_program.cc), then rank 0 makes it once more in each, alone,
and what the page says of that is read. Nothing is expected: the table shows what is. Exit status: 0 when
every cell was run, and 1 else; 2 for bad arguments. Python 3.9's standard library alone.
"""

import argparse
import collections
import json
import os
import sys
import tarfile
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import endpoint  # noqa: E402  (beside this file)
import inject_job  # noqa: E402
import nccl_versions  # noqa: E402
import run_versions  # noqa: E402

# As visibility_operations.cc has them, and the labels `op` that are their own name.
OPERATIONS = {
    "AllReduce": ("AllReduce",),
    "AllGather": ("AllGather",),
    "ReduceScatter": ("ReduceScatter",),
    "Broadcast": ("Broadcast",),
    "Reduce": ("Reduce",),
    "Send and Recv": ("Send", "Recv"),
    "Send and Recv, all-to-all": ("Send", "Recv"),
    "AlltoAll": ("AlltoAll",),
    "Gather": ("Gather",),
    "Scatter": ("Scatter",),
    "AllReduce, symmetric memory": ("AllReduce",),
    "AllGather, copy engines": ("AllGather",),
    "PutSignal and WaitSignal": ("PutSignal", "WaitSignal"),
}
WAYS = ("eager", "non-blocking", "captured-1", "captured-65")
CAPTURED_CALLS = {"captured-1": 1, "captured-65": 65}
CALLS = 40  # twice, with a pause, in which the plugin decides to time every call
PAUSE_S = 1.3
HANG_AFTER_S = 1
LOOK_S = 5  # for what a page is to show
LEAST_S = 15

LEGEND = """\
`C` calls are counted by their name (`c`: as the Send and Recv that they are made of), `L` launches are
counted (`l`: fewer than calls), `E` the end of every launch is known, `T` durations are measured (`t`: as
those of a group), `H` a rank that waits alone is reported as a hang and the rank that has not called is
named (`h`: a hang is reported, and another rank or none is named; `?`: the page says that it does not know).
`-`: none of that. Captured: in a CUDA graph with so many calls; its launches are replays, counted by stamps or by
NCCL's own counter.
"""


class Options:
    """What inject_job.Job takes."""

    hang_after = HANG_AFTER_S

    def __init__(self, arguments, library, out, end):
        self.gpus = arguments.gpus
        self.library = os.path.join(arguments.binaries, "libnccl-profiler-pulse.so")
        self.libraries = library.folders
        self.out = out
        self.ports = arguments.ports
        self.limit = inject_job.Limit(end - time.monotonic())


class Broken(Exception):
    """A way that the program could not go."""

    def __init__(self, way, text):
        super().__init__(text)
        self.way = way


def page_of(job):
    text = job.endpoint.get("/metrics")
    return endpoint.Page(text) if text else None


def wait_page(job):
    return inject_job.wait_until(lambda: page_of(job), 10, "a page")


def counts(page, metric, way, *labels, **fixed):
    """{(rank, labels...): value} of the communicator of this way."""
    ids = {found["comm"] for found, _ in page.select("nccl_communicator_info", comm_name=way)}
    result = collections.Counter()
    for found, value in page.select(metric, **fixed):
        if found.get("comm") in ids:
            result[tuple(found.get(name, "") for name in ("rank",) + labels)] += value
    return result


class Reading:
    """What a page has of one way."""

    def __init__(self, page, way):
        captured = way in CAPTURED_CALLS
        flag = "true" if captured else "false"
        self.calls = counts(page, "nccl_operations_total", way, "op", captured=flag)
        self.calls.update(counts(page, "nccl_composite_operations_total", way, "op", captured=flag))
        kind = "nccl_graph_replays_total" if captured else "nccl_launches_total"
        self.launches = sum(counts(page, kind, way).values())
        if captured:
            in_flight = counts(page, "nccl_graph_inflight_replays", way)
            self.in_flight = sum(in_flight.values())
            finished = counts(page, "nccl_graph_finished_operations_total", way)
            if finished and not self.launches:  # a graph without stamps
                self.launches = sum(finished.values()) / CAPTURED_CALLS[way]
        else:
            ended = counts(page, "nccl_launches_completed_total", way)
            self.in_flight = self.launches - sum(ended.values())
        self.timed = counts(page, "nccl_operation_duration_seconds_count", way, "op")

    def since(self, before, captured):
        """The difference; of captured calls all: they were captured before."""
        if not captured:
            self.calls.subtract(before.calls)
        self.launches -= before.launches
        self.timed.subtract(before.timed)
        return self


def by_op(counter):
    """The most that any rank has of each op: only a root names what it is the root of."""
    result = collections.Counter()
    for (_, op), value in counter.items():
        result[op] = max(result[op], value)
    return {op: int(value) for op, value in result.items() if value}


def marks(operation, way, reading, ranks):
    names = OPERATIONS[operation]
    calls, timed = by_op(reading.calls), by_op(reading.timed)
    expected = CAPTURED_CALLS.get(way, 2 * CALLS)
    launched = 2 * CALLS * ranks
    return "".join((
        "C" if all(calls.get(name, 0) >= expected for name in names) else "c" if calls else "-",
        "L" if reading.launches >= launched else "l" if reading.launches > 0 else "-",
        "E" if reading.launches > 0 and reading.in_flight == 0 else "-",
        "T" if any(timed.get(name) for name in names) else "t" if timed else "-",
    )), {"calls": calls, "launches": int(reading.launches), "in_flight": int(reading.in_flight),
         "timed": timed}


def hang_mark(page, way):
    """(mark, what is said)"""
    ids = {found["comm"] for found, _ in page.select("nccl_communicator_info", comm_name=way)}
    said = [found for found, _ in page.select("nccl_hang_start_timestamp_seconds") if found["comm"] in ids]
    if said:
        # Rank 0 alone has called.
        right = all(found.get("suspect_rank", "0") != "0" for found in said)
        return "H" if right else "h", sorted({found["verdict"] for found in said})
    unknown = counts(page, "nccl_state_unknown", way, "reason")
    return ("?", sorted({reason for _, reason in unknown})) if unknown else ("-", [])


def events(job, name):
    return [sum(event["event"] == name for event in list(rank.events)) for rank in job.ranks]


def wait_events(job, name, times, seconds, ranks=None):
    def done():
        for rank in job.ranks:
            error = rank.event("error")
            if error:
                raise Broken(error["way"], error["text"])
        return all(found >= times for found in events(job, name)[:ranks])
    job.wait(name, seconds, done)


def tell(job, task, ranks=None):
    for rank in job.ranks[:ranks]:
        rank.tell(task)


def observe(job, operation, ways):
    """{way: (marks, what was on the page)}"""
    wait_events(job, "ready", 1, inject_job.START_S)
    first = wait_page(job)
    for times in (1, 2):
        tell(job, "call %d" % CALLS)
        wait_events(job, "called", times, 30)
        job.options.limit.sleep(PAUSE_S)
    found, until = None, time.monotonic() + LOOK_S
    while time.monotonic() < until:
        page, before = wait_page(job), found
        captured = {way: way in CAPTURED_CALLS for way in ways}
        found = {way: marks(operation, way,
                            Reading(page, way).since(Reading(first, way), captured[way]),
                            job.options.gpus) for way in ways}
        if found == before:  # nothing more comes
            break
        job.options.limit.sleep(0.4)
    job.keep("page.txt", job.endpoint.get("/metrics"))

    tell(job, "hang", 1)
    until = time.monotonic() + HANG_AFTER_S + LOOK_S
    hangs = {}
    while time.monotonic() < until and any(hangs.get(way, "-")[0] != "H" for way in ways):
        job.options.limit.sleep(0.4)
        page = wait_page(job)
        hangs = {way: hang_mark(page, way) for way in ways}
    job.keep("page-hang.txt", job.endpoint.get("/metrics"))
    job.keep("communicators-hang.json", json.dumps(job.endpoint.communicators(), indent=1))
    for way, (mark, said) in hangs.items():
        found[way][1]["hang"] = said
        found[way] = found[way][0] + mark, found[way][1]
    return found


def run_operation(options, arguments, operation):
    """{way: (cell, what was on the page, or what went wrong)}"""
    ways, cells = list(arguments.ways), {}
    while ways:
        name = "%s %d" % (operation.replace(",", "").replace(" ", "-"), len(ways))
        try:
            with inject_job.Job(options, name, arguments.program, False,
                                ["--operation=" + operation, "--ways=" + ",".join(ways)]) as job:
                try:
                    cells.update(observe(job, operation, ways))
                finally:
                    told = job.ranks[0].event("loaded")
                    if told:
                        options.version = nccl_versions.text(told["nccl"])
            return cells
        except Broken as error:
            broken = error.way if error.way in ways else None
            print("  %s: %s" % (error.way, error), flush=True)
            for way in [broken] if broken else ways:
                cells[way] = "failed", {"error": str(error)}
            ways = [way for way in ways if broken and way != broken]
        except inject_job.Failure as error:
            print("  %s" % error, flush=True)
            cells.update({way: ("no answer", {"error": str(error)}) for way in ways})
            ways = []
    return cells


class Table:
    def __init__(self, out):
        self.out = out
        self.versions = []
        self.cells = {}  # (operation, way, version) -> cell
        self.notes = []

    def add(self, version, operation, cells):
        if version not in self.versions:
            self.versions.append(version)
        with open(os.path.join(self.out, "results.jsonl"), "a", encoding="utf-8") as file:
            for way, (cell, found) in cells.items():
                row = {"nccl": version, "operation": operation, "way": way, "cell": cell}
                file.write(json.dumps(dict(row, **found)) + "\n")
                if "error" in found:
                    self.notes.append("%s, %s, NCCL %s: %s" % (operation, way, version, found["error"]))
                    cell += " (%d)" % len(self.notes)
                self.cells[operation, way, version] = cell
        self.write()

    def write(self):
        lines = ["| operation | way |" + "".join(" %s |" % each for each in self.versions),
                 "|---|---|" + "---|" * len(self.versions)]
        rows = dict.fromkeys((operation, way) for operation, way, _ in self.cells)
        for operation, way in rows:
            cells = [self.cells.get((operation, way, version), "") for version in self.versions]
            shown = ["`%s`" % " ".join(cell) if cell.isprintable() and len(cell) == 5 else cell for cell in cells]
            lines.append("| %s | %s |%s" % (operation, way, "".join(" %s |" % c for c in shown)))
        lines += ["", LEGEND.rstrip()]
        lines += [""] * bool(self.notes)
        lines += ["%d. %s" % (number, note) for number, note in enumerate(self.notes, 1)]
        text = "\n".join(lines) + "\n"
        with open(os.path.join(self.out, "visibility.md"), "w", encoding="utf-8") as file:
            file.write(text)
        return text

    def wrong(self):
        return any(len(cell) != 5 for cell in self.cells.values())


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("binaries")
    parser.add_argument("out")
    parser.add_argument("library", nargs="+")
    parser.add_argument("--gpus", type=int, default=2, help="that take part, a rank on each")
    parser.add_argument("--budget", type=float, default=230, help="seconds for each library")
    parser.add_argument("--operations", default=";".join(OPERATIONS))
    parser.add_argument("--ways", default=",".join(WAYS))
    arguments = parser.parse_args()
    arguments.operations = arguments.operations.split(";")
    arguments.ways = arguments.ways.split(",")
    for name, chosen, known in (("--operations", arguments.operations, OPERATIONS), ("--ways", arguments.ways, WAYS)):
        if not set(chosen) <= set(known):
            parser.error("%s takes some of %s" % (name, ", ".join(known)))
    arguments.ports = inject_job.Ports()
    return arguments


def run_library(arguments, table, library, work):
    os.environ.update(library.environment(), NCCL_PULSE_TIMED_LAUNCHES_PER_SECOND="100000")
    out = os.path.join(work, library.version)
    options = Options(arguments, library, out, time.monotonic() + arguments.budget)
    os.makedirs(out)
    for operation in arguments.operations:
        options.version = library.version
        begin = time.monotonic()
        if options.limit.left() < LEAST_S:
            cells = {way: ("no time", {}) for way in arguments.ways}
        else:
            cells = run_operation(options, arguments, operation)
        if options.version != library.version:
            cells = {way: ("ran " + options.version, {}) for way in cells}
        table.add(library.version, operation, cells)
        print("NCCL %s, %s: %s, %.0f s" %
              (library.version, operation,
               ", ".join("%s %s" % (way, cell) for way, (cell, _) in cells.items()),
               time.monotonic() - begin), flush=True)
    with tarfile.open(os.path.join(arguments.out, "logs-%s.tar" % library.version), "w") as tar:
        tar.add(out, library.version)


def main():
    arguments = parse_options()
    os.makedirs(arguments.out, exist_ok=True)
    table = Table(arguments.out)
    with tempfile.TemporaryDirectory(prefix="pulse-visibility-", dir="/tmp") as work:
        # A copy: the folder may be mounted without permission to execute.
        arguments.program = os.path.join(work, "visibility_program")
        with open(os.path.join(arguments.binaries, "visibility_program"), "rb") as program, \
                open(arguments.program, "wb") as copy:
            copy.write(program.read())
        os.chmod(arguments.program, 0o755)
        try:
            own = run_versions.own_folders()
            libraries = [run_versions.Library(argument, own, work) for argument in arguments.library]
        except run_versions.BadLibrary as error:
            print("visibility.py: %s" % error, file=sys.stderr)
            return 2
        for library in libraries:
            run_library(arguments, table, library, work)
    print(table.write())
    return 1 if table.wrong() or not table.cells else 0


if __name__ == "__main__":
    sys.exit(main())
