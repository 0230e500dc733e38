"""The processes of inject.py: a job's ranks, an agent, and what a scraper sees of them."""

import json
import os
import random
import socket
import subprocess
import tempfile
import threading
import time

import endpoint
import inject_evidence
from check_rank import Failure, Process, rank_environment, start_rank

START_S = 90
ANSWER_S = 3


class Limit:
    """The time that all of it may take."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds
        self.over = threading.Event()  # before that, too

    def sleep(self, seconds):
        if self.over.wait(max(0, seconds)):
            raise Failure("terminated")

    def left(self):
        return self.end - time.monotonic()


class Ports:
    """Below those that the kernel gives to clients, each once."""

    def __init__(self):
        self.given = set()
        self.lock = threading.Lock()

    def take(self):
        with self.lock:
            while True:
                port = random.randrange(20000, 30000)
                if port in self.given:
                    continue
                with socket.socket() as probe:
                    try:
                        probe.bind(("127.0.0.1", port))
                    except OSError:
                        continue
                self.given.add(port)
                return port


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure("no answer within %.0f s: %s" % (seconds, what))
        time.sleep(0.05)


class Endpoint:
    def __init__(self, port):
        self.port = port
        self.address = "127.0.0.1:%d" % port

    def get(self, path):
        """The text; None when nobody answers."""
        try:
            return endpoint.get(self.port, path, ANSWER_S)
        except OSError:
            return None

    def communicators(self):
        text = self.get("/api/v1/communicators")
        return json.loads(text)["communicators"] if text else None


class Job:
    """The ranks, with a shared endpoint: one rank's, or an agent's."""

    def __init__(self, options, name, program, agent, arguments=(), environment=()):
        self.options = options
        self.name = name
        self.program = program
        self.arguments = list(arguments)
        self.has_agent = agent
        self.environment = dict(environment)
        self.folder = os.path.join(options.out, name)
        self.endpoint = Endpoint(options.ports.take())
        self.ranks = []
        self.agent = None
        self.exchange = None

    def __enter__(self):
        os.makedirs(self.folder)
        # Short: the stand-in's unique id holds the name of a file.
        self.exchange = tempfile.TemporaryDirectory(prefix="pi", dir="/tmp")
        try:
            if self.has_agent:
                self._start_agent()
            for rank in range(self.options.gpus):
                self.ranks.append(start_rank(
                    self.options, self.program, rank, self.options.gpus, rank, self.exchange.name, self.folder,
                    self.rank_environment(rank), self.arguments))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, value, trace):
        for process in self.ranks + ([self.agent] if self.agent else []):
            process.kill()
        self.exchange.cleanup()

    def _start_agent(self):
        self.agent = Process(
            "agent", [self.options.pulse, "agent", "--listen=" + self.endpoint.address,
                      "--hang-after=%gs" % self.options.hang_after] + self.capture_flags(), self.folder, os.environ)
        wait_until(lambda: self.endpoint.get("/healthz") is not None, 20, "the agent")

    def capture_flags(self):
        if not getattr(self.options, "captures", False):
            return []
        folder = inject_evidence.folder_of(self)
        os.makedirs(folder, exist_ok=True)
        return ["--capture-dir=" + folder]

    def rank_environment(self, rank):
        options = self.options
        environment = rank_environment(
            options, rank, options.gpus, os.path.join(self.folder, "nccl-rank%d.log" % rank),
            NCCL_PULSE_LISTEN=self.endpoint.address, **self.environment)
        if not self.has_agent and options.hang_after != 10:  # else the default
            environment["NCCL_PULSE_HANG_SECONDS"] = "%g" % options.hang_after
        return environment

    def wait(self, what, seconds, done):
        """Until done(); a rank that ends or fails meanwhile is a failure."""
        def look():
            if done():
                return True
            self.options.limit.sleep(0)
            for rank in self.ranks:
                error = rank.event("error")
                if error:
                    raise Failure("%s: %s: %s" % (what, rank.name, error["text"]))
                if not rank.is_alive():
                    raise Failure("%s: %s ended with status %s: %s" %
                                  (what, rank.name, rank.process.returncode, rank.tail()))
            return False
        wait_until(look, max(1, min(seconds, self.options.limit.left())), what)

    def wait_running(self, name, **fixed):
        self.wait("start", START_S, lambda: all(rank.event(name, **fixed) for rank in self.ranks))

    def pids(self):
        return {rank.pid: i for i, rank in enumerate(self.ranks)}

    def server(self):
        """The rank that listens at the endpoint's port by the kernel's word; None: no rank."""
        return next((i for i, rank in enumerate(self.ranks) if endpoint.listens(rank.pid, self.endpoint.port)), None)

    def status(self):
        """(exit status, that and what it prints) of `pulse status`"""
        done = subprocess.run(
            [self.options.pulse, "status", "--endpoint=" + self.endpoint.address],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=20)
        return done.returncode, "exit status %d\n%s" % (done.returncode, done.stdout)

    def keep(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text or "(no answer)\n")
