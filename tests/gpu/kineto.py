#!/usr/bin/env python3
"""Lays `pulse trace` beside PyTorch's profiler (Kineto) for the same seconds of the same DDP run on real GPUs.

    kineto.py --plugin libnccl-profiler-pulse.so --pulse pulse --out FOLDER [--gpus 2] [--seconds 5]

Starts kineto_worker.py with torchrun, takes a timeline while its profiler runs, and pairs each timed call with
the NCCL kernel whose launch Kineto saw at the same moment: nothing but the clock says which belong together. Prints, for
each operation and size, how many were paired, the kernels' median duration by Kineto and by NCCL Pulse, the
median and 95th percentile of the difference, and how far the launches are apart; and the median duration of the same
calls before the profiler was on. CUPTI makes each launch of a kernel longer, and with it what lies between two events; what
NCCL Pulse measures without a profiler is compared with the kernels, too. A checkout is needed: the
decoder of traces is in tests/timeline. Exit status 1: nothing was paired, or without the profiler a median differs from the
kernels' by more than 10 us. Python 3.9's standard library and PyTorch.
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
from tests.timeline import perfetto  # noqa: E402  pylint: disable=wrong-import-position

NEAR_US = 200
PORT = 9484


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


def take_trace(options, job, out, mark):
    """The path of a timeline of what runs once all ranks have left the mark."""
    while not all(os.path.exists(os.path.join(out, "%s-%d" % (mark, i))) for i in range(options.gpus)):
        if job.poll() is not None:
            sys.exit("kineto.py: the workers ended, see worker.txt")
        time.sleep(0.1)
    time.sleep(1)  # the profiler starts
    path = os.path.join(out, mark + ".pftrace")
    done = subprocess.run([options.pulse, "trace", "--seconds=%g" % options.seconds, "--out=" + path,
                           "--endpoint=127.0.0.1:%d" % PORT] + options.trace_option,
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
    parser.add_argument("--trace-option", action="append", default=[], help="of pulse trace, --every=1 for example")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    out = os.path.abspath(options.out)
    environment = dict(os.environ, NCCL_PROFILER_PLUGIN=os.path.abspath(options.plugin),
                       NCCL_PULSE_LISTEN="127.0.0.1:%d" % PORT, NCCL_NVLS_ENABLE="0")
    with open(os.path.join(out, "worker.txt"), "w", encoding="utf-8") as log:
        job = subprocess.Popen(["torchrun", "--nproc-per-node=%d" % options.gpus, "--master-port=29577",
                                os.path.join(HERE, "kineto_worker.py"), out, str(options.seconds + 1.5)],
                               env=environment, stdout=log, stderr=log)
        traces = [take_trace(options, job, out, mark) for mark in ("begun", "profiled")]
        job.wait(timeout=120)
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
            wrong += without is not None and abs(without - statistics.median(each[0] for each in rows)) > 10
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
