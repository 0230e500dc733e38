"""Replays a recorded run, with scrapers beside it."""

import glob
import json
import os
import re
import signal
import subprocess
import threading

from tests.kit import RUNFILES, get
from tests.replay.page import Scraper

REPLAY = os.path.join(RUNFILES, "bench/replay/replay")
LIBRARY = os.path.join(RUNFILES, "plugin/libnccl-profiler-pulse.so")
# Before a program that this machine's processor does not run: .bazelrc, --config=arm64.
EMULATOR = os.environ.get("TEST_EMULATOR", "").split()
# For a broken build to end; a slow machine is no failure.
ANSWER_S = 240


def trace_folder(run):
    return os.path.join(RUNFILES, "tests/traces", run)


def trace_files(run):
    return sorted(glob.glob(os.path.join(trace_folder(run), "*.jsonl.xz")))


class ReplayedRun:
    """A context in which all callbacks of a run have been replayed and its processes still live."""

    TIMEOUT_S = 600

    def __init__(self, run, timing, api, speed=0, repeat=1, clock="recorded", scrape=True, network="off"):
        self.arguments = EMULATOR + [
            REPLAY, "--library=" + LIBRARY, "--api=%d" % api, "--speed=%g" % speed,
            "--repeat=%d" % repeat, "--clock=" + clock, "--hold=600", trace_folder(run)]
        self.environment = dict(os.environ, NCCL_PULSE_TIMING=timing,
                                NCCL_PULSE_LISTEN="127.0.0.1:0",
                                NCCL_PULSE_NETWORK_WINDOW=network,
                                NCCL_PULSE_HISTOGRAMS="both")
        self.scrape = scrape
        self.endpoints = len(trace_files(run))
        self.scrapers = []
        self.output = []

    def __enter__(self):
        self.process = subprocess.Popen(self.arguments, env=self.environment, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        watchdog = threading.Timer(self.TIMEOUT_S, self.process.kill)
        watchdog.start()
        try:
            has_replayed = False
            for line in self.process.stdout:
                self.output.append(line.rstrip())
                port = re.search(r"http://\S+:(\d+)/metrics", line)
                if port:
                    self.scrapers.append(Scraper(int(port.group(1))))
                has_replayed = has_replayed or line.startswith("replayed ")
                # A process says where it serves when its server has begun, which may be later than a short run's end.
                if has_replayed and len(self.scrapers) >= self.endpoints:
                    return self
        finally:
            watchdog.cancel()
        raise RuntimeError("the replay ended early (%s); %d of %d processes said where they serve:\n%s" %
                           (self.process.wait(), len(self.scrapers), self.endpoints, "\n".join(self.output)))

    def __exit__(self, *_):
        for scraper in self.scrapers:
            scraper.stop()
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=ANSWER_S)
        self.output += rest.splitlines()
        self.status = self.process.returncode
        self.process.stdout.close()

    def samples(self):
        """Everything that the run's endpoints serve now."""
        union = {}
        for scraper in self.scrapers:
            union.update(scraper.scrape())
        return union

    def sequences(self):
        """The last sequence numbers, which the JSON has, as samples of "sequence"."""
        found = {}
        for scraper in self.scrapers:
            for communicator in json.loads(get(scraper.port, "/api/v1/communicators")[1])["communicators"]:
                for rank in communicator["ranks"]:
                    labels = {("comm", communicator["comm"]), ("rank", str(rank["rank"]))}
                    for operation in rank["operations"]:
                        if operation["sequence"] is not None:
                            found["sequence", frozenset(labels | {("op", operation["op"])})] = (operation["sequence"])
        return found

    def problems(self):
        return [problem for scraper in self.scrapers for problem in scraper.problems]
