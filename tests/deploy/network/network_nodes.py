"""Nodes of a cluster on one machine: a network namespace and a host name for each, and cables between them.

The calling process becomes the machine that watches: it has a namespace of its own, too, and in it the bridge into
which all cables are plugged. Nothing leaves these namespaces, and they end with the processes in them.
"""

import ctypes
import os
import socket
import subprocess
import unittest

CLONE_NEWNET, CLONE_NEWUTS = 0x40000000, 0x04000000
LIBC = ctypes.CDLL(None, use_errno=True)
BRIDGE = "pulse0"


def address(number):
    return "10.77.0.%d" % number


def _call(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _become(name):
    _call(LIBC.unshare(CLONE_NEWNET | CLONE_NEWUTS))
    socket.sethostname(name)


def _ip(*lines, preexec_fn=None):
    subprocess.run(["ip", "-batch", "-"], input="".join(line + "\n" for line in lines), text=True, check=True,
                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=preexec_fn)


def watch_or_skip(name="watcher"):
    """Before the process has a second thread. Takes root, of a user namespace at least, and iproute2."""
    try:
        _become(name)
        _ip("link set lo up", "link add %s type bridge" % BRIDGE, "addr add %s/24 dev %s" % (address(254), BRIDGE),
            "link set %s up" % BRIDGE)
    except subprocess.CalledProcessError as error:
        raise unittest.SkipTest("no bridge: " + error.stdout.strip()) from error
    except OSError as error:
        raise unittest.SkipTest("no network namespaces: %s" % error) from error


class Node:
    """number: from 0 on."""

    def __init__(self, number):
        self.number, self.name = number, "node-%d" % number
        self.address = address(number + 1)
        self.cable = "cable%d" % number
        # It holds the namespaces until it ends.
        self.holder = subprocess.Popen(["sleep", "infinity"], preexec_fn=lambda: _become(self.name))
        self.processes = [self.holder]
        self.namespaces = [os.open("/proc/%d/ns/%s" % (self.holder.pid, kind), os.O_RDONLY) for kind in ("net", "uts")]
        _ip("link add %s type veth peer name eth0 netns %d" % (self.cable, self.holder.pid),
            "link set %s master %s up" % (self.cable, BRIDGE))
        _ip("link set lo up", "addr add %s/24 dev eth0" % self.address, "link set eth0 up", preexec_fn=self._enter)

    def _enter(self):
        for namespace in self.namespaces:
            _call(LIBC.setns(namespace, 0))

    def start(self, command, **options):
        """As subprocess.Popen, on this node."""
        process = subprocess.Popen(command, preexec_fn=self._enter, **options)
        self.processes.append(process)
        return process

    def unplug(self):
        _ip("link set %s down" % self.cable)

    def plug(self):
        _ip("link set %s up" % self.cable)

    def end(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        for namespace in self.namespaces:
            os.close(namespace)
