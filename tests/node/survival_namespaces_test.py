"""Containers: processes with PID and network namespaces of their own. Takes root, or skips."""

import ctypes
import fcntl
import os
import re
import socket
import struct
import subprocess
import tempfile
import threading
import unittest

from tests import running
from tests.node.cluster import PULSE, Agent, NodeCase, Process, ranks, values, wait_until

CLONE_NEWNET = 0x40000000
PID_NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
# A shell, the container's first process, sets which process id comes next.
NEXT_PID = ["sh", "-c", 'echo $(($1 - 1)) > /proc/sys/kernel/ns_last_pid; shift; "$@"', "sh"]
LIBC = ctypes.CDLL(None, use_errno=True)


def can(command):
    """None, or why not."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else "%s: %s" % (" ".join(command), done.stdout.strip())


NO_PID_NAMESPACE = can(PID_NAMESPACE + ["true"])
NO_NEXT_PID = NO_PID_NAMESPACE or can(PID_NAMESPACE + NEXT_PID + ["77", "sh", "-c", "[ $$ = 77 ]"])
NO_NET_NAMESPACE = can(["unshare", "--net", "true"])


def call(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def new_network():
    """A network namespace whose loopback works, for the calling thread."""
    call(LIBC.unshare(CLONE_NEWNET))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up = struct.pack("16sH14x", b"lo", 0x1)  # IFF_UP
        fcntl.ioctl(any_socket, 0x8914, up)  # SIOCSIFFLAGS


def within(fd, function, *arguments):
    """What the function returns in this network namespace."""
    answers = []

    def run():
        call(LIBC.setns(fd, CLONE_NEWNET))
        answers.append(function(*arguments))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return answers[0]


class Contained(Process):
    """In a PID namespace of its own, as the process with this id."""

    def __init__(self, rank, listen, pid):
        super().__init__(rank, listen, init=False, before=PID_NAMESPACE + NEXT_PID + [str(pid)])
        self.url = self.ask("init")

    @property
    def pid(self):
        """As this test sees it: the last of the chain."""
        pid = self.process.pid
        while True:
            with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as children:
                words = children.read().split()
            if not words:
                return pid
            pid = int(words[0])


@unittest.skipIf(NO_NEXT_PID, "no PID namespaces: %s" % NO_NEXT_PID)
class PidNamespaceTest(NodeCase):

    def contained(self, rank, pid, count, comm=None):
        process = Contained(rank, self.listen, pid)
        self.addCleanup(process.close)
        if comm:
            process.ask("init " + comm)
        self.assertEqual(process.ask("run %d" % count), "ok")
        return process

    def test_a_command_by_pid_is_for_the_process_that_has_it_here(self):
        first, second = self.contained(0, 7, 10, "a1"), self.contained(0, 7, 10, "b2")
        outside = self.start(1)

        def hang_seconds():
            shown = subprocess.run([PULSE, "settings"], stdout=subprocess.PIPE, text=True, check=False)
            found = dict(re.findall(r"^(\d+) +HANG_SECONDS +(\d+) ", shown.stdout, re.M))
            return [found.get(str(process.pid)) for process in (first, second, outside)]

        within_first = ["nsenter", "--target=%d" % first.pid, "--pid", "--mount"]
        said = subprocess.run([*within_first, PULSE, "set", "HANG_SECONDS=33", "--pid=7"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual((said.returncode, said.stdout), (0, "7: HANG_SECONDS=33 (was 10)\n"))
        self.assertEqual(hang_seconds(), ["33", "10", "10"])

    def test_a_trace_has_those_in_containers_time_more(self):
        for comm in ("a1", "b2"):
            self.contained(0, 7, 10, comm)
        self.start(1).ask("run 10")
        wait_until(lambda: len(values(self.port, "nccl_operations_total", "comm")) == 3, "all are there")
        with tempfile.TemporaryDirectory(prefix="ns", dir="/tmp") as folder:
            said = subprocess.run([PULSE, "trace", "--endpoint=" + self.listen, "--every=1", "--duration=0.5s",
                                   "--out=" + os.path.join(folder, "out.pftrace")], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(said.returncode, 0, said.stdout)
        self.assertIn("3 of 3 processes time all launches now", said.stdout)

    def test_equal_pids_and_ranks_are_not_mixed_up(self):
        # Two jobs of one rank each, in two containers that share the network.
        first = self.contained(0, 7, 10, "a1")
        second = self.contained(0, 7, 20, "b2")
        outside = self.start(1)
        outside.ask("run 30")

        def calls():
            return values(self.port, "nccl_operations_total", "comm")

        wait_until(lambda: calls() == {"%016x" % 0xa1: 10, "%016x" % 0xb2: 20, "%016x" % 0xc0ffee: 30}, "all are there")
        # Page has made sure that no series is there twice.
        up = values(self.port, "nccl_pulse_process_up", "pid", "pid_namespace", "global_rank")
        self.assertEqual(len(up), 3, up)
        namespaces = {key[1] for key in up if key[0] == "7" and key[2] == "0"}
        self.assertEqual(len(namespaces), 2, up)

        def callbacks():
            shown = values(self.port, "nccl_pulse_callbacks_total", "pid_namespace", "global_rank", "callback")
            return {key: value for key, value in shown.items() if key[1] == "0"}

        def all_callbacks():
            """Four of the proxy for each call, a thread that may come later."""
            shown = callbacks()
            of_proxies = sorted(value for key, value in shown.items() if key[2] == "proxy")
            return shown if of_proxies == [40, 80] else None

        before = wait_until(all_callbacks, "the proxies' callbacks are there, too")
        totals = sorted(sum(value for key, value in before.items() if key[0] == namespace) for namespace in namespaces)
        self.assertGreater(totals[1], totals[0])
        self.assertLess(totals[1], 3 * totals[0])
        # One ends: nothing of the other's moves.
        name = os.readlink("/proc/%d/ns/pid" % first.pid)
        of_first = name[len("pid:["):-1]
        self.assertIn(of_first, namespaces)
        first.kill()
        wait_until(lambda: calls() == {"%016x" % 0xb2: 20, "%016x" % 0xc0ffee: 30}, "the first has left")
        self.assertEqual(callbacks(), {key: value for key, value in before.items() if key[0] != of_first})
        second.ask("run 1")
        wait_until(lambda: calls() == {"%016x" % 0xb2: 21, "%016x" % 0xc0ffee: 30}, "it goes on")

    def test_takeover_across_pid_namespaces(self):
        processes = [self.contained(rank, 7, 10) for rank in range(3)]
        self.wait_for({0: 10, 1: 10, 2: 10})
        while len(processes) > 1:
            server = self.server_of(processes)
            processes.remove(server)
            server.kill()
            self.wait_for({process.rank: 10 for process in processes})

    def test_agent_keeps_the_one_and_takes_the_other(self):
        agent = Agent.of(self, self.listen)
        first = self.contained(0, 7, 10, "a1")
        # Or the kernel might use the namespace's number again, at once.
        self.addCleanup(os.close, os.open("/proc/%d/ns/pid" % first.pid, os.O_RDONLY))
        first.kill()

        def ups():
            return sorted(values(self.port, "nccl_pulse_process_up", "pid", "pid_namespace", "global_rank").values())

        wait_until(lambda: ups() == [0], "it is kept")
        self.contained(0, 7, 20, "b2")
        # Another process than the one that ended, with its pid and rank.
        wait_until(lambda: values(self.port, "nccl_operations_total", "comm") ==
                   {"%016x" % 0xa1: 10, "%016x" % 0xb2: 20}, "both are there")
        self.assertEqual(ups(), [0, 1])


@unittest.skipIf(NO_NEXT_PID, "no PID namespaces: %s" % NO_NEXT_PID)
class PidReuseTest(NodeCase):

    def test_in_one_container(self):
        agent = Agent.of(self, self.listen)
        script = ('while read next; do echo 76 > /proc/sys/kernel/ns_last_pid; "$@"; done')
        # The first process of the container starts the same thing again, with the same id.
        process = Process(0, self.listen, init=False, before=PID_NAMESPACE + ["sh", "-c", script, "sh"])
        self.addCleanup(process.close)
        for count in (10, 3, 5):
            process.tell("next")
            process.ask("init")
            process.ask("run %d" % count)
            self.wait_for({0: count})
            self.assertEqual({key[0]: up for key, up in values(
                self.port, "nccl_pulse_process_up", "pid", "global_rank").items()}, {"77": 1})
            process.tell("_exit")
            wait_until(lambda: values(self.port, "nccl_pulse_process_up", "pid") == {"77": 0}, "its end was seen")
            self.wait_for({0: count})


@unittest.skipIf(NO_NET_NAMESPACE, "no network namespaces: %s" % NO_NET_NAMESPACE)
class NetworkNamespaceTest(NodeCase):
    """No abstract socket, and no port, reaches over the border."""

    def test_own_endpoint_at_the_same_port(self):
        outside = self.start_ranks(2)
        first = Process(5, self.listen, preexec_fn=new_network)
        self.addCleanup(first.close)
        network = os.open("/proc/%d/ns/net" % first.pid, os.O_RDONLY)
        self.addCleanup(os.close, network)
        second = Process(6, self.listen, preexec_fn=lambda: call(LIBC.setns(network, CLONE_NEWNET)))
        self.addCleanup(second.close)
        self.assertEqual({first.port, second.port}, {self.port})
        for process in (first, second):
            process.ask("run 4")
        wait_until(lambda: within(network, ranks, self.port) == {5: 4, 6: 4}, "both are inside")
        self.wait_for({0: 10, 1: 10})
        # The server inside, then the one outside, are killed.
        first.kill()
        wait_until(lambda: within(network, ranks, self.port) == {6: 4}, "the other took over")
        server = self.server_of(outside)
        server.kill()
        outside.remove(server)
        self.wait_for({outside[0].rank: 10})
        self.assertEqual(within(network, ranks, self.port), {6: 4})

    def test_shared_socket_in_the_file_system(self):
        """Its path is reached from both sides, the hand-over's name is not: the first one keeps it."""
        path = os.path.join("/tmp", "pulse-%d.sock" % os.getpid())
        outside = self.start(0, "unix:" + path)
        self.assertEqual(outside.url, "unix:" + path)
        inside = Process(1, "unix:" + path, preexec_fn=new_network)
        self.addCleanup(inside.close)
        self.assertIn("Address already in use", inside.url)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            self.assertTrue(client.recv(4096).startswith(b"HTTP/1.1 200"))
        outside.end()
        inside.end()
        self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    running.main()
