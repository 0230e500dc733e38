"""Processes with the real library, and what a scraper sees of them."""

import os
import re
import signal
import subprocess
import threading
import unittest
import urllib.parse

from tests.gpu.endpoint import Page, listens, open_files  # pylint: disable=unused-import
from tests.kit import PATIENCE_S, PULSE, RUNFILES, fetch, free_port, get, wait_until  # pylint: disable=unused-import
from tests.replay import page


def samples(port):
    """The page's samples, by (name, labels); None when nobody answers."""
    answer = get(port)
    if answer is None:
        return None
    assert answer[0] == 200, answer
    return Page(answer[1]).samples


def values(port, name, *labels):
    """{values of the labels: value} of a metric; {} when nobody answers."""
    found = {}
    for (sample, pairs), value in (samples(port) or {}).items():
        if sample == name:
            key = tuple(dict(pairs).get(label, "") for label in labels)
            found[key[0] if len(key) == 1 else key] = value
    return found


def ranks(port):
    """{rank: operations} of the communicators on the page."""
    return {int(rank): int(value) for rank, value in values(port, "nccl_operations_total", "rank").items()}


class Process:
    """tests/node/node_process."""

    PROGRAM = os.path.join(RUNFILES, "tests/node/node_process")

    def __init__(self, rank, listen, init=True, program=PROGRAM, user=None, cwd=None,
                 before=(), preexec_fn=None, **environment):
        """`before`: a command that starts the program, preexec_fn: see subprocess.Popen."""
        self.rank = rank
        self.process = subprocess.Popen(
            [*before, program, str(rank)], preexec_fn=preexec_fn, user=user, cwd=cwd,
            env=dict(os.environ, NCCL_PULSE_LISTEN=listen, NCCL_PULSE_LOG_LEVEL="info",
                     **environment),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.errors = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.url = self.ask("init") if init else None

    def _read(self):
        for line in self.process.stderr:
            self.errors.append(line)

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line):
        self.tell(line)
        return self.process.stdout.readline().rstrip()

    @property
    def pid(self):
        return self.process.pid

    @property
    def url(self):
        """Where its metrics are. A slow server answers after init, and the log says it then."""
        if self._url == "nowhere":
            said = wait_until(lambda: re.search(r"(?:served at|metrics, at) (\S+)", self.log()), "the log says where")
            self._url = "http://%s/metrics" % said.group(1)
        return self._url

    @url.setter
    def url(self, said):
        self._url = said

    @property
    def port(self):
        return urllib.parse.urlsplit(self.url).port

    def log(self):
        return "".join(self.errors)

    def serves(self, port):
        """Whether it listens on this port, by the kernel's word."""
        return listens(self.pid, port)

    def stop(self):
        """Returns when all its threads stand."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self, how="exit"):
        self.tell(how)
        self.process.wait(timeout=PATIENCE_S)

    def close(self):
        self.kill()
        self.reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()


class Scraper(page.Scraper):
    """For a node whose processes come and go."""

    # What the server counts of itself, and what it finds by comparing ranks, begins anew with the
    # next server.
    OWN = ("nccl_pulse_scrape_duration_seconds", "nccl_pulse_segments_read_total",
           "nccl_pulse_processes_rejected_total", "nccl_straggler_seconds_total", "process_")

    def __init__(self, port):
        self.dead = set()
        self.dead_pids = set()
        super().__init__(port, 0.005)

    def forget(self, process):
        """Before it is killed: its series may go."""
        self.dead.add(str(process.rank))
        self.dead_pids.add(str(process.pid))

    def keeps(self, key):
        labels = dict(key[1])
        return not (key[0].startswith(self.OWN) or labels.get("rank") in self.dead or labels.get("pid") in self.dead_pids)


class Agent:
    """pulse agent"""

    def __init__(self, listen, *arguments, program=PULSE, user=None, cwd=None):
        self.process = subprocess.Popen([program, "agent", "--listen=" + listen] + list(arguments),
                                        user=user, cwd=cwd,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    @classmethod
    def of(cls, case, *arguments, **options):
        """One that serves, or has ended by itself. It ends with the case."""
        agent = cls(*arguments, **options)
        case.addCleanup(agent.close)
        return agent.wait_ready()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def wait_ready(self):
        wait_until(lambda: self.process.poll() is not None or
                   any("serves" in line for line in list(self.lines)), "the agent serves")
        return self

    def log(self):
        return "".join(self.lines)

    def status(self):
        """The exit status, when it has ended and all was read that it said."""
        status = self.process.wait(timeout=PATIENCE_S)
        self.reader.join()
        return status

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.status()

    def close(self):
        if self.process.poll() is None:
            self.end(signal.SIGKILL)
        self.reader.join()
        self.process.stdout.close()


class NodeCase(unittest.TestCase):

    def setUp(self):
        self.port = free_port()
        self.listen = "127.0.0.1:%d" % self.port

    def start(self, rank, listen=None, **environment):
        process = Process(rank, listen or self.listen, **environment)
        self.addCleanup(process.close)
        return process

    def start_ranks(self, count):
        processes = [self.start(rank) for rank in range(count)]
        for process in processes:
            self.assertEqual(process.ask("run 10"), "ok")
        self.wait_for({process.rank: 10 for process in processes})
        return processes

    def wait_for(self, expected, port=None):
        try:
            wait_until(lambda: ranks(port or self.port) == expected, "the page shows all")
        except AssertionError as error:
            raise AssertionError("expected %s, the page shows %s" % (expected, ranks(port or self.port))) from error

    def kill_at_the_end(self, pid):
        """A child of a process of ours, which lives now. By the end of the test it may be gone."""
        process = os.pidfd_open(pid)

        def kill():
            try:
                signal.pidfd_send_signal(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
            os.close(process)

        self.addCleanup(kill)

    def server_of(self, processes, port=None):
        return wait_until(lambda: next((p for p in processes if p.process.poll() is None and
                                        p.serves(port or self.port)), None), "somebody serves")


class AgentCase(NodeCase):

    def agent(self, *arguments, **options):
        return Agent.of(self, self.listen, *arguments, **options)

    def nobody_serves(self, processes):
        return not any(process.serves(self.port) for process in processes)
