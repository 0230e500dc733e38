"""Peers that send what nobody thought of: random changes of honest messages, memory and descriptors, thousands of
connections. The server keeps its descriptors, its memory and its page."""

import array
import ctypes
import os
import random
import socket
import struct

from tests import running
from tests.node.cluster import get, open_files, values, wait_until
from tests.node.hostile_peer_test import HELLO, YIELD, HostileCase, memory, memory_of, message

SEED = 1
CONNECTIONS = 4000
MEMORIES = 120
MESSAGES = 1500
WELCOME = 2  # and where it stands in a message, exporter/node/handover.h
KIND_OFFSET = 12


def resident_kib(process):
    with open("/proc/%d/status" % process.pid, encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


class FuzzTest(HostileCase):

    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.files = len(open_files(self.server.pid))
        self.resident = resident_kib(self.server)

    def expect_no_trace(self):
        wait_until(lambda: values(self.port, "nccl_pulse_processes") == {(): 2}, "peers have left")
        self.expect_all_is_well()
        wait_until(lambda: len(open_files(self.server.pid)) <= self.files + 1, "its descriptors are closed")
        self.assertLess(resident_kib(self.server), self.resident + 64 * 1024)

    def peer(self):
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Before the time limit, which would make a full queue an error.
        peer.connect(self.name)
        peer.settimeout(60)
        return peer

    def change(self, content, begin=0, end=None):
        """A few numbers of it, to values that are likely to hurt."""
        for _ in range(self.random.randint(1, 6)):
            size = self.random.choice((1, 2, 4, 8))
            at = self.random.randrange(begin, end or len(content), size)
            bits = 8 * size
            value = self.random.choice((0, 1, (1 << bits) - 1, 1 << (bits - 1), self.random.getrandbits(bits)))
            content[at:at + size] = value.to_bytes(size, "little")

    def test_messages(self):
        honest = os.open("/proc/%d/fd/0" % os.getpid(), os.O_RDONLY)
        for _ in range(MESSAGES):
            data = bytearray(message(self.random.randint(0, 9)))
            self.change(data, 0, 40)
            if struct.unpack_from("<I", data, KIND_OFFSET)[0] == YIELD:
                data[KIND_OFFSET] += 1  # its own user may ask for the port, and would get it
            data = data[:self.random.choice((len(data), len(data), 1, 20, 255))]
            count = self.random.choice((0, 0, 1, 2, 20))
            peer = self.peer()
            try:
                peer.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                       array.array("i", [honest] * count))] if count else [])
                if self.random.random() < 0.5:
                    peer.send(data)
            except OSError:
                pass  # thrown out already
            peer.close()
        os.close(honest)
        self.expect_no_trace()

    def test_memory(self):
        """Of the header mostly, and of what lies behind it: each is refused, or read without harm."""
        source = memory_of(self.server)
        size = os.fstat(source).st_size
        end = 1 << 20
        honest = os.pread(source, end, 0)
        os.close(source)
        taken = 0
        for i in range(MEMORIES):
            content = bytearray(honest)
            self.change(content, *((0, 256) if i % 3 == 0 else (0, 4096) if i % 3 == 1 else (0, end)))
            fd = memory(content, size=size)
            peer = self.peer()
            socket.send_fds(peer, [message(HELLO)], [fd])
            answer = peer.recv(4096)
            if len(answer) >= 16 and struct.unpack_from("<I", answer, KIND_OFFSET)[0] == WELCOME:
                taken += 1
                # Taken: changed again while it is read.
                self.change(content, 0, 8192)
                os.pwrite(fd, content[:8192], 0)
                self.assertEqual(wait_until(lambda: get(self.port))[0], 200)
            peer.close()
            os.close(fd)
        self.assertTrue(10 < taken < MEMORIES - 10, taken)
        self.expect_no_trace()

    def test_descriptors_of_all_kinds(self):
        reading, writing = os.pipe()
        pair = socket.socketpair()
        own = self.peer()
        fds = [reading, writing, pair[0].fileno(), own.fileno(), os.eventfd(0),
               os.pidfd_open(os.getpid()), os.open("/", os.O_RDONLY), os.open("/", os.O_PATH),
               os.open("/dev/null", os.O_RDWR), os.open("/proc/self/mem", os.O_RDWR),
               memory(b"x" * (1 << 20), size=(1 << 63) - (1 << 20), seals=6)]
        for fd in fds:
            peer = self.peer()
            socket.send_fds(peer, [message(HELLO)], [fd])
            # Refused with a reason, and the end.
            self.assertEqual(len(list(iter(lambda: peer.recv(4096), b""))), 1, fd)
            peer.close()
        for fd in fds[4:]:
            os.close(fd)
        os.close(reading)
        os.close(writing)
        for each in (*pair, own):
            each.close()
        self.expect_no_trace()

    def join(self):
        """(socket, memory) of a member whose memory is a copy of the server's; None if it is one no more: what was copied in
        the middle of a change is not sound."""
        source = memory_of(self.server)
        fd = memory(os.pread(source, os.fstat(source).st_size, 0))
        os.close(source)
        peer = self.peer()
        socket.send_fds(peer, [message(HELLO)], [fd])
        peer.settimeout(0.1)
        for _ in range(50):
            if values(self.port, "nccl_pulse_processes") == {(): 3}:
                peer.settimeout(60)
                return peer, fd
            try:
                if not peer.recv(4096):
                    break
            except TimeoutError:
                pass
        peer.close()
        os.close(fd)
        return None

    def test_memory_cannot_shrink_under_the_reader(self):
        peer, fd = wait_until(self.join, "it is a member")
        size = os.fstat(fd).st_size
        with self.assertRaises(PermissionError):
            os.ftruncate(fd, 0)
        # A hole is memory without content: it reads as zeros, and costs the peer its place, whatever
        # the server read in the middle of it.
        keep_size_and_punch_hole = 3
        libc = ctypes.CDLL(None)
        libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
        self.assertEqual(libc.fallocate(fd, keep_size_and_punch_hole, 0, size), 0)
        wait_until(lambda: values(self.port, "nccl_pulse_processes") == {(): 2}, "it is thrown out")
        peer.close()
        os.close(fd)
        self.expect_no_trace()

    def test_thousands_of_connections(self):
        for i in range(CONNECTIONS):
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            peer.setblocking(i % 8 == 0)
            try:
                peer.connect(self.name)
                if i % 3 == 0:
                    peer.send(b"x")
            except OSError:
                pass  # as many as may wait are waiting
            peer.close()
        # The queue may still be full: then it joins a little later, and has no address until then.
        late = self.start(5)
        late.ask("run 4")
        self.wait_for({0: 10, 1: 10, 5: 4})
        late.end()
        self.expect_no_trace()


if __name__ == "__main__":
    running.main()
