#!/usr/bin/env python3
"""Stamps in CUDA graphs on two real GPUs: every replay counted, and nothing of the application broken.

    nvcc -O2 -std=c++17 -rdc=true -arch=native -o stamps tests/gpu/stamps.cu -lnccl -lcudadevrt
    tests/gpu/stamps.py --plugin ./libnccl-profiler-pulse.so ./stamps [replays [captures]]

Prints a line for each phase and rank: what the program counted, what the endpoint says. The same with
NCCL_PULSE_GRAPHS=off (--graphs off) shows what the program does without stamps; with NCCL_GRAPH_MIXING_SUPPORT=0
there are two phases more, of a conditional body and of device launch. Exit status 1 when a phase failed
or a count is wrong.
"""

import argparse
import os
import re
import subprocess
import sys
import urllib.request

PORT = 9477


def sums(name):
    """The metric by rank, over all else."""
    page = urllib.request.urlopen("http://127.0.0.1:%d/metrics" % PORT, timeout=10).read().decode()
    totals = {}
    for labels, value in re.findall(r"^%s\{([^}]*)\} (\S+)$" % name, page, re.M):
        rank = int(re.search(r'\brank="(\d+)"', labels).group(1))
        totals[rank] = totals.get(rank, 0) + float(value)
    return totals


def durations():
    """What pairs of stamps said of launches: (rank, op, size) -> (count, mean in microseconds)."""
    page = urllib.request.urlopen("http://127.0.0.1:%d/metrics" % PORT, timeout=10).read().decode()
    values = {}
    for what, labels, value in re.findall(
            r'^nccl_operation_duration_seconds_(count|sum)\{([^}]*timing="graph"[^}]*)\} (\S+)$', page, re.M):
        key = tuple(re.search(r'\b%s="([^"]*)"' % name, labels).group(1) for name in ("rank", "op", "size"))
        values.setdefault(key, {})[what] = float(value)
    return {key: (int(value["count"]), round(value["sum"] / value["count"] * 1e6, 2))
            for key, value in values.items()}


def captures():
    page = urllib.request.urlopen("http://127.0.0.1:%d/metrics" % PORT, timeout=10).read().decode()
    return sorted(re.findall(r'nccl_pulse_graph_captures_total\{[^}]*fate="(\w+)"[^}]*\} (\S+)', page))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--graphs", default="auto")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    environment = dict(os.environ, NCCL_PROFILER_PLUGIN=os.path.abspath(options.plugin),
                       NCCL_PULSE_GRAPHS=options.graphs, NCCL_PULSE_LOG_LEVEL="info",
                       NCCL_PULSE_LISTEN="127.0.0.1:%d" % PORT)
    program = subprocess.Popen(options.command, env=environment, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    failed = 0
    lines = []
    for line in program.stdout:
        if line != "look\n":
            lines.append(line.split(None, 4))
            continue
        replays, operations = sums("nccl_graph_replays_total"), sums("nccl_graph_operations_total")
        in_flight = sums("nccl_graph_inflight_replays")
        for phase, rank, expected_replays, expected_operations, error in sorted(lines):
            counts = (int(expected_replays), int(expected_operations))
            seen = (replays.get(int(rank), 0), operations.get(int(rank), 0))
            standing = in_flight.get(int(rank), 0)
            wrong = options.graphs == "auto" and (
                counts != seen or standing != (1 if phase == "hang" else 0))
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
    status = program.wait()
    print("failed: %d, status %d" % (failed, status))
    sys.exit(1 if failed or status else 0)


if __name__ == "__main__":
    main()
