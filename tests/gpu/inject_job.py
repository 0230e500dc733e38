"""The processes of inject.py: a job's ranks, an agent, and what a scraper sees of them."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import endpoint
import inject_evidence
import nccl_versions

START_S = 90
ANSWER_S = 3


class Failure(Exception):
    """What ends a case."""


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


class Process:
    """A child and its process group; its output goes to files, lines of JSON are events."""

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
            print("inject.py: %s (pid %d) does not end" % (self.name, self.process.pid), file=sys.stderr, flush=True)

    def tail(self):
        with open(self.errors_path, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-8:])


class Job:
    """The ranks, with a shared endpoint: one rank's, or an agent's."""

    def __init__(self, options, name, program, agent, arguments=(), ranks_say="running", environment=()):
        self.options = options
        self.name = name
        self.program = program
        self.arguments = list(arguments)
        self.has_agent = agent
        self.ranks_say = ranks_say
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
                self._start_rank(rank)
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
        environment = dict(
            os.environ,
            NCCL_PROFILER_PLUGIN=os.path.abspath(options.library),
            NCCL_PULSE_LISTEN=self.endpoint.address,
            NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,ENV,PROFILE",
            NCCL_DEBUG_FILE=os.path.join(self.folder, "nccl-rank%d.log" % rank),
            NCCL_NVLS_ENABLE="0",
            RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.gpus), **self.environment)
        if not self.has_agent and options.hang_after != 10:  # else the default
            environment["NCCL_PULSE_HANG_SECONDS"] = "%g" % options.hang_after
        return environment

    def _start_rank(self, rank):
        options = self.options
        environment = self.rank_environment(rank)
        command = [self.program, "--rank=%d" % rank, "--nranks=%d" % options.gpus,
                   "--gpu=%d" % rank, "--exchange=" + self.exchange.name] + self.arguments
        if self.program.endswith(".py"):
            command.insert(0, sys.executable)
            nccl_versions.preload(environment)
        elif options.libraries:
            command.append("--library-path=" + options.libraries)
        self.ranks.append(Process("rank%d" % rank, command, self.folder, environment, pipe=True))

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
        inodes = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            if not os.path.exists(table):
                continue
            with open(table, encoding="ascii") as lines:
                for line in lines:
                    fields = line.split()
                    if fields[3] == "0A" and fields[1].endswith(":%04X" % self.endpoint.port):
                        inodes.add(fields[9])
        for i, rank in enumerate(self.ranks):
            folder = "/proc/%d/fd" % rank.pid
            for name in os.listdir(folder):
                try:
                    match = re.match(r"socket:\[(\d+)\]", os.readlink(os.path.join(folder, name)))
                except FileNotFoundError:
                    continue
                if match and match.group(1) in inodes:
                    return i
        return None

    def status(self):
        """(exit status, that and what it prints) of `pulse status`"""
        done = subprocess.run(
            [self.options.pulse, "status", "--endpoint=" + self.endpoint.address],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=20)
        return done.returncode, "exit status %d\n%s" % (done.returncode, done.stdout)

    def keep(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text or "(no answer)\n")
