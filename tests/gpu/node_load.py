#!/usr/bin/env python3
"""What NCCL Pulse costs a node's processors where every GPU is busy with small collectives: of each
thread of its own, and of the agent; and how large the pages are.

    node_load.py --library libnccl-profiler-pulse.so --program inject_program --pulse pulse
                 --libraries FOLDERS --gpus 8 --out FOLDER [--communicators=16] [--rate=10000]

One process a GPU makes --rate AllReduces of 1 KiB a second on --communicators in turn. The page is scraped
every --scrape seconds, as by one Prometheus. First one of the processes serves it, then an agent. For
--seconds the processor time of the threads that the plugin started is read from /proc: "pulse-..." by name,
per rank, and of the agent. Prints lines of "what value", one for each figure, and "RESULT OK|WRONG":
wrong is what ended, or a page that does not have all ranks. Python 3.9's standard library alone.
"""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import inject_options  # noqa: E402
from endpoint import thread_times  # noqa: E402
from inject_job import Failure, Job, wait_until  # noqa: E402

def processor_times(job):
    """{what: seconds} of all that is NCCL Pulse's."""
    total = {}
    for rank in job.ranks:
        for name, seconds in thread_times(rank.pid).items():
            if name.startswith("pulse"):
                total["ranks' " + name] = total.get("ranks' " + name, 0) + seconds
    if job.agent:
        total["agent"] = sum(thread_times(job.agent.pid).values())
    return total


def measure(options, variant):
    """What is wrong; "" nothing."""
    arguments = ["--load=%d" % options.communicators, "--rate=%d" % options.rate]
    with Job(options, "load-" + variant, os.path.abspath(options.program), variant == "agent", arguments) as job:
        job.wait_running("running")
        wanted = options.communicators * options.gpus
        wait_until(lambda: sum(len(comm["ranks"]) for comm in job.endpoint.communicators() or ()
                               if comm["name"].startswith("load-")) == wanted, 30,
                   "all ranks are on the page")
        begin = time.monotonic()
        before = processor_times(job)
        pages, unanswered = 0, 0
        page = ""
        # One that is not answered is counted; all of them, and nothing was measured.
        while time.monotonic() < begin + options.seconds or (not page and time.monotonic() < begin + 30):
            answer = job.endpoint.get("/metrics")
            page = answer or page
            unanswered += not answer
            pages += 1
            options.limit.sleep(options.scrape)
        took = time.monotonic() - begin
        after = processor_times(job)
        rates = [rank.events[-1].get("calls_per_second", 0) for rank in job.ranks]
        job.keep("page.txt", page)
        print("%s: calls a second and rank %.0f to %.0f" % (variant, min(rates), max(rates)))
        for what in sorted(after):
            each = "" if what == "agent" else ", %.3f %% a rank" % (
                100 * (after[what] - before.get(what, 0)) / took / options.gpus)
            print("%s: %s %.3f %% of a core%s" % (
                variant, what, 100 * (after[what] - before.get(what, 0)) / took, each))
        series = sum(1 for line in page.splitlines() if line and not line.startswith("#"))
        print("%s: page %d bytes, %d series, %d scrapes in %.0f s%s" % (
            variant, len(page), series, pages, took,
            ", %d of them not answered" % unanswered if unanswered else ""), flush=True)
        if not page:
            return variant + ": no scrape was answered"
        if not after:
            return variant + ": no thread of the plugin's is to be seen"
        return ""


def main():
    parser = inject_options.make_parser(__doc__.split("\n", 1)[0])
    parser.set_defaults(budget=240)
    parser.add_argument("--communicators", type=int, default=16)
    parser.add_argument("--rate", type=int, default=10000, help="calls a second and rank")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--scrape", type=float, default=5, help="seconds between two scrapes")
    options = inject_options.parse(parser)
    wrong = []
    for variant in ("server", "agent"):
        try:
            wrong.append(measure(options, variant))
        except (Failure, OSError, ValueError) as failure:
            wrong.append("%s: %s" % (variant, failure))
    wrong = list(filter(None, wrong))
    print("RESULT %s node_load%s" % ("WRONG" if wrong else "OK", ": " + "; ".join(wrong) if wrong else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
