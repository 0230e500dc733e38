"""A stand-in for NCCL's RAS in a network namespace of its own, as in a container."""

import ctypes
import fcntl
import os
import socket
import struct
import threading

from tests.fleet.ras_server import Ras

ADDRESS = "198.51.100.7"
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def call(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def start(test, port):
    """RAS at this port, and how a process comes to be there. Ends with the test."""
    made = []

    def make():
        try:
            call(LIBC.unshare(CLONE_NEWNET))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0x1))  # SIOCSIFFLAGS: up
                address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(ADDRESS))
                fcntl.ioctl(any_socket, 0x8916, struct.pack("16s16s8x", b"lo:1", address))  # SIOCSIFADDR
            made.append((Ras(port=port), os.open("/proc/thread-self/ns/net", os.O_RDONLY)))
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        test.skipTest("no network namespaces: %s" % made[0])
    ras, network = made[0]
    test.addCleanup(ras.server.close)
    test.addCleanup(os.close, network)
    return ras, lambda: call(LIBC.setns(network, CLONE_NEWNET))
