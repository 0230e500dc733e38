"""A process with the plugin, and the processes of a run of check.py or prove.py: each reports after each phase, and has a
thread here that reads its page all the time."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import endpoint
import nccl_versions

SCRAPE_PERIOD_S = 0.2
ANSWER_S = 30  # of the endpoint


def make_parser(description, modes):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--library", required=True, help="the plugin")
    parser.add_argument("--program", required=True, help="beside the script, or ddp.py")
    parser.add_argument("--libraries", default="", help="folders of libnccl and libcudart, with colons between")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mode", choices=modes, default=modes[0])
    parser.add_argument("--listen", default="127.0.0.1:0", help="where each rank serves its page, or the next free port")
    parser.add_argument("--out", required=True, help="folder for logs and pages")
    return parser


class Failure(Exception):
    """What ends the run."""


class Scraper(threading.Thread):
    """Reads one rank's page all the time, from when the rank's log says where."""

    def __init__(self, log):
        super().__init__(daemon=True)
        self.log = log
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.port = None
        self.last = None
        self.text = ""
        self.pages = 0
        self.slowest_s = 0.0
        self.problems = []
        self.start()

    def _find(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                match = re.search(r"NCCL Pulse: .*http://\S+:(\d+)/metrics", log.read())
        except FileNotFoundError:
            return False
        self.port = match and int(match.group(1))
        return self.port is not None

    def scrape(self):
        """The page now; None when there is no endpoint yet."""
        with self.lock:
            if self.port is None and not self._find():
                return None
            begin = time.monotonic()
            text = endpoint.get(self.port, timeout=ANSWER_S)
            self.slowest_s = max(self.slowest_s, time.monotonic() - begin)
            page = endpoint.Page(text)
            if self.last:
                self.problems += ["%s: %s, then %s" % fallen for fallen in page.fallen(self.last)]
            self.pages += 1
            self.last, self.text = page, text
            return page

    def run(self):
        took_s = 0.0
        # A slow machine has other things to do than to read pages.
        while not self.stop.wait(max(SCRAPE_PERIOD_S, 4 * took_s)):
            begin = time.monotonic()
            try:
                self.scrape()
            except Exception as error:  # any: it is reported, not handled
                # A process that ends closes its endpoint: the driver says stop before that.
                if not self.stop.is_set():
                    self.problems.append("scrape failed: %r" % error)
            took_s = time.monotonic() - begin


class Process:
    """A child and its process group; its output goes to files, or lines of JSON are events."""

    def __init__(self, name, command, folder, environment, pipe=False):
        self.name = name
        self.events = []
        errors = open(os.path.join(folder, name + ".err"), "wb")
        with errors:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE if pipe else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipe else errors, stderr=errors, text=True,
                start_new_session=True)
        # For who ends what this script could not.
        with open(os.environ.get("PULSE_INJECT_PIDS", os.devnull), "a", encoding="ascii") as file:
            file.write("%d\n" % self.process.pid)
        self.errors_path = errors.name
        if pipe:
            self.reader = threading.Thread(target=self._read, daemon=True)
            self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    @property
    def pid(self):
        return self.process.pid

    def event(self, name, **fixed):
        return next((event for event in list(self.events)
                     if event["event"] == name and fixed.items() <= event.items()), None)

    def tell(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failure("%s has ended" % self.name) from None

    def is_alive(self):
        return self.process.poll() is None

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            # A killed process stays until the driver has taken its GPU back.
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            print("%s (pid %d) does not end" % (self.name, self.process.pid), file=sys.stderr, flush=True)

    def tail(self):
        with open(self.errors_path, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-8:])


def rank_environment(options, rank, ranks, log, **more):
    """Of a rank with the plugin; `log`: NCCL's."""
    return dict(
        os.environ,
        NCCL_PROFILER_PLUGIN=os.path.abspath(options.library),
        NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,ENV,PROFILE", NCCL_DEBUG_FILE=log,
        # Multicast can put shared machines' GPUs out of order, and nothing here needs it.
        NCCL_NVLS_ENABLE="0",
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), **more)


