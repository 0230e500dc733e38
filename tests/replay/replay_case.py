"""A replay through a plugin that writes down every call, and what it wrote."""

import collections
import glob
import os
import subprocess
import unittest

from tests.kit import temporary_folder
from tests.replay.replayed_run import REPLAY, RUNFILES, trace_folder

RECORDER = os.path.join(RUNFILES, "tests/replay/librecording_plugin.so")
NO_PLUGIN = os.path.join(RUNFILES, "tests/replay/libno_plugin.so")

BITS = {"group": 0x1, "coll": 0x2, "p2p": 0x4, "proxyOp": 0x8, "proxyStep": 0x10, "proxyCtrl": 0x20,
        "kernelCh": 0x40, "groupApi": 0x100, "collApi": 0x200, "p2pApi": 0x400, "kernelLaunch": 0x800}
TYPES = {bit: name for name, bit in BITS.items()}

ALL = 0xfff
PATIENCE_S = 240  # for a broken build to end; a slow machine is no failure

Call = collections.namedtuple("Call", "thread time_ns kind handle arguments")


def parse_call(line):
    thread, time_ns, kind, *rest = line.split()
    if kind in ("init", "finalize"):
        return Call(int(thread), int(time_ns), kind, None, rest)
    return Call(int(thread), int(time_ns), kind, int(rest[0]), rest[1:])


class ReplayTest(unittest.TestCase):

    def setUp(self):
        self.folder = temporary_folder(self)

    def path(self, name):
        return os.path.join(self.folder, name)

    def environment(self, settings):
        return dict(os.environ, RECORDING_PLUGIN_FILE=self.path("calls"),
                    **{"RECORDING_PLUGIN_" + name: str(value) for name, value in settings.items()})

    def replay(self, folder, *flags, library=RECORDER, **settings):
        """Runs a replay to its end; returns (status, stdout, stderr)."""
        result = subprocess.run([REPLAY, "--library=" + library, *flags, folder], text=True,
                                capture_output=True, env=self.environment(settings), timeout=PATIENCE_S)
        return result.returncode, result.stdout, result.stderr

    def calls(self):
        """Calls by process, in the order of the processes."""
        processes = []
        for path in sorted(glob.glob(self.path("calls") + ".*"), key=lambda p: int(p.split(".")[-1])):
            with open(path) as lines:
                processes.append([parse_call(line) for line in lines])
            os.remove(path)
        return processes

    def recorded(self, run, *flags, **settings):
        status, out, err = self.replay(trace_folder(run), "--speed=0", *flags, **settings)
        self.assertEqual(status, 0, err)
        return self.calls()
