"""`pulse agent --capture-dir`: captures of a job that hangs, taken without anybody asking."""

import json
import os
import re
import resource
import socket
import subprocess
import tarfile
import tempfile
import time
import unittest

from tests import running
from tests.node import cluster
from tests.node.cluster import Agent, wait_until
from tests.node.proof_job import Job

FLAGS = ("--hang-after=1s", "--capture-pause=1s", "--time-limit=4s")


class AutomaticCaptureTest(unittest.TestCase):

    def setUp(self):
        # Short: an NCCL unique id holds the name of a file in it.
        folder = tempfile.TemporaryDirectory(prefix="au", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.captures = os.path.join(self.folder, "captures")
        os.mkdir(self.captures)
        self.port = cluster.free_port()
        self.listen = "127.0.0.1:%d" % self.port

    def agent(self, *arguments):
        return Agent.of(self, self.listen, *FLAGS, *arguments)

    def hang(self):
        job = Job(self.folder, self.listen, "warm", "hang")
        self.addCleanup(job.close)
        job.report()
        job.go_on()

    def test_one_for_a_hang(self):
        agent = self.agent("--capture-dir=" + self.captures)
        self.hang()
        wait_until(lambda: os.listdir(self.captures) and "capture saved: " in agent.log(), "it is kept")
        name, = os.listdir(self.captures)
        path = os.path.join(self.captures, name)
        self.assertRegex(name, r"^nccl-pulse-auto-%s-%d-\d{8}-\d{6}\.tar\.gz$" % (re.escape(socket.gethostname()), self.port))
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with tarfile.open(path) as archive:
            folder = name[:-len(".tar.gz")]
            self.assertIn("hang of communicator", archive.extractfile(folder + "/reason.txt").read().decode())
            self.assertIn("HANG", archive.extractfile(folder + "/verdict.txt").read().decode())
            self.assertTrue([each for each in archive.getnames() if "/calls/" in each])
        # It goes on, and the agent looks every second: no second one for the same.
        time.sleep(5)
        self.assertTrue(cluster.values(self.port, "nccl_hang_start_timestamp_seconds", "comm"))
        self.assertEqual(os.listdir(self.captures), [name])
        self.assertEqual(agent.log().count("capture saved: "), 1)

    def test_a_program_is_started_once_for_a_hang(self):
        program = os.path.join(self.folder, "program")
        with open(program, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\ncat >> $0.out\necho it has read\n")
        os.chmod(program, 0o755)
        agent = self.agent("--on-hang=" + program, "--on-hang-as-root", "--on-hang-pause=1s")
        self.hang()
        wait_until(lambda: "its last line: it has read" in agent.log(), "it was started")
        time.sleep(5)  # several rounds
        with open(program + ".out", encoding="utf-8") as file:
            self.assertIn("HANG", json.load(file)["diagnosis"]["sentence"])

    def test_a_full_disk_is_named_once_and_tried_again(self):
        # Every file that is written is too large for it: as on a full disk, but for the words.
        agent = self.agent("--capture-dir=" + self.captures, "--capture-pause=4s")
        resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))
        self.hang()
        wait_until(lambda: "capture failed" in agent.log(), "there is no room")
        self.assertRegex(agent.log(), "capture failed: cannot write %s/...tar.gz.partial-%d: File too large"
                         % (self.captures, agent.process.pid))
        wait_until(lambda: not os.listdir(self.captures), "what was begun is removed")
        self.assertEqual(cluster.get(self.port, "/healthz"), (200, "ok\n"))
        time.sleep(5)  # another try
        self.assertEqual(agent.log().count("capture failed"), 1, agent.log())
        wait_until(lambda: not os.listdir(self.captures), "what was begun again is removed")
        resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        wait_until(lambda: "capture saved: " in agent.log(), "there is room again")
        name, = os.listdir(self.captures)
        with tarfile.open(os.path.join(self.captures, name)) as archive:
            self.assertIn(name[:-len(".tar.gz")] + "/verdict.txt", archive.getnames())
        self.assertEqual(agent.end(), 0)

    def test_nobody_else_is_asked(self):
        """Another user may listen at the same port of another of the host's addresses."""
        others = socket.create_server(("127.0.0.1", self.port))
        self.addCleanup(others.close)
        password = os.path.join(self.folder, "password")
        with open(password, "w", encoding="utf-8") as file:
            file.write("agent:secret\n")
        agent = Agent.of(self, "127.0.0.2:%d" % self.port, *FLAGS, "--capture-dir=" + self.captures,
                         "--credentials-file=" + password)
        self.hang()
        wait_until(lambda: "capture saved: " in agent.log(), "it has asked itself")
        others.settimeout(0)
        with self.assertRaises(BlockingIOError):
            others.accept()

    def test_what_is_set_counts_for_captures(self):
        agent = Agent.of(self, self.listen, "--hang-after=1h", "--time-limit=4s", "--capture-dir=" + self.captures)
        change = [cluster.PULSE, "set", "HANG_SECONDS=1", "--pid=%d" % agent.process.pid]
        wait_until(lambda: subprocess.call(change, stdout=subprocess.DEVNULL) == 0,  # it may serve before it listens
                   "it is set")
        self.hang()
        wait_until(lambda: "capture saved: " in agent.log(), "it is kept")
        name, = os.listdir(self.captures)
        with tarfile.open(os.path.join(self.captures, name)) as archive:
            verdict = archive.extractfile(name[:-len(".tar.gz")] + "/verdict.txt").read().decode()
        self.assertIn("HANG", verdict)

    def test_a_folder_that_is_not_there_is_named_once(self):
        agent = self.agent("--capture-dir=" + self.folder + "/none")
        self.hang()
        wait_until(lambda: cluster.values(self.port, "nccl_hang_start_timestamp_seconds", "comm"), "it hangs")
        time.sleep(5)
        self.assertEqual(agent.log().count("capture failed"), 1, agent.log())
        self.assertIn("there is no folder", agent.log())
        self.assertEqual(cluster.get(self.port, "/healthz"), (200, "ok\n"))
        self.assertEqual(agent.end(), 0)


if __name__ == "__main__":
    running.main(at_once=5)
