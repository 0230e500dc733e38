#!/usr/bin/env python3
"""Proves on real GPUs what the plugin says of time: one part of it for each command.

    prove.py accuracy  --library ... --program proof_program --out FOLDER [--compare stream,kernel]
    prove.py straggler --library ... --program proof_program --out FOLDER
    prove.py coverage  --library ... --program proof_program --out FOLDER
    prove.py capture   --library ... --program proof_program --out FOLDER

accuracy   The same AllReduces, once for each of two timings, in processes of their own because a
           process has one setting. All ranks' GPUs begin each operation together, behind another
           collective on the same stream, so launching and waiting for late ranks is in neither.
           Compared are mean and median of the durations on the page, all ranks together; the median
           is interpolated within its bucket (a factor of two), the mean is exact. `loop` is what an
           operation takes back to back by the host's clock: where it differs between the two runs,
           the timing itself changed the speed of NCCL. Timings: stream, kernel, network.
straggler  The last rank calls late by a known time: the others' durations grow by that time, its
           own do not.
coverage   Under load, all ranks time the same calls; every launch completes and every operation has
           a duration or a reason.
capture    Graphs captured in global mode while a collective is in flight and the plugin's thread
           looks at it: none may be invalidated, and what they compute must be right.

Each prints lines "RESULT OK|WRONG <part>: <fact>", and ends all it started within --limit seconds.
Exit status: 0 all OK; 1 not. Python 3.9's standard library alone, and prove_*.py and check_*.py beside it.
"""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# Beside this file.
import check_rank  # noqa: E402
from prove_accuracy import accuracy, straggler  # noqa: E402
from prove_coverage import coverage  # noqa: E402
from prove_capture import capture  # noqa: E402
from prove_job import Results, TIMINGS  # noqa: E402

PARTS = {"accuracy": accuracy, "straggler": straggler, "coverage": coverage, "capture": capture}
SIZES = {"accuracy": [64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 128 << 20,
                      256 << 20],
         "coverage": [64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20]}


def parse_options():
    parser = check_rank.make_parser(__doc__.split("\n", 1)[0], ("nvlink", "network"))
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("--compare", default="stream,kernel", metavar="ONE,OTHER", help="two of " + ", ".join(TIMINGS))
    parser.add_argument("--sizes", default="", help="bytes, with commas between")
    parser.add_argument("--repeats", type=int, default=0, help="calls of each size or delay")
    parser.add_argument("--seconds", type=float, default=5, help="of load, for coverage")
    parser.add_argument("--rounds", type=int, default=20, help="captures, for capture")
    parser.add_argument("--limit", type=float, default=100, help="seconds for all of it")
    options = parser.parse_args()
    options.sizes = ([int(size) for size in options.sizes.split(",")] if options.sizes
                     else SIZES.get(options.part, [64]))
    options.repeats = options.repeats or (200 if options.part == "accuracy" else 60)
    compared = options.compare.split(",")
    if len(compared) != 2 or not set(compared) <= set(TIMINGS):
        parser.error("--compare takes two of " + ", ".join(TIMINGS))
    options.deadline = time.monotonic() + options.limit
    return options


def main():
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("prove.py: terminated"))
    os.makedirs(options.out, exist_ok=True)
    results = Results(options.part)
    try:
        PARTS[options.part](options, results)
    except (check_rank.Failure, OSError, ValueError) as failure:
        results.fact(False, "did not finish: %s" % failure)
    return 1 if results.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