def start_rank(options, program, rank, ranks, gpu, exchange, folder, environment, arguments):
    command = [program, "--rank=%d" % rank, "--nranks=%d" % ranks, "--gpu=%d" % gpu, "--exchange=" + exchange] + arguments
    if program.endswith(".py"):
        command.insert(0, sys.executable)
        nccl_versions.preload(environment)
    elif options.libraries:
        command.append("--library-path=" + options.libraries)
    return Process("rank%d" % rank, command, folder, environment, pipe=True)


class Rank:
    """One rank of the run."""

    def __init__(self, options, rank, work):
        self.rank = rank
        self.gpu = rank % options.gpus
        self.log = os.path.join(options.out, "nccl-rank%d.log" % rank)
        environment = rank_environment(
            options, rank, options.ranks, self.log, NCCL_PULSE_LISTEN=options.listen, NCCL_PULSE_TIMING=options.timing,
            **getattr(options, "environment", {}))  # prove.py's
        if options.mode == "network":
            environment.update(NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1", NCCL_IB_DISABLE="1", NCCL_SOCKET_IFNAME="lo")
        elif options.mode == "shared-gpu":
            environment.update(NCCL_HOSTID="pulse-check-%d" % rank, NCCL_IB_DISABLE="1", NCCL_SOCKET_IFNAME="lo")
        arguments = ["--phases=" + options.phases] + list(getattr(options, "arguments", ()))
        self.child = start_rank(options, os.path.abspath(options.program), rank, options.ranks, self.gpu, work, options.out,
                                environment, arguments)
        self.process, self.reader = self.child.process, self.child.reader
        self.reported = 0
        self.scraper = Scraper(self.log)

    def report(self, phase):
        """The rank's report of this phase if it has come."""
        if self.reported == len(self.child.events):
            return None
        report = self.child.events[self.reported]
        self.reported += 1
        if report["phase"] != phase:
            raise Failure("rank %d reports %s, not %s" % (self.rank, report["phase"], phase))
        return report

    def go_on(self):
        try:
            self.child.tell("")
        except Failure:
            pass  # it has ended; whoever waits for it will say so

    def kill(self):
        self.scraper.stop.set()
        self.child.kill()
        self.scraper.join(timeout=ANSWER_S)

    def tails(self):
        for path in (self.child.errors_path, self.log):
            try:
                with open(path, encoding="utf-8", errors="replace") as log:
                    lines = log.read().splitlines()[-20:]
            except FileNotFoundError:
                lines = ["(no such file)"]
            yield "--- end of %s\n%s" % (os.path.basename(path), "\n".join(lines))


class Ranks:
    """The ranks of a run, ended when the block ends; their last lines are printed when it fails."""

    def __init__(self, options):
        self.options = options
        self.ranks = []

    def __enter__(self):
        shutil.rmtree(self.options.out, ignore_errors=True)
        os.makedirs(self.options.out)
        # Short: the stand-in's unique id holds the name of a file in it.
        self.work = tempfile.TemporaryDirectory(prefix="pulse-")
        try:
            for i in range(self.options.ranks):
                self.ranks.append(Rank(self.options, i, self.work.name))
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, value, trace):
        for rank in self.ranks if kind is not None and issubclass(kind, Failure) else ():
            print("rank%d: %s" % (rank.rank, "\n".join(rank.tails())), flush=True)
        for rank in self.ranks:
            rank.kill()
        self.work.cleanup()

    def wait(self, what, seconds, done):
        """Until done() is true, or all of the run's time is over; a rank that ends meanwhile is a failure."""
        seconds = min(seconds, self.options.deadline - time.monotonic())
        deadline = time.monotonic() + seconds
        while not done():
            for rank in self.ranks:
                status = rank.process.poll()
                # What it wrote just before its end may still be on its way.
                if status is not None and not rank.reader.is_alive() and not done():
                    raise Failure("%s: rank %d ended with status %d" % (what, rank.rank, status))
            if time.monotonic() > deadline:
                raise Failure("%s: no answer within %.0f s" % (what, seconds))
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

    def scrape(self):
        """Their pages; None of a rank without an endpoint yet."""
        try:
            return [rank.scraper.scrape() for rank in self.ranks]
        except (OSError, ValueError) as error:
            raise Failure("scrape failed: %r" % error) from error

    def keep_pages(self, prefix):
        for rank in self.ranks:
            with open(os.path.join(self.options.out, "%s-rank%d.txt" % (prefix, rank.rank)), "w", encoding="utf-8") as file:
                file.write(rank.scraper.text)
