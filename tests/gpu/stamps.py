#!/usr/bin/env python3
"""Counts replays of CUDA graphs of all kinds by stamps, on two real GPUs, and checks that nothing of the application breaks.

    nvcc -O2 -std=c++17 -rdc=true -arch=native -o stamps tests/gpu/stamps.cu -lnccl -lcudadevrt
    tests/gpu/stamps.py --plugin ./libnccl-profiler-pulse.so ./stamps [replays [captures]]

Prints a line for each phase and rank with the counts of the program and of the endpoint. NCCL_PULSE_GRAPHS=off
(--graphs off) shows what the program does without stamps; with NCCL_GRAPH_MIXING_SUPPORT=0 there are two phases more, of
a conditional body and of device launch. Exit status 1 when a phase failed or a count is wrong. Hangs and stragglers
within replays: inject_graphs.py.
"""

import argparse
import os
import subprocess
import sys

import endpoint

PORT = 9477


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
    captures = []
    for line in program.stdout:
        if line != "look\n":
            lines.append(line.split(None, 4))
            continue
        page = endpoint.metrics(PORT)
        replays, operations = (page.sums(name, ("rank",)) for name in
                               ("nccl_graph_replays_total", "nccl_graph_operations_total"))
        captures = sorted((labels["fate"], value) for labels, value in page.select("nccl_pulse_graph_captures_total"))
        for phase, rank, made_replays, made_operations, error in sorted(lines):
            made = (int(made_replays), int(made_operations))
            seen = (replays.get((rank,), 0), operations.get((rank,), 0))
            wrong = options.graphs == "auto" and made != seen or error.strip() != "ok"
            failed += wrong
            print("RESULT %s replays, %s: rank %s: program %d replays, %d operations; endpoint %d, %d; %s"
                  % ("WRONG" if wrong else "OK", phase, rank, *made, *seen, error.strip()), flush=True)
        lines = []
        try:
            program.stdin.write("\n")
            program.stdin.flush()
        except BrokenPipeError:
            break
    status = program.wait()
    print("captures:", captures, "failed: %d, status %d" % (failed, status))
    sys.exit(1 if failed or status else 0)


if __name__ == "__main__":
    main()
