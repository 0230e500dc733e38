"""What a fleet costs a Prometheus: a made-up job of 1,000 ranks behind real endpoints, scraped by a real
Prometheus with the rules and the configuration of docs/scale.md.

    ./bazelw run -c opt //bench:fleet_simulation -- --ranks=1000 --minutes=5

Prints tables in Markdown: what was measured, of --ranks and of a quarter of them, with classic and
with native histograms; what each group of rules costs, and the dearest rules; and what that is for --gpus. All on
loopback; ends by itself, and leaves nothing behind. Exit status 1: something was wrong with what was measured; the tables say what.
"""

import argparse
import dataclasses
import json
import os
import platform
import re
import signal
import subprocess
import sys

from bench.fleet import extrapolation, measurement, report
from bench.fleet.files import NEWER_PROMETHEUS


def _positive(least, most):
    def parse(text):
        value = float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError("%s is not between %g and %g" % (text, least, most))
        return value
    return parse


def parse(arguments):
    parser = argparse.ArgumentParser(prog="fleet_simulation")
    parser.add_argument("--ranks", type=_positive(measurement.GPUS_PER_NODE, 8000), default=1000,
                        help="eight on each node, rounded down (default 1000)")
    parser.add_argument("--fewer-ranks", type=_positive(0, 8000),
                        help="of the second fleet (default: a quarter of --ranks, in groups of five "
                             "nodes: the same pipeline stages; 0: none)")
    parser.add_argument("--minutes", type=_positive(0.01, 120), default=5,
                        help="that each run is measured for, once it is warm (default 5)")
    parser.add_argument("--formats", default=",".join(measurement.FORMATS),
                        help="of classic, native (default both)")
    parser.add_argument("--communicators", type=_positive(1, 8), default=4,
                        help="of a rank, two operations on each (default 4)")
    parser.add_argument("--sharded", action="store_true",
                        help="a job of collectives alone: without Send and Recv all ranks can be compared")
    parser.add_argument("--prometheus",
                        default=NEWER_PROMETHEUS if os.path.exists(NEWER_PROMETHEUS) else "prometheus",
                        help="the program (default: the Prometheus 3 that the tests use; else that of PATH)")
    parser.add_argument("--gpus", default="16000,100000",
                        help="of the fleets to extrapolate to (default 16000,100000)")
    parser.add_argument("--server-gib", type=_positive(1, 4096), default=64,
                        help="memory of a Prometheus server there (default 64)")
    parser.add_argument("--faster", type=_positive(1, 15), default=1,
                        help="scrapes and evaluations follow each other so many times faster than "
                             "docs/scale.md says (default 1)")
    parser.add_argument("--json", help="a file for the figures")
    options = parser.parse_args(arguments)
    options.formats = options.formats.split(",")
    if not re.fullmatch(r"[1-9]\d{0,6}(,[1-9]\d{0,6})*", options.gpus):
        parser.error("--gpus is not a list of numbers")
    options.gpus = [int(gpus) for gpus in options.gpus.split(",")]
    if not set(options.formats) <= set(measurement.FORMATS):
        parser.error("--formats is not a list of " + ", ".join(measurement.FORMATS))
    options.ranks = _whole_nodes(options.ranks)
    if options.fewer_ranks is None:
        group = 5 * measurement.GPUS_PER_NODE
        options.fewer_ranks = options.ranks // 4 // group * group or options.ranks / 4
    options.fewer_ranks = _whole_nodes(options.fewer_ranks)
    if options.fewer_ranks >= options.ranks:
        parser.error("--fewer-ranks is not less than --ranks")
    return options


def _whole_nodes(ranks):
    return int(ranks) // measurement.GPUS_PER_NODE * measurement.GPUS_PER_NODE


def machine(prometheus):
    with open("/proc/cpuinfo", encoding="ascii") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    version = subprocess.run([prometheus, "--version"], check=True, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    return "Prometheus %s; %d x %s, %.0f GiB; load average %.1f at the start" % (
        re.search(r"version (\S+)", version).group(1), os.cpu_count(),
        model.group(1) if model else platform.machine(),
        os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, os.getloadavg()[0])


def main(arguments):
    options = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("fleet_simulation: ended by a signal"))
    print(machine(options.prometheus) + "\n", flush=True)
    fleets = [ranks for ranks in (options.fewer_ranks, options.ranks) if ranks]
    runs, extrapolated = [], []
    try:
        for format_ in options.formats:
            of_format = []
            for ranks in fleets:
                of_format.append(measurement.measure(
                    format_, ranks, 60 * options.minutes, int(options.communicators), options.faster,
                    options.prometheus, options.sharded))
                runs.append(of_format[-1])
            if len(fleets) == 2:
                extrapolated += [extrapolation.extrapolate(*of_format, gpus, options.server_gib * 2**30)
                                 for gpus in options.gpus]
    finally:  # What is there is there, even if a run fails.
        write(options, runs, extrapolated)
    problems = ["%s, %d ranks: %s" % (run.format, run.ranks, problem)
                for run in runs for problem in run.problems]
    for problem in problems:
        print("WRONG: " + problem)
    return 1 if problems else 0


def write(options, runs, extrapolated):
    if runs:
        print(report.measured(runs))
        print(report.rules([run for run in runs if run.ranks == options.ranks]))
    if extrapolated:
        print(report.extrapolated(extrapolated, options.server_gib * 2**30))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"runs": [dataclasses.asdict(run) for run in runs],
                       "extrapolated": [dataclasses.asdict(fleet) for fleet in extrapolated]},
                      file, indent=1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
