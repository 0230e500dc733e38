"""Peers that mean harm or are broken cost themselves, and nobody else: each is refused for its reason, the
page stays as it is, and the next honest process is taken."""

import array
import collections
import fcntl
import os
import socket
import struct
import tempfile
import unittest

from tests import running
from tests.node.cluster import NodeCase, get, open_files, values, wait_until

HELLO, GOODBYE, YIELD = 1, 5, 6
MAGIC = 0x31444E485053434E
SHRINK_AND_GROW = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
TOTAL_BYTES_OFFSET = 16  # of SegmentHeader, metrics/segment_layout.h


def message(kind, magic=MAGIC, version=1):
    return struct.pack("<QIIIIII224s", magic, version, kind, 0, 0, 0, 0, b"")


def memory(content=b"", size=None, seals=SHRINK_AND_GROW):
    fd = os.memfd_create("nccl-pulse", os.MFD_ALLOW_SEALING)
    os.write(fd, content)
    os.ftruncate(fd, len(content) if size is None else size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def memory_of(process):
    """The segment of an honest process, opened anew."""
    for number, target in open_files(process.pid).items():
        if "memfd:nccl-pulse" in target:
            return os.open("/proc/%d/fd/%d" % (process.pid, number), os.O_RDONLY)
    raise AssertionError("no segment")


class HostileCase(NodeCase):

    def setUp(self):
        super().setUp()
        self.honest = self.start_ranks(2)
        self.server = self.server_of(self.honest)
        self.name = b"\0nccl-pulse-%d-%d" % (os.geteuid(), self.port)

    def connect(self):
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(peer.close)
        peer.connect(self.name)
        return peer

    def rejected(self):
        """By reason; those that have not been seen are absent."""
        return collections.Counter(values(self.port, "nccl_pulse_processes_rejected_total", "reason"))

    def expect_all_is_well(self):
        self.wait_for({0: 10, 1: 10})
        self.assertEqual(values(self.port, "nccl_pulse_processes"), {(): 2})
        self.assertEqual(wait_until(lambda: get(self.port, "/healthz"))[0], 200)

class HostilePeerTest(HostileCase):

    def offer(self, reason, fds, data=None):
        """Sends this, and expects to be refused for that."""
        before = self.rejected()
        peer = self.connect()
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        peer.sendmsg([message(HELLO) if data is None else data], control)
        # An answer that says why, then the end; or the end.
        answers = list(iter(lambda: peer.recv(4096), b""))
        self.assertLessEqual(len(answers), 1)
        for fd in fds:
            os.close(fd)
        # Pages are made anew four times a second.
        after = wait_until(lambda: self.rejected() != before and self.rejected(), "it is counted")
        self.assertEqual(after[reason] - before[reason], 1, "%s, then %s" % (before, after))
        self.assertEqual(sum(after.values()) - sum(before.values()), 1)
        self.expect_all_is_well()
        return answers[0][32:].split(b"\0")[0].decode() if answers else ""

    def test_no_memory(self):
        self.offer("not_memory", [])
        reading, writing = os.pipe()
        self.offer("not_memory", [reading])
        os.close(writing)
        self.offer("not_memory", [os.open("/dev/zero", os.O_RDONLY)])
        with tempfile.NamedTemporaryFile(dir=os.environ["TEST_TMPDIR"]) as file:
            file.truncate(1 << 20)
            # On tmpfs such a file is memory, but cannot be sealed.
            text = self.offer(
                "unsealed" if self.is_memory(file.name) else "not_memory",
                [os.open(file.name, os.O_RDONLY)])
            self.assertNotEqual(text, "")

    @staticmethod
    def is_memory(path):
        fd = os.open(path, os.O_RDONLY)
        try:
            fcntl.fcntl(fd, fcntl.F_GET_SEALS)
            return True
        except OSError:
            return False
        finally:
            os.close(fd)

    def test_memory_that_can_shrink_or_grow(self):
        content = os.pread(memory_of(self.honest[0]), 1 << 16, 0)
        for seals in (0, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW, fcntl.F_SEAL_WRITE):
            text = self.offer("unsealed", [memory(content, seals=seals)])
            self.assertIn("not sealed against shrinking and growing", text)

    def test_size(self):
        self.offer("bad_size", [memory()])
        self.offer("bad_size", [memory(b"x" * 4096)])
        self.offer("bad_size", [memory(b"x", size=1 << 40)])
        self.offer("bad_size", [memory(b"x", size=1 << 28)])

    def test_content(self):
        self.assertIn("wrong magic", self.offer("bad_layout", [memory(b"x" * (1 << 20))]))
        self.offer("bad_layout", [memory(os.urandom(1 << 20))])
        # Nothing but a hole.
        self.assertIn("no header", self.offer("bad_layout", [memory(size=1 << 20)]))
        honest = bytearray(os.pread(memory_of(self.honest[0]), 1 << 26, 0))
        # Another version.
        other = bytearray(honest)
        other[8] = 99
        self.assertIn("version 99", self.offer("bad_layout", [memory(other)]))
        # More memory than the header says.
        self.assertIn("the segment claims", self.offer("bad_size", [memory(honest, size=len(honest) + 65536)]))
        # A header that says more than there is.
        struct.pack_into("<Q", honest, TOTAL_BYTES_OFFSET, 1 << 40)
        self.offer("bad_size", [memory(honest)])

    def test_reading_allocates_nothing_at_the_servers_expense(self):
        peer = self.connect()
        size = os.fstat(memory_of(self.server)).st_size
        # All of the header, claiming 1024 communicators that are all in use, and nothing behind.
        header = bytearray(os.pread(memory_of(self.server), 8192, 0))
        struct.pack_into("<I", header, 88, 1024)
        fd = memory(header, size=size)
        before = os.fstat(fd).st_blocks
        socket.send_fds(peer, [message(HELLO)], [fd])
        peer.recv(4096)
        wait_until(lambda: values(self.port, "nccl_pulse_processes") == {(): 3}, "it is a member")
        self.assertEqual(os.fstat(fd).st_blocks, before)
        os.close(fd)
        peer.close()
        wait_until(lambda: values(self.port, "nccl_pulse_processes") == {(): 2}, "it is gone")
        self.expect_all_is_well()

    def test_member_whose_memory_goes_bad(self):
        size = os.fstat(memory_of(self.server)).st_size
        content = bytearray(os.pread(memory_of(self.server), size, 0))
        fd = memory(content)
        peer = self.connect()
        socket.send_fds(peer, [message(HELLO)], [fd])
        peer.recv(4096)
        before = self.rejected()["bad_layout"]
        os.pwrite(fd, b"garbage!" * 64, 0)
        wait_until(lambda: self.rejected()["bad_layout"] == before + 1, "it is thrown out")
        os.close(fd)
        self.expect_all_is_well()

    def test_memory_that_is_read_already(self):
        # The server's own; a member's replaces the member's connection, which comes back by itself.
        self.offer("duplicate", [memory_of(self.server)])
        member = next(process for process in self.honest if process is not self.server)
        peer = self.connect()
        fd = memory_of(member)
        socket.send_fds(peer, [message(HELLO)], [fd])
        os.close(fd)
        peer.recv(4096)
        peer.close()
        wait_until(lambda: values(self.port, "nccl_pulse_processes") == {(): 2}, "it is back")
        self.expect_all_is_well()

    def test_messages(self):
        self.offer("bad_message", [], b"x" * 100)
        self.offer("bad_message", [], b"x")
        self.offer("bad_message", [], message(HELLO) + b"x")
        self.offer("bad_message", [], b"GET /metrics HTTP/1.1\r\n\r\n")
        self.offer("bad_message", [], message(HELLO, magic=1))
        self.assertIn("hand-over version 7", self.offer("bad_message", [], message(HELLO, version=7)))
        self.offer("bad_message", [], message(99))
        self.offer("bad_message", [], message(GOODBYE))
        honest = [memory_of(self.honest[0]), memory_of(self.honest[1])]
        self.offer("bad_message", honest)

    def test_hundreds_of_connections(self):
        peers = []
        for i in range(400):
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.addCleanup(peer.close)
            peer.setblocking(False)
            try:
                peer.connect(self.name)
                if i % 4 == 0:
                    peer.send(message(HELLO)[:64])
            except OSError:
                pass  # as full as it may be, or thrown out
            peers.append(peer)
        late = self.start(5)
        self.assertEqual(late.port, self.port)
        late.ask("run 4")
        self.wait_for({0: 10, 1: 10, 5: 4})
        for peer in peers:
            peer.close()
        late.end()
        self.expect_all_is_well()

    def test_name_without_a_server(self):
        """Somebody of the same user who has the name, and is no server, keeps nobody from serving."""
        port = self.port + 40
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
            squatter.bind(b"\0nccl-pulse-%d-%d" % (os.geteuid(), port))
            process = self.start(3, "127.0.0.1:%d" % port)
            process.ask("run 1")
            squatter.close()
            self.wait_for({3: 1}, port)


if __name__ == "__main__":
    running.main()
