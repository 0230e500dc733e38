"""The options that inject.py, inject_nodes.py and node_load.py have in common."""

import argparse
import concurrent.futures
import os
import signal

from inject_job import Limit, Ports


def make_parser(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--library", required=True, help="the plugin")
    parser.add_argument("--program", required=True, help="inject_program")
    parser.add_argument("--pulse", required=True, help="the program pulse")
    parser.add_argument("--libraries", default="", help="folders of libnccl and libcudart, with colons between")
    parser.add_argument("--gpus", type=int, default=2, help="one rank each")
    parser.add_argument("--parallel", type=int, default=4, help="jobs at a time")
    parser.add_argument("--hang-after", type=float, default=10, help="seconds")
    parser.add_argument("--run-in", type=float, default=3, help="seconds before a fault")
    parser.add_argument("--budget", type=float, default=280, help="seconds for all of it")
    parser.add_argument("--captures", action="store_true",
                        help="agents take captures of their own; where an agent serves the page, the first one of a "
                        "hang must name whom the page names, and torchfrtrace reads the calls")
    parser.add_argument("--out", required=True, help="folder for results, logs and pages")
    return parser


def parse(parser, cases=()):
    """`cases`: those that there are."""
    options = parser.parse_args()
    options.cases = [name for name in getattr(options, "cases", "").split(",") if name]
    unknown = set(options.cases) - set(cases)
    if unknown:
        parser.error("no case " + ", ".join(sorted(unknown)))
    options.pulse = os.path.abspath(options.pulse)
    options.out = os.path.abspath(options.out)
    options.limit = Limit(options.budget)
    options.ports = Ports()
    os.makedirs(options.out, exist_ok=True)

    def end(*_):
        # In the main thread; the jobs' blocks end what they started.
        options.limit.over.set()
        raise SystemExit(parser.prog + ": terminated")
    signal.signal(signal.SIGTERM, end)
    return options


def for_each(options, runs, function):
    """Calls it with each of the tuples, --parallel at a time."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=options.parallel) as pool:
        for future in [pool.submit(function, *run) for run in runs]:
            future.result()
