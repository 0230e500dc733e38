#!/usr/bin/env python3
"""Runs an NCCL program with the plugin and holds /metrics against the calls that it made.

    check.py --library libnccl-profiler-pulse.so --program nccl_program --ranks 2 --gpus 2
             --mode nvlink --timing auto --out FOLDER

The ranks stop after each phase and say what they have called so far; then their pages are compared,
series by series, in both directions: a series too many is a difference, too. Beside that the pages
are read five times a second all the time, must always parse, and no counter may step back.

Modes  nvlink      one GPU for each rank, and whatever NCCL chooses
       network     one GPU for each rank, and everything through sockets, so that there are ProxyOps
       shared-gpu  several ranks on a GPU: each claims to be a node of its own; sockets, too

The program is nccl_program or a Python file that talks in the same way (ddp.py). Exit status: 0 all
equal; 1 a difference, a crash, or a rank that does not answer. Python 3.9's standard library alone.
"""

import math
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# Beside this file.
import nccl_versions  # noqa: E402
from check_calls import show  # noqa: E402
from check_compare import compare  # noqa: E402
from check_rank import ANSWER_S, SCRAPE_PERIOD_S, Failure, Ranks, make_parser  # noqa: E402

PROGRAM_PHASES = "collectives,p2p,group,split,recreate,nonblocking,graph,threads,broadcast,exit"
PYTHON_PHASES = "explicit,ddp,fsdp,destroy"

# The last operations are settled a second after their last sign of life, and pages are rendered
# four times a second.
SETTLE_S = 60  # for a broken build to end; a slow machine is no failure
SETTLE_KERNEL_S = 3  # what is still open then may have lost its events
EXIT_S = 60


def gpus_of_machine():
    """[{UUID, pci_bus_id}] by index; empty without a driver."""
    try:
        command = ["nvidia-smi", "--query-gpu=uuid,pci.bus_id", "--format=csv,noheader"]
        text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              check=True, timeout=30, text=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [dict(zip(("UUID", "pci_bus_id"), map(str.strip, line.split(",")))) for line in text.splitlines()]


