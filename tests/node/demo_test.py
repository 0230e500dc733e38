"""`pulse demo`: the story goes on by what is seen, names the right ranks, and ends in order."""

import json
import os
import queue
import re
import signal
import socket
import subprocess
import threading
import unittest

from tests import running
from tests.node import cluster, json_fields

RANKS = 4
LATE, SILENT = 2, 1


def is_alive(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Demo:

    def __init__(self, listen, *arguments, **environment):
        self.process = subprocess.Popen(
            [cluster.PULSE, "demo", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=dict(os.environ, NCCL_PULSE_LISTEN=listen, **environment),
            cwd="/proc")  # nobody can write there, root included
        self.lines = queue.Queue()
        self.said = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def wait_for(self, pattern):
        """The match, in the next line that has it."""
        while True:
            line = self.lines.get(timeout=cluster.PATIENCE_S)
            if line is None:
                raise AssertionError("it ended; it said:\n%s%s" % ("".join(self.said), self.process.stderr.read()))
            self.said.append(line)
            match = re.search(pattern, line)
            if match:
                return match

    def end(self, with_signal=signal.SIGINT):
        """(exit status, errors)"""
        self.process.send_signal(with_signal)
        return self.wait()

    def wait(self):
        self.process.wait(timeout=cluster.PATIENCE_S)
        errors = self.process.stderr.read()
        self.reader.join()
        return self.process.returncode, errors

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()


class DemoTest(unittest.TestCase):

    def setUp(self):
        self.port = cluster.free_port()

    def start(self, *arguments, listen=None, **environment):
        demo = Demo(listen or "127.0.0.1:%d" % self.port, *arguments, **environment)
        self.addCleanup(demo.close)
        return demo

    def communicator(self):
        """Of all ranks, the present one."""
        answer = cluster.get(self.port, "/api/v1/communicators")
        found = json.loads(answer[1])["communicators"] if answer else []
        return next((comm for comm in found if comm["name"] == "dp" and
                     any(rank["active"] for rank in comm["ranks"])), None)

    def answer(self, path=""):
        return json.loads(cluster.wait_until(lambda: cluster.get(self.port, "/api/v1/communicators" + path))[1])

    def pids(self):
        """By rank, once all are there."""
        cluster.wait_until(lambda: len((self.communicator() or {"ranks": []})["ranks"]) == RANKS,
                           "all ranks are on the page")
        return [rank["process"]["pid"] for rank in self.communicator()["ranks"]]

    def test_it_says_how_to_call_it(self):
        for environment, name, following in (
                ({}, re.escape(cluster.PULSE), "export NCCL_PROFILER_PLUGIN=.*libnccl-profiler-pulse.so"),
                ({"BUILD_WORKSPACE_DIRECTORY": "/src"}, "bazel-bin/exporter/pulse", "build and install a package .*")):
            demo = self.start(**environment)
            demo.wait_for(r"^  terminal  %s status --watch 127\.0\.0\.1:%d$" % (name, self.port))
            demo.wait_for(r"^  verdict   %s diagnose 127\.0\.0\.1:%d$" % (name, self.port))
            self.assertEqual(demo.end()[0], 0)
            demo.wait_for("^Next, for a job of yours: %s$" % following)

    def assert_gone(self, pids):
        cluster.wait_until(lambda: not any(map(is_alive, pids)), "all processes have ended")

    def test_a_round(self):
        demo = self.start()
        demo.wait_for(r"http://127\.0\.0\.1:%d/$" % self.port)
        demo.wait_for("Now all is well")
        pids = self.pids()
        first = self.communicator()["comm"]
        cluster.wait_until(lambda: self.communicator()["ranks"][0]["operations"], "calls are counted")
        calls = self.communicator()["ranks"][0]["operations"][0]["calls"]
        cluster.wait_until(lambda: self.communicator()["ranks"][0]["operations"][0]["calls"] > calls, "something moves")
        demo.wait_for("Now rank %d is late by 40 %%" % LATE)
        demo.wait_for(r"page says SLOW\. Rank %d \(pid %d, GPU %d\) " % (LATE, pids[LATE], LATE))
        self.assertEqual(self.communicator()["straggler"]["rank"], LATE)
        self.assertEqual(json_fields.of_page(self.answer()), [])
        latencies = {rank["rank"]: next(each for each in rank["latencies"]
                                        if each["op"] == "AllReduce" and each["size"] == "le_64MiB")
                     for rank in self.communicator()["ranks"]}
        for rank, latency in latencies.items():
            self.assertEqual((latency["measure"], latency["source"]), ("duration", "stream"))
            # The last one to come waits for nobody.
            if rank != LATE:
                self.assertGreater(latency["p99"], 10 * latencies[LATE]["p50"])

        demo.wait_for("rank %d has stopped calling" % SILENT)
        demo.wait_for(r"page says HANG\. Rank %d \(pid %d, GPU %d\) has not called AllReduce" %
                      (SILENT, pids[SILENT], SILENT))
        # One of them may have waited long enough before the others have.
        cluster.wait_until(lambda: self.communicator()["hang"]["waiting"] == [0, 2, 3], "all others wait")
        hang = self.communicator()["hang"]
        self.assertEqual((hang["verdict"], hang["suspects"], hang["waiting"], hang["usual"]),
                         ("rank_not_called", [SILENT], [0, 2, 3], False))
        found = cluster.values(self.port, "nccl_hang_start_timestamp_seconds", "verdict", "suspect_rank")
        self.assertEqual(list(found), [("rank_not_called", str(SILENT))])
        self.assertEqual(json_fields.of_page(self.answer()), [])
        calls = self.answer("/%s/calls" % first)
        self.assertNotEqual(calls["ranks"][0]["calls"], [])
        self.assertEqual(json_fields.of_calls(calls), [])
        waiting = self.communicator()["ranks"][0]
        self.assertEqual(waiting["state"], "in_flight")

        demo.wait_for("no longer says HANG")
        self.assertIsNone(self.communicator()["hang"])
        demo.wait_for("The job has restarted")
        cluster.wait_until(lambda: (self.communicator() or {"comm": first})["comm"] != first,
                           "there are new communicators")
        # Not a wait that has been seen before: the next hang is one, too.
        self.assertEqual([rank["longest_waits"] for rank in self.communicator()["ranks"]], [[]] * RANKS)
        self.assertEqual(demo.end(), (0, ""))
        self.assert_gone(pids)

    def test_ctrl_c_in_a_hang(self):
        demo = self.start(NCCL_PULSE_HANG_SECONDS="1")
        pids = self.pids()
        demo.wait_for("page says HANG")
        demo.process.send_signal(signal.SIGINT)
        for pid in pids:  # as a terminal does, to all of the group
            os.kill(pid, signal.SIGINT)
        self.assertEqual(demo.wait(), (0, ""))
        self.assert_gone(pids)

    def test_a_rank_is_killed(self):
        demo = self.start()
        pids = self.pids()
        os.kill(pids[2], signal.SIGKILL)
        status, errors = demo.wait()
        self.assertEqual(status, 7, errors)
        self.assertIn("pulse: rank 2 (pid %d) was killed by signal 9 (Killed)" % pids[2], errors)
        self.assert_gone(pids)

    def test_the_demo_is_killed(self):
        demo = self.start()
        pids = self.pids()
        demo.process.kill()
        self.assert_gone(pids)

    def test_port_in_use(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", self.port))
            other.listen()
            demo = self.start()
            self.port = int(demo.wait_for(r"http://127\.0\.0\.1:(\d+)/$").group(1))
            self.assertNotEqual(self.port, other.getsockname()[1])
            demo.wait_for("Now all is well")
            self.assertEqual(len(self.pids()), RANKS)
            self.assertEqual(demo.end(signal.SIGTERM)[0], 0)

    def test_nowhere_to_write(self):
        demo = self.start(TMPDIR="/proc/nowhere", HOME="/proc/nowhere")
        demo.wait_for("Now all is well")
        self.assertEqual(demo.end(), (0, ""))

    def test_nothing_served(self):
        demo = self.start(listen="off")
        status, errors = demo.wait()
        self.assertEqual(status, 1)
        self.assertIn("NCCL_PULSE_LISTEN=off", errors)

    def test_no_plugin(self):
        for library in ("/nowhere.so", cluster.PULSE):
            demo = self.start("--library=" + library)
            status, errors = demo.wait()
            self.assertEqual(status, 5, errors)
            self.assertIn("no profiler plugin", errors)


if __name__ == "__main__":
    running.main(at_once=4)
