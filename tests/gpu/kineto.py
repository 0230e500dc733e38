#!/usr/bin/env python3
"""Lays `pulse trace` beside PyTorch's profiler (Kineto) for the same seconds of the same DDP run on real GPUs.

    kineto.py --plugin libnccl-profiler-pulse.so --pulse pulse --out FOLDER [--gpus 2] [--seconds 5] [--timing kernel]

Starts kineto_worker.py with torchrun, takes a timeline while its profiler runs, and pairs each timed call with
the NCCL kernel whose launch Kineto saw at the same moment: nothing but the clock says which belong together. Prints, for
each operation and size, how many were paired, the kernels' median duration by Kineto and by NCCL Pulse, the
median and 95th percentile of the difference, and how far the launches are apart; and the median duration of the same
calls before the profiler was on. CUPTI makes each launch of a kernel longer, and with it what lies between two events; what
NCCL Pulse measures without a profiler is compared with the kernels, too. A checkout is needed: the
decoder of traces is in tests/timeline. Exit status 1: nothing was paired, or without the profiler a median differs from the
kernels' by more than 10 us. Python 3.9's standard library and PyTorch.

With --timing kernel all calls are timed by NCCL's own GPU timestamps, and the page has their number and sum by size: held against
number and mean of Kineto's kernels of that size, of the very same calls. Exit status 1: a mean differs by more than 10 us.
"""

import argparse
import bisect
import collections
import json
import os
import re
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))
from tests.gpu import graph_accuracy  # noqa: E402  pylint: disable=wrong-import-position
from tests.timeline import perfetto  # noqa: E402  pylint: disable=wrong-import-position

NEAR_US = 200
MOST_US = 10
PORT = 9484
ELEMENT_BYTES = {"Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Int": 4, "Long": 8, "Byte": 1, "Char": 1}


def kernels(path):
    """[(launched by Kineto's clock, us; name; duration, us)] of NCCL's kernels, by launch."""
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    base_us = int(trace.get("baseTimeNanoseconds", 0)) / 1000
    launches = {event["args"]["correlation"]: event for event in trace["traceEvents"]
                if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
                and "Launch" in event["name"]}
    found = []
    for event in trace["traceEvents"]:
        if event.get("cat") == "kernel" and event["name"].startswith(("ncclDevKernel", "ncclKernel", "ncclSymk")):
            launch = launches.get(event["args"]["correlation"])
            if launch:
                found.append((base_us + launch["ts"] + launch.get("dur", 0), event["name"], event["dur"]))
    return sorted(found)


def timed_calls(path, rank):
    """[(launched, us; (operation, bytes); duration, us)]"""
    with open(path, "rb") as file:
        trace = perfetto.Trace(file.read())
    _, marks = trace.on("calls", "rank %d on " % rank)
    return [(mark.time_ns / 1000, (mark.notes["op"], mark.notes["bytes"]), mark.notes["seconds"] * 1e6)
            for mark in marks if "seconds" in mark.notes]


def pairs(calls, launched):
    """{(operation, bytes): [(kernel us, our us, launch apart us)]}; each kernel once."""
    times = [each[0] for each in launched]
    used, found = set(), collections.defaultdict(list)
    for time_us, what, duration in calls:
        at = bisect.bisect_left(times, time_us)
        near = min((i for i in range(at - 2, at + 2) if 0 <= i < len(times) and i not in used),
                   key=lambda i: abs(times[i] - time_us), default=None)
        if near is not None and abs(times[near] - time_us) < NEAR_US:
            used.add(near)
            found[what].append((launched[near][2], duration, time_us - times[near]))
    return found


def kineto_sizes(path, labels):
    """{size label: (kernels, mean us)}: of NCCL's AllReduce kernels that say how many elements they had."""
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    found = collections.defaultdict(list)
    for event in trace["traceEvents"]:
        args = event.get("args", {})
        if event.get("cat") == "kernel" and "ncclDevKernel_AllReduce" in event["name"] and "In msg nelems" in args:
            size = args["In msg nelems"] * ELEMENT_BYTES[args["dtype"]]
            label = next((each for each in labels if graph_accuracy.order(each) >= size), None)
            found[label].append(event["dur"])
    return {label: (len(each), statistics.fmean(each)) for label, each in found.items()}


