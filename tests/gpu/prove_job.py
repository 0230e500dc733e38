"""The ranks of one run of prove.py, and the facts that it finds."""

import argparse
import os
import time

import check_rank
from prove_pages import DURATION

# What makes a process time operations in this way, with more samples than a job would take.
TIMINGS = {
    "stream": ("auto", {"NCCL_PULSE_TIMED_LAUNCHES_PER_SECOND": "1000000"}),
    "kernel": ("kernel", {}),
    "network": ("auto", {"NCCL_PULSE_NETWORK_WINDOW": "100", "NCCL_PULSE_HISTOGRAMS": "both"}),
}


class Results:
    """The facts of a part."""

    def __init__(self, part):
        self.part = part
        self.wrong = 0

    def fact(self, holds, text):
        self.wrong += not holds
        print("RESULT %s %s: %s" % ("OK" if holds else "WRONG", self.part, text), flush=True)


class Job(check_rank.Ranks):
    """The ranks of one run."""

    def __init__(self, options, name, timing, phases, environment=None, arguments=()):
        super().__init__(argparse.Namespace(**vars(options)))
        self.options.out = os.path.join(options.out, name)
        self.options.timing = timing
        self.options.phases = ",".join(phases)
        self.options.environment = environment or {}
        self.options.arguments = list(arguments)

    def pages(self):
        pages = self.scrape()
        self.keep_pages("page")
        if not all(pages):
            raise check_rank.Failure("a rank has no endpoint: " + " / ".join(
                line for rank in self.ranks for line in plugin_lines(rank.log)[-2:]))
        return pages

    def settled_pages(self, timing):
        """Pages on which the number of durations has stood still for a second and a half: kernel
        and network timing settle what they have a second late."""
        last, since = None, time.monotonic()
        deadline = min(time.monotonic() + 10, self.options.deadline)
        while True:
            pages = self.pages()
            counts = [sum(page.sums(DURATION + "_count", (), timing=timing).values()) for page in pages]
            if counts != last:
                last, since = counts, time.monotonic()
            elif time.monotonic() > since + 1.5 or time.monotonic() > deadline:
                return pages
            time.sleep(0.2)

    def await_full_sampling(self):
        """Until every launch may be timed: the sampler adapts once a second."""

        def all_sampled():
            return all(value == 1 for page in self.pages() for _, value in page.select("nccl_pulse_sampling_ratio"))

        self.wait("sampling", 60, all_sampled)


def plugin_lines(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as log:
            return [line.strip() for line in log if "NCCL Pulse: " in line]
    except FileNotFoundError:
        return ["(no log)"]
