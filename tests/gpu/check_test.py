"""check.py and nccl_program end to end, on the stand-in for NCCL: that the scripts are right before
there is a GPU, and that the plugin counts exactly in a process that NCCL-like code runs in."""

import os
import subprocess
import sys
import tempfile
import unittest

from tests import running
from tests.kit import RUNFILES



def run_check(*arguments, fault=None, driver=True, environment=None):
    """(exit status, output). Without a driver there are no stream durations and no heartbeat."""
    # Short: an NCCL unique id holds the name of a file in it.
    with tempfile.TemporaryDirectory(prefix="gpu", dir="/tmp") as folder:
        for name in ("libnccl.so.2", "libcudart.so.13") + (("libcuda.so.1",) if driver else ()):
            os.symlink(os.path.join(RUNFILES, "tests/gpu/fake/libfake_nccl.so"),
                       os.path.join(folder, name))
        command = [
            sys.executable, os.path.join(RUNFILES, "tests/gpu/check.py"),
            "--library=" + os.path.join(RUNFILES, "plugin/libnccl-profiler-pulse.so"),
            "--program=" + os.path.join(RUNFILES, "tests/gpu/nccl_program"),
            "--libraries=" + folder, "--listen=127.0.0.1:0", "--gpus=4",
            "--out=" + os.path.join(folder, "out")] + list(arguments)
        # The plugin finds the driver as it does everywhere.
        environment = dict(os.environ, TMPDIR=folder, LD_LIBRARY_PATH=folder,
                           **(environment or {}))
        if fault:
            environment["FAKE_NCCL_FAULT"] = fault
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout


class Checked(unittest.TestCase):
    """check_newer_test.py has more of them."""

    def check(self, *arguments, driver=True, environment=None):
        status, output = run_check(*arguments, driver=driver, environment=environment)
        self.assertEqual(status, 0, output)
        self.assertIn("RESULT OK", output)
        self.assertIn("phase exit", output)
        stream = driver and not {"--timing=kernel", "--timing=off"} & set(arguments)
        self.assertEqual("stream durations" in output, stream, output)
        heartbeat = driver and "--timing=off" not in arguments
        self.assertEqual("nccl_launches_completed_total" in output, heartbeat, output)


class EqualTest(Checked):

    def test_nvlink(self):
        self.check("--ranks=2", "--mode=nvlink")

    def test_without_a_driver(self):
        self.check("--ranks=2", "--mode=nvlink", driver=False)

    def test_nvlink_kernel(self):
        self.check("--ranks=2", "--mode=nvlink", "--timing=kernel")

    def test_network(self):
        self.check("--ranks=2", "--mode=network")

    def test_network_kernel(self):
        self.check("--ranks=2", "--mode=network", "--timing=kernel")

    def test_network_off(self):
        self.check("--ranks=2", "--mode=network", "--timing=off")

    def test_shared_gpu_with_four_ranks(self):
        self.check("--ranks=4", "--mode=shared-gpu")


class FaultTest(unittest.TestCase):
    """What must be noticed is."""

    def check(self, fault, text, *arguments):
        status, output = run_check("--ranks=2", "--phases=collectives,exit", "--settle=2",
                                   *arguments, fault=fault)
        self.assertEqual(status, 1, output)
        self.assertIn("RESULT DIFFERENT", output)
        self.assertIn(text, output)

    def test_call_without_event(self):
        self.check("skip", "('Reduce', 'le_16MiB', 'ncclFloat32', 'false'): expected 3, found 0")

    def test_crash(self):
        self.check("crash", "rank 1 ended with status ")

    def test_hang(self):
        self.check("hang", "phase collectives: no answer within 5 s", "--phase-timeout=5")


if __name__ == "__main__":
    running.main(at_once=3)