class Run(Ranks):
    def __init__(self, options):
        super().__init__(options)
        self.gpus = gpus_of_machine()
        self.rows = []
        self.differences = []
        self.last_notes = {}

    def phase(self, phase):
        begin = time.monotonic()
        reports = self.report(phase, self.options.phase_timeout)
        reported = time.monotonic()
        while True:
            pages = self.scrape()
            comparisons = compare(self.ranks, pages, reports, self.options, self.gpus)
            settled = time.monotonic()
            wrong = [line for comparison in comparisons for line in comparison.wrong]
            # Once something differs it will differ in the phases that follow, too.
            patience = 2 if self.differences else self.options.settle
            still_open = any(comparison.open for comparison in comparisons)
            if not wrong and (not still_open or settled > reported + SETTLE_KERNEL_S):
                break
            if settled > reported + patience:
                break
            time.sleep(SCRAPE_PERIOD_S)
        self.keep(phase, comparisons, reported - begin, settled - reported)
        self.notes(phase, pages, reports)
        self.keep_pages("page-" + phase)

    def keep(self, phase, comparisons, ran_s, settled_s):
        print("phase %s: ran %.1f s, pages as expected %.1f s later" % (phase, ran_s, settled_s))
        metrics = {}
        for comparison in comparisons:
            metrics.setdefault(comparison.metric, []).append(comparison)
        for metric, group in metrics.items():
            wrong = [line for comparison in group for line in comparison.wrong]
            series = sum(len(c.expected.keys() | c.found.keys()) for c in group)
            numbers = "%10s" % show(float(sum(c.total(c.found) for c in group)))
            still_open = sum(c.open for c in group)
            note = " (%d open)" % still_open if still_open else ""
            print("  %-46s %5d series, sum %s  %s%s" % (metric, series, numbers, "DIFFERENT" if wrong else "OK", note))
            self.rows.append((phase, metric, series, not wrong))
            for line in wrong[:8]:
                print("      " + line)
            self.differences += ["%s: %s" % (phase, line) for line in wrong]
        sys.stdout.flush()

    def notes(self, phase, pages, reports):
        """What is not compared, but worth a look."""
        for rank, page, report in zip(self.ranks, pages, reports):
            if "note" in report:
                print("  note rank%d: %s" % (rank.rank, report["note"]))
            if page is None:
                continue
            ignored = page.sums("nccl_pulse_ignored_events_total", ("reason",))
            untrusted = page.sums("nccl_pulse_kernel_timing_untrusted", ("reason",))
            for what, counts in (("ignored events", ignored),
                                 ("communicators without trust in kernel timing", untrusted)):
                text = "%s: %s" % (what, {key[0]: int(value) for key, value in counts.items()})
                if counts and self.last_notes.get((rank.rank, what)) != text:
                    self.last_notes[rank.rank, what] = text
                    print("  note rank%d: %s" % (rank.rank, text))
        if phase == self.options.phases.split(",")[0]:
            print("  note rank0: NCCL %s, %s%s" % (
                nccl_versions.text(reports[0]["nccl"]),
                "torch %s, " % reports[0]["torch"] if "torch" in reports[0] else "",
                "port %d" % self.ranks[0].scraper.port))
            for rank, page in zip(self.ranks, pages):
                for info, _ in page.select("nccl_communicator_info")[:1] if page else ():
                    print("  note rank%d: CUDA device %d, %s" % (rank.rank, rank.gpu, " ".join(
                        "%s=%s" % (name, info.get(name, ""))
                        for name in ("Hostname", "gpu", "UUID", "pci_bus_id"))))

    def finish(self):
        """The end of the run: nobody may crash or hang in it."""
        for rank in self.ranks:
            rank.scraper.stop.set()
        for rank in self.ranks:
            rank.scraper.join(timeout=ANSWER_S)
            rank.go_on()

        deadline = time.monotonic() + EXIT_S
        while any(rank.process.poll() is None for rank in self.ranks):
            if time.monotonic() > deadline:
                hanging = [r.rank for r in self.ranks if r.process.poll() is None]
                raise Failure("ranks %s have not ended within %d s" % (hanging, EXIT_S))
            time.sleep(0.05)
        for rank in self.ranks:
            if rank.process.returncode != 0:
                raise Failure("rank %d ended with status %d" % (rank.rank, rank.process.returncode))

    def check_pages(self):
        for rank in self.ranks:
            scraper = rank.scraper
            print("rank%d: %d pages read, slowest %.0f ms, %d problems" %
                  (rank.rank, scraper.pages, scraper.slowest_s * 1000, len(scraper.problems)))
            self.differences += ["rank%d: %s" % (rank.rank, p) for p in scraper.problems]
            with open(rank.log, encoding="utf-8", errors="replace") as log:
                for line in log:
                    if "NCCL Pulse: " in line and " WARN " in line:
                        print("  note rank%d: %s" % (rank.rank, line.strip()))

    def run(self):
        phases = self.options.phases.split(",")
        try:
            with self:
                for i, phase in enumerate(phases):
                    self.phase(phase)
                    if i + 1 < len(phases):
                        self.go_on()
                self.finish()
                self.check_pages()
        except Failure as failure:
            self.differences.append(str(failure))
            print("FAILED: %s" % failure)


def parse_options():
    parser = make_parser(__doc__.split("\n", 1)[0], ("nvlink", "network", "shared-gpu"))
    parser.add_argument("--timing", choices=("auto", "kernel", "off"), default="auto")
    parser.add_argument("--phases", default="", help="default: all of the program's")
    parser.add_argument("--phase-timeout", type=float, default=120, metavar="SECONDS")
    parser.add_argument("--settle", type=float, default=SETTLE_S, metavar="SECONDS",
                        help="how long pages may take to show what was called")
    options = parser.parse_args()
    options.deadline = math.inf
    if not options.phases:
        options.phases = PYTHON_PHASES if options.program.endswith(".py") else PROGRAM_PHASES
        if options.timing == "kernel":
            # From NCCL 2.29.2 on the kernel reads the work of a group of Broadcasts as a collective's
            # to see whether it is timed (device/common.h, profilerEnabled; 2.30.7).
            options.phases = options.phases.replace("broadcast,", "")
    if options.mode != "shared-gpu" and options.ranks > options.gpus:
        parser.error("more ranks than GPUs need --mode shared-gpu")
    return options


def main():
    options = parse_options()
    # Ends the ranks, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("check.py: terminated"))
    begin = time.monotonic()
    run = Run(options)
    run.run()
    if run.differences:
        print("%d differences, the first of them:" % len(run.differences))
        for line in run.differences[:20]:
            print("  " + line)
    print("RESULT %s: %s, %d ranks, %s, timing %s: %d metrics in %d phases, %d series, %d pages, "
          "%.0f s" % (
              "DIFFERENT" if run.differences else "OK",
              os.path.basename(options.program), options.ranks, options.mode, options.timing,
              len(run.rows), len({row[0] for row in run.rows}), sum(row[2] for row in run.rows),
              sum(rank.scraper.pages for rank in run.ranks), time.monotonic() - begin))
    return 1 if run.differences else 0


if __name__ == "__main__":
    sys.exit(main())