def compare_kernels(out, gpus):
    """Prints the table; how many of its rows differ, or all if there is none."""
    pages = []
    for name in ("before", "behind"):
        with open(os.path.join(out, "page-%s.txt" % name), encoding="utf-8") as file:
            pages.append(file.read())
    print("| rank | size | kernels, Kineto | mean, µs | calls, NCCL Pulse | mean, µs | difference, µs |\n|---|---|---|---|---|---|---|")
    wrong, rows = 0, 0
    for rank in range(gpus):
        before, behind = (graph_accuracy.totals(page, rank) for page in pages)
        ours = graph_accuracy.durations([(False, before), (True, behind)]).get("kernel", {})
        labels = sorted(ours, key=graph_accuracy.order)
        theirs = kineto_sizes(os.path.join(out, "kineto-%d.json" % rank), labels)
        for label in labels:
            calls, _, mean = ours[label]
            count, kernels = theirs.get(label, (0, float("nan")))
            rows += 1
            wrong += not abs(mean - kernels) <= MOST_US
            print("| %d | %s | %d | %.1f | %d | %.1f | %+.1f |" % (rank, label, count, kernels, calls, mean, mean - kernels))
    return wrong if rows else 1


def take_trace(options, job, out, mark):
    """The path of a timeline of what runs once all ranks have left the mark."""
    while not all(os.path.exists(os.path.join(out, "%s-%d" % (mark, i))) for i in range(options.gpus)):
        if job.poll() is not None:
            sys.exit("kineto.py: the workers ended, see worker.txt")
        time.sleep(0.1)
    time.sleep(1)  # the profiler starts
    path = os.path.join(out, mark + ".pftrace")
    done = subprocess.run([options.pulse, "trace", "--duration=%gs" % options.seconds, "--out=" + path,
                           "--endpoint=127.0.0.1:%d" % PORT],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout, flush=True)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--pulse", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--timing", choices=("auto", "kernel"), default="auto")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    out = os.path.abspath(options.out)
    environment = dict(os.environ, NCCL_PROFILER_PLUGIN=os.path.abspath(options.plugin),
                       NCCL_PULSE_LISTEN="127.0.0.1:%d" % PORT, NCCL_NVLS_ENABLE="0", NCCL_PULSE_TIMING=options.timing)
    with open(os.path.join(out, "worker.txt"), "w", encoding="utf-8") as log:
        job = subprocess.Popen(["torchrun", "--nproc-per-node=%d" % options.gpus, "--master-port=29577",
                                os.path.join(HERE, "kineto_worker.py"), out, str(options.seconds + 1.5)],
                               env=environment, stdout=log, stderr=log)
        traces = [take_trace(options, job, out, mark) for mark in ("begun", "profiled") if options.timing == "auto"]
        job.wait(timeout=120)
    if options.timing == "kernel":
        wrong = compare_kernels(out, options.gpus)
        print("RESULT %s" % ("WRONG" if wrong else "OK"))
        return 1 if wrong else 0
    wrong, any_pair = 0, False
    print("| rank | operation | bytes | pairs | Kineto, µs | NCCL Pulse, µs | difference, median | 95 % below | launch apart, median "
          "| 95 % below | NCCL Pulse without the profiler, µs |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for rank in range(options.gpus):
        launched = kernels(os.path.join(out, "kineto-%d.json" % rank))
        alone = collections.defaultdict(list)
        for _, what, duration in timed_calls(traces[0], rank):
            alone[what].append(duration)
        calls = timed_calls(traces[1], rank)
        found = pairs(calls, launched)
        print("rank %d: %d NCCL kernels by Kineto, %d timed calls of ours, names %s" % (
            rank, len(launched), len(calls), dict(collections.Counter(re.sub(r"\(.*", "", each[1]) for each in launched))),
            file=sys.stderr)
        for (op, size), rows in sorted(found.items(), key=lambda each: each[0][1]):
            any_pair = True
            differences = [ours - kernel for kernel, ours, _ in rows]
            apart = sorted(abs(each[2]) for each in rows)
            middle = statistics.median(differences)
            without = statistics.median(alone[op, size]) if alone[op, size] else None
            wrong += without is not None and abs(without - statistics.median(each[0] for each in rows)) > MOST_US
            print("| %d | %s | %d | %d | %.1f | %.1f | %+.1f | %.1f | %+.1f | %.1f | %s |" % (
                rank, op, size, len(rows), statistics.median(each[0] for each in rows),
                statistics.median(each[1] for each in rows), middle,
                sorted(map(abs, differences))[int(0.95 * (len(rows) - 1))],
                statistics.median(each[2] for each in rows), apart[int(0.95 * (len(apart) - 1))],
                "%.1f" % without if without is not None else ""))
    print("RESULT %s" % ("OK" if any_pair and not wrong else "WRONG"))
    return 0 if any_pair and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
