#!/usr/bin/env python3
"""Stamps in CUDA graphs on two real GPUs: every replay counted, and nothing of the application broken.

    nvcc -O2 -std=c++17 -rdc=true -arch=native -o stamps tests/gpu/stamps.cu -lnccl -lcudadevrt
    tests/gpu/stamps.py --plugin ./libnccl-profiler-pulse.so ./stamps [replays [captures]]

Prints a line for each phase and rank: what the program counted, what the endpoint says; and for each
phase in which replays stand, the verdict: absent (rank 0 launches no replay, rank 1 one or ten), behind
(rank 0's GPU does not come to a stamp that rank 1's passes), together (both stand between two stamps, and
nobody may be named). In the phase late rank 0 comes late into one call of each replay: it must be the straggler.
The same with
NCCL_PULSE_GRAPHS=off (--graphs off) shows what the program does without stamps; with NCCL_GRAPH_MIXING_SUPPORT=0
there are two phases more, of a conditional body and of device launch. Exit status 1 when a phase failed
or a count is wrong.
"""

import argparse
import os
import subprocess
import sys
import threading
import time

import endpoint

PORT = 9477
HANG_SECONDS = 4
# By phase: the verdict, whom it names, and the replays in flight of each rank.
STANDING = {"absent": ("rank_not_begun", [0], (0, 1)),
            "behind": ("rank_not_begun", [0], (1, 1)),
            "together": ("no_progress", [], (1, 1))}


def sums(name):
    """The metric by rank, over all else."""
    return {int(rank): value for (rank,), value in endpoint.metrics(PORT).sums(name, ("rank",)).items()}


def durations():
    """What pairs of stamps said of launches: (rank, op, size) -> (count, mean in microseconds)."""
    page, by = endpoint.metrics(PORT), ("rank", "op", "size")
    seconds = page.sums("nccl_operation_duration_seconds_sum", by, timing="graph")
    return {key: (int(count), round(seconds[key] / count * 1e6, 2)) for key, count in
            page.sums("nccl_operation_duration_seconds_count", by, timing="graph").items()}


def verdicts():
    return [comm["hang"] for comm in endpoint.communicators(PORT) if comm["hang"]]


class Stragglers(threading.Thread):
    """Looks twice a second, as somebody does who has the page open. Ranks that were called stragglers."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen = set()
        self.texts = []

    def run(self):
        while True:
            time.sleep(0.5)
            try:
                comms = endpoint.communicators(PORT)
            except OSError:
                continue  # not there yet, or gone
            for comm in comms:
                if comm["straggler"]:
                    self.seen.add(comm["straggler"]["rank"])
                    self.texts = [comm["straggler"]["text"]]

    def take(self):
        seen, texts = self.seen, self.texts
        self.seen, self.texts = set(), []
        return seen, texts


def captures():
    return sorted((labels["fate"], value)
                  for labels, value in endpoint.metrics(PORT).select("nccl_pulse_graph_captures_total"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--graphs", default="auto")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    environment = dict(os.environ, NCCL_PROFILER_PLUGIN=os.path.abspath(options.plugin),
                       NCCL_PULSE_GRAPHS=options.graphs, NCCL_PULSE_LOG_LEVEL="info",
                       NCCL_PULSE_HANG_SECONDS=str(HANG_SECONDS),
                       NCCL_PULSE_LISTEN="127.0.0.1:%d" % PORT)
    program = subprocess.Popen(options.command, env=environment, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    failed = 0
    facts = []  # (what is claimed, whether it is right), as of the other scripts
    lines = []
    stragglers = Stragglers()
    stragglers.start()
    for line in program.stdout:
        if line != "look\n":
            lines.append(line.split(None, 4))
            continue
        replays, operations = sums("nccl_graph_replays_total"), sums("nccl_graph_operations_total")
        in_flight = sums("nccl_graph_inflight_replays")
        late, texts = stragglers.take()
        if lines and lines[0][0] == "late":
            wrong = options.graphs == "auto" and late != {0}
            failed += wrong
            facts.append(("straggler in replays, rank 0: names %s" % sorted(late), not wrong))
            print("late      stragglers %s %s%s" % (sorted(late), texts, "  WRONG" if wrong else ""), flush=True)
        hangs = verdicts()
        named = [(hang["verdict"], hang["suspects"]) for hang in hangs]
        expected_hangs = [STANDING[lines[0][0]][:2]] if lines and lines[0][0] in STANDING else []
        if named != expected_hangs and options.graphs == "auto":
            failed += 1
            print("%-9s verdicts %s instead of %s  WRONG" % (lines[0][0], named, expected_hangs))
        if expected_hangs:
            facts.append(("hang in a replay, %s: %s" % (lines[0][0], named), named == expected_hangs))
        elif lines and options.graphs == "auto":
            facts.append(("replays, %s: nobody named, %s" % (lines[0][0], named), not named))
        for hang in hangs:
            print("%-9s %s: %s %s" % (lines[0][0], hang["verdict"], hang["text"], hang["replay"]), flush=True)
        for phase, rank, expected_replays, expected_operations, error in sorted(lines):
            counts = (int(expected_replays), int(expected_operations))
            seen = (replays.get(int(rank), 0), operations.get(int(rank), 0))
            standing = in_flight.get(int(rank), 0)
            wrong = options.graphs == "auto" and (
                counts != seen or standing != STANDING.get(phase, (0, 0, (0, 0)))[2][int(rank)])
            failed += wrong or error.strip() != "ok"
            print("%-9s rank %s: program %d replays, %d operations; endpoint %d, %d, in flight %d; %s%s"
                  % (phase, rank, *counts, *seen, standing, error.strip(), "  WRONG" if wrong else ""),
                  flush=True)
        lines = []
        program.stdin.write("\n")
        if program.poll() is None:
            try:
                last = captures(), durations()
                program.stdin.flush()
            except BrokenPipeError:
                break
    print("captures:", last[0], "durations:", last[1])
    for text, right in facts:
        print("RESULT %s %s" % ("OK" if right else "WRONG", text))
    status = program.wait()
    print("failed: %d, status %d" % (failed, status))
    sys.exit(1 if failed or status else 0)


if __name__ == "__main__":
    main()
