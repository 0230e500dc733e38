"""The ranks of one run of prove.py, and the facts that it finds."""

import argparse
import http.client
import os
import shutil
import sys
import tempfile
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


class Job:
    """The ranks of one run, ended when the block ends."""

    def __init__(self, options, name, timing, phases, environment=None, arguments=()):
        self.options = argparse.Namespace(**vars(options))
        self.options.out = os.path.join(options.out, name)
        self.options.timing = timing
        self.options.phases = ",".join(phases)
        self.options.environment = environment or {}
        self.options.arguments = list(arguments)
        self.name = name
        self.ranks = []
        self.work = None

    def __enter__(self):
        shutil.rmtree(self.options.out, ignore_errors=True)
        os.makedirs(self.options.out)
        self.work = tempfile.TemporaryDirectory(prefix="pulse-prove-")
        try:
            for i in range(self.options.ranks):
                self.ranks.append(check_rank.Rank(self.options, i, self.work.name))
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and issubclass(kind, check_rank.Failure):
            for rank in self.ranks:
                print("rank%d: %s" % (rank.rank, "\n".join(rank.tails())), flush=True)
        for rank in self.ranks:
            rank.kill()
        self.work.cleanup()

    def remaining(self):
        return max(0.0, self.options.deadline - time.monotonic())

    def wait(self, what, seconds, done):
        deadline = time.monotonic() + min(seconds, self.remaining())
        while True:
            result = done()
            if result:
                return result
            for rank in self.ranks:
                status = rank.process.poll()
                if status is not None and not rank.reader.is_alive() and not done():
                    raise check_rank.Failure("%s %s: rank %d ended with status %d" %
                                        (self.name, what, rank.rank, status))
            if time.monotonic() > deadline:
                raise check_rank.Failure("%s %s: no answer in time" % (self.name, what))
            time.sleep(0.02)

    def report(self, phase, seconds=60):
        """All ranks' reports of this phase."""
        reports = [None] * len(self.ranks)

        def all_reported():
            for i, rank in enumerate(self.ranks):
                reports[i] = reports[i] or rank.report(phase)
            return all(reports)

        self.wait("phase " + phase, seconds, all_reported)
        return reports

    def go_on(self):
        for rank in self.ranks:
            rank.go_on()

    def pages(self):
        try:
            pages = [rank.scraper.scrape() for rank in self.ranks]
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise check_rank.Failure("%s: scrape failed: %r" % (self.name, error)) from error
        for rank in self.ranks:
            path = os.path.join(self.options.out, "page-rank%d.txt" % rank.rank)
            with open(path, "w", encoding="utf-8") as file:
                file.write(rank.scraper.text)
        if not all(pages):
            raise check_rank.Failure(self.name + ": a rank has no endpoint: " + " / ".join(
                line for rank in self.ranks for line in plugin_lines(rank.log)[-2:]))
        return pages

    def settled_pages(self, timing):
        """Pages on which the number of durations has stood still for a second and a half: kernel
        and network timing settle what they have a second late."""
        last, since = None, time.monotonic()
        deadline = time.monotonic() + min(10, self.remaining())
        while True:
            pages = self.pages()
            counts = [sum(page.sums(DURATION + "_count", (), timing=timing).values())
                      for page in pages]
            if counts != last:
                last, since = counts, time.monotonic()
            elif time.monotonic() > since + 1.5 or time.monotonic() > deadline:
                return pages
            time.sleep(0.2)

    def await_full_sampling(self):
        """Until every launch may be timed: the sampler adapts once a second."""

        def all_sampled():
            return all(value == 1 for page in self.pages()
                       for _, value in page.select("nccl_pulse_sampling_ratio"))

        self.wait("sampling", 60, all_sampled)


def plugin_lines(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as log:
            return [line.strip() for line in log if "NCCL Pulse: " in line]
    except FileNotFoundError:
        return ["(no log)"]
