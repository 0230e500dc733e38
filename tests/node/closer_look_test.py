"""`pulse trace --every`: launches of a job that runs are timed more often for a while, and no longer."""

import json
import math
import os
import signal
import subprocess
import tempfile
import time
import unittest

from tests import running
from tests.node import cluster
from tests.node.cluster import NodeCase, values, wait_until
from tests.node.control_test import TABLE
from tests.node.demo_test import RANKS, Demo
from tests.timeline import perfetto

# So few that nearly nothing is timed where nobody asks for it.
BUDGET = {"NCCL_PULSE_TIMED_LAUNCHES_PER_SECOND": "1"}
# The settings of all ranks in the window.
CLOSER = {"TIMED_LAUNCHES_PER_SECOND": ["one-in-1"] * RANKS, "NETWORK_WINDOW": ["100"] * RANKS}


class CloserLookTest(NodeCase):

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="ev", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "out.pftrace")

    def start_demo(self):
        demo = Demo(self.listen, **BUDGET)
        self.addCleanup(demo.close)
        wait_until(lambda: self.ranks_of_communicators() == [2, 2, RANKS], "all ranks are there")
        wait_until(lambda: min(self.exponents().values()) > 4, "they time little")
        return {int(pid) for pid in self.exponents()}

    def ranks_of_communicators(self):
        answer = cluster.get(self.port, "/api/v1/communicators")
        return sorted(len(each["ranks"]) for each in json.loads(answer[1])["communicators"]) if answer else []

    def exponents(self):
        return {pid: -math.log2(ratio) for pid, ratio in values(self.port, "nccl_pulse_sampling_ratio", "pid").items()}

    def set_values(self, pids):
        """{setting: values} of those that are not what the processes started with; asked of the processes."""
        found = {}
        shown = subprocess.run([cluster.PULSE, "settings"], stdout=subprocess.PIPE, text=True, check=False)
        for pid, name, value, origin in TABLE.findall(shown.stdout):
            if int(pid) in pids and origin.startswith("set "):
                found.setdefault(name, []).append(value)
        return found

    def start_trace(self, *arguments):
        trace = subprocess.Popen([cluster.PULSE, "trace", "--endpoint=" + self.listen, "--out=" + self.out, *arguments],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(trace.stdout.close)
        self.addCleanup(trace.wait)
        self.addCleanup(trace.kill)
        return trace

    def trace(self, *arguments):
        trace = self.start_trace(*arguments)
        said = trace.communicate(timeout=cluster.PATIENCE_S)[0]
        return trace.returncode, said

    def timed_share(self):
        """Of the calls in the trace since the first that was timed after another one that was."""
        with open(self.out, "rb") as file:
            trace = perfetto.Trace(file.read())
        os.remove(self.out)
        made, timed = 0, 0
        for track in trace.find_tracks("calls"):
            rank = trace.path(track.uuid)[:-1]
            numbers = {mark.notes["number"] for mark in trace.marks if mark.track == track.uuid}
            durations = {one.notes["number"] for one in trace.slices
                         if trace.path(one.track)[:-1] == rank and trace.path(one.track)[-1].startswith("GPU, stream")}
            in_a_row = [number for number in sorted(durations) if number + 1 in durations]
            if in_a_row:
                made += len([number for number in numbers if in_a_row[0] <= number <= max(durations)])
                timed += len([number for number in durations if number >= in_a_row[0]])
        return timed, made

    def test_all_launches_are_timed_in_the_window_and_not_behind_it(self):
        pids = self.start_demo()
        trace = self.start_trace("--every=1", "--duration=300s")
        wait_until(lambda: self.set_values(pids) == CLOSER or trace.poll() is not None, "all are timed")
        self.assertIsNone(trace.poll(), "in the window")
        time.sleep(1.5)
        trace.send_signal(signal.SIGINT)
        said = trace.communicate(timeout=cluster.PATIENCE_S)[0]
        self.assertEqual(trace.returncode, 0, said)
        self.assertIn("%d of %d processes time all launches now" % (RANKS, RANKS), said)
        self.assertLess(said.index("each timed launch delays its GPU"), said.index("time all launches now"))
        # A machine that is busy may have no event free for some.
        timed, made = self.timed_share()
        self.assertGreater(timed, 50, said)
        self.assertGreater(timed / made, 0.5, said)
        self.assertEqual(self.set_values(pids), {}, "all is as it was")
        wait_until(lambda: min(self.exponents().values()) > 4, "little is timed")

    def test_killed_in_the_window(self):
        pids = self.start_demo()
        trace = self.start_trace("--every=1", "--duration=6s")
        wait_until(lambda: self.set_values(pids) == CLOSER or trace.poll() is not None, "all have been set")
        trace.kill()
        self.assertEqual(trace.wait(), -signal.SIGKILL, "in the window")
        self.assertNotEqual(self.set_values(pids), {}, "nobody has taken it back")
        wait_until(lambda: not self.set_values(pids), "they go back by themselves")
        wait_until(lambda: min(self.exponents().values()) > 4, "little is timed")
        self.assertFalse(os.path.exists(self.out))

    def test_who_cannot_be_reached_is_named(self):
        stopped, other, fixed = self.start(0), self.start(1), self.start(2, NCCL_PULSE_TIMING="off")
        for process in (stopped, other, fixed):
            self.assertEqual(process.ask("run 10"), "ok")
        self.wait_for({0: 10, 1: 10, 2: 10})
        server = self.server_of([stopped, other, fixed])
        if server is stopped:
            stopped, other = other, stopped
        stopped.stop()
        try:
            status, said = self.trace("--every=3", "--duration=0.5s", "--timeout=1s")
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
        self.assertEqual(status, 0, said)
        self.assertIn("1 of 3 processes time one launch in 4 now", said)
        self.assertRegex(said, r"has not reached all of process %d: it did not answer within 1000 ms" % stopped.pid)
        self.assertRegex(said, r"timed as before of process %d: launches are timed with NCCL_PULSE_TIMING=auto only"
                         % fixed.pid)
        self.assertRegex(said, r"watched as before of process %d: " % fixed.pid)
        self.assertEqual(self.set_values({process.pid for process in (stopped, other, fixed)}), {})


if __name__ == "__main__":
    running.main(at_once=3)
