"""Users of one node: nobody is given another one's measurements, hands over to another, or has to leave the port to one.

As root it takes users that the kernel lets a process become, so it runs outside Bazel's sandbox, whose
user namespace has one user.
"""

import os
import re
import select
import shutil
import socket
import subprocess
import tempfile
import unittest

from tests import running
from tests.node import cluster
from tests.node.cluster import AgentCase, Process, ranks, values, wait_until
from tests.node.hostile_peer_test import HELLO, YIELD, memory_of, message

NOBODY = 65534
STRANGER = 65533
SET = 9  # MessageType::kSet
REFUSALS = 50


def can_be_nobody():
    try:
        return subprocess.run(["/bin/true"], user=NOBODY, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def become(user):
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def as_user(user, function):
    """Runs it in a child that is this user; whether it returned."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            become(user)
            function()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


class Squatter:
    """Another user's process that has taken somebody's name, and takes what is handed to it."""

    def __init__(self, user, name):
        told, tell = os.pipe()
        heard, hear = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            try:
                os.close(tell)
                os.close(heard)
                become(user)
                self._listen(name, told, hear)
            finally:
                os._exit(0)
        os.close(told)
        os.close(hear)
        self.tell, self.heard = tell, heard
        assert os.read(self.heard, 1) == b"R", "it listens"

    @staticmethod
    def _listen(name, told, hear):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(name)
        listener.listen(64)
        os.write(hear, b"R")
        peers = []
        while True:
            ready, _, _ = select.select([listener, told, *peers], [], [])
            for each in ready:
                if each is listener:
                    peers.append(listener.accept()[0])
                elif each in peers:
                    data, fds, _, _ = socket.recv_fds(each, 4096, 4)
                    if data or fds:
                        os.write(hear, b"M")
                    else:
                        peers.remove(each)
            if ready == [told]:  # everything before has been seen
                return

    def received(self):
        """How many messages; it ends."""
        os.close(self.tell)
        count = 0
        while os.read(self.heard, 1):
            count += 1
        os.close(self.heard)
        os.waitpid(self.child, 0)
        return count


@unittest.skipUnless(can_be_nobody(), "takes several users: root outside of a user namespace with one user")
class UsersTest(AgentCase):

    def setUp(self):
        super().setUp()
        # Where another user may read them.
        self.folder = tempfile.mkdtemp(dir="/tmp")
        self.addCleanup(shutil.rmtree, self.folder)
        os.chmod(self.folder, 0o755)
        os.mkdir(os.path.join(self.folder, "plugin"))
        for name in ("tests/node/node_process", "plugin/libnccl-profiler-pulse.so", "exporter/pulse"):
            shutil.copy(os.path.join(cluster.RUNFILES, name), os.path.join(self.folder, "plugin"))

    def name(self, user):
        return b"\0nccl-pulse-%d-%d" % (user, self.port)

    def start_as(self, user, rank):
        process = Process(rank, self.listen, user=user, cwd=self.folder,
                          program=os.path.join(self.folder, "plugin/node_process"))
        self.addCleanup(process.close)
        return process

    def rejected(self):
        return values(self.port, "nccl_pulse_processes_rejected_total", "reason").get("foreign_user", 0)

    def test_users_do_not_meet(self):
        own = self.start(0)
        others = [self.start_as(NOBODY, rank) for rank in (1, 2)]
        self.assertEqual(own.port, self.port)
        for process in [own] + others:
            process.ask("run 1")
        self.wait_for({0: 1})
        # Each of them names where it is served, or says that it does not know yet; never root's address.
        for process in others:
            self.assertNotIn(":%d/" % self.port, process.url)
        # That they asked is no rejection.
        self.assertEqual(values(self.port, "nccl_pulse_processes_rejected_total", "reason"), {})
        wait_until(lambda: any(ranks(port) == {1: 1, 2: 1}
                               for port in range(self.port + 1, self.port + 5)),
                   "the others have met behind it")
        self.assertEqual(ranks(self.port), {0: 1})

    def test_roots_agent_takes_everybody(self):
        early = self.start_as(NOBODY, 0)
        early.ask("run 1")
        self.assertEqual(early.port, self.port)
        # A communicator of its own: one is one user's.
        own = self.start(1, init=False)
        own.url = own.ask("init bee")
        own.ask("run 2")
        self.assertGreater(own.port, self.port)
        self.agent()
        late = self.start_as(NOBODY, 2)
        late.ask("run 3")
        self.wait_for({0: 1, 1: 2, 2: 3})
        self.assertTrue(self.nobody_serves([early, own, late]))

    def offer_as(self, user, owner, memory, kind=HELLO, times=1):
        """As this user hands memory to the server with the owner's name, which ends the connection."""
        def offer():
            for _ in range(times):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
                    peer.connect(self.name(owner))
                    try:
                        socket.send_fds(peer, [message(kind)], [] if memory is None else [memory])
                        while peer.recv(4096):
                            pass
                    except OSError:
                        pass  # thrown out before
        self.assertTrue(as_user(user, offer))

    def test_a_peer_of_another_user_is_refused(self):
        own, = self.start_ranks(1)
        memory = memory_of(own)
        self.offer_as(NOBODY, 0, memory, times=REFUSALS)
        os.close(memory)
        # Everybody asks root's process first, in case it is an agent: that is not counted.
        self.assertEqual(self.rejected(), 0)
        self.assertEqual(values(self.port, "nccl_pulse_processes"), {(): 1})
        self.wait_for({0: 10})

    def test_a_peer_of_a_stranger_is_refused_and_counted(self):
        own = self.start_as(NOBODY, 0)
        self.assertEqual(own.ask("run 3"), "ok")
        before = self.rejected()
        memory = memory_of(own)
        self.offer_as(STRANGER, NOBODY, memory, times=REFUSALS)
        os.close(memory)
        wait_until(lambda: self.rejected() == before + REFUSALS, "all are counted")
        self.assertEqual(values(self.port, "nccl_pulse_processes"), {(): 1})
        self.wait_for({0: 3})

    def test_a_users_agent_takes_its_own_user_and_root_only(self):
        self.agent(program=os.path.join(self.folder, "plugin/pulse"), user=NOBODY, cwd=self.folder)
        own = self.start_as(NOBODY, 0)
        self.assertEqual(own.ask("run 3"), "ok")
        self.wait_for({0: 3})
        before = self.rejected()
        memory = memory_of(own)
        self.offer_as(STRANGER, NOBODY, memory)
        os.close(memory)
        wait_until(lambda: self.rejected() == before + 1, "it is counted")
        self.assertEqual(values(self.port, "nccl_pulse_processes"), {(): 1})

    def test_another_user_cannot_have_the_port(self):
        agent = self.agent()
        before = self.rejected()
        self.offer_as(NOBODY, 0, None, kind=YIELD)
        wait_until(lambda: self.rejected() == before + 1, "it is refused")
        self.assertIsNone(agent.process.poll())
        self.assertEqual(cluster.get(self.port, "/healthz"), (200, "ok\n"))

    def pulse_as(self, user, *arguments):
        done = subprocess.run([os.path.join(self.folder, "plugin/pulse"), *arguments], user=user, cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=cluster.PATIENCE_S, check=False)
        return done.returncode, done.stdout

    def control_name(self, process):
        """Of the socket over which it takes commands."""
        with open("/proc/net/unix", encoding="ascii") as lines:
            return re.search(r"@(nccl-pulse-\d+-control-%d-\w+)$" % process.pid, lines.read(), re.M).group(1)

    def commands(self, port):
        return values(port, "nccl_pulse_commands_total", "result")

    def test_another_users_commands_are_refused(self):
        own = self.start_as(NOBODY, 0)
        own.ask("run 1")
        pid = "--pid=%d" % own.pid
        status, text = self.pulse_as(STRANGER, "set", "HANG_SECONDS=5", pid)
        self.assertEqual(status, 2, text)
        self.assertIn("it belongs to user %d" % NOBODY, text)
        # Who asks all the same is refused by the process itself.
        name = b"\0" + self.control_name(own).encode()
        command = bytearray(message(SET))
        command[32:32 + 14] = b"HANG_SECONDS=5"
        answers = os.path.join(self.folder, "answers")
        os.mkdir(answers)
        os.chmod(answers, 0o777)

        def ask():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
                peer.connect(name)
                peer.settimeout(cluster.PATIENCE_S)
                try:
                    peer.send(command)
                except OSError:
                    pass  # thrown out before
                try:
                    answer = peer.recv(4096)
                except ConnectionResetError:  # comes first if what was sent has not been read
                    answer = peer.recv(4096)
                with open(os.path.join(answers, "answer"), "wb") as file:
                    file.write(answer)
        self.assertTrue(as_user(STRANGER, ask))
        with open(os.path.join(answers, "answer"), "rb") as file:
            self.assertIn(b"only its own user and root may change settings", file.read())
        wait_until(lambda: self.commands(own.port) == {"foreign_user": 1}, "it is counted")
        wait_until(lambda: "user %d (pid" % STRANGER in own.log(), "it is logged")
        self.assertEqual(self.pulse_as(NOBODY, "set", "HANG_SECONDS=6", pid)[0], 0)
        status, text = self.pulse_as(0, "set", "HANG_SECONDS=7", pid)
        self.assertEqual(status, 0, text)
        self.assertIn("HANG_SECONDS=7 (was 6)", text)

    def test_no_command_goes_to_another_user_under_ones_own_name(self):
        own = self.start_as(NOBODY, 0)
        squatter = Squatter(STRANGER, b"\0nccl-pulse-%d-control-%d-00000000" % (NOBODY, own.pid))
        status, text = self.pulse_as(NOBODY, "set", "HANG_SECONDS=6", "--pid=%d" % own.pid)
        self.assertEqual(status, 0, text)
        self.assertEqual(text, "%d: HANG_SECONDS=6 (was 10)\n" % own.pid)
        self.assertEqual(squatter.received(), 0)

    def test_nothing_is_handed_to_another_user_under_ones_own_name(self):
        squatter = Squatter(NOBODY, self.name(0))
        process = self.start(0)
        self.assertEqual(process.ask("run 4"), "ok")
        self.assertGreater(process.port, self.port)
        self.wait_for({0: 4}, process.port)
        self.assertEqual(squatter.received(), 0)

    def test_nothing_is_handed_to_another_user_under_roots_name(self):
        squatter = Squatter(STRANGER, self.name(0))
        process = self.start_as(NOBODY, 0)
        self.assertEqual(process.ask("run 4"), "ok")
        self.wait_for({0: 4}, process.port)
        self.assertEqual(squatter.received(), 0)


if __name__ == "__main__":
    running.main()
