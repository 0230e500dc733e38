"""Scripts of this folder with a folder of programs and one of libraries, as on a machine with GPUs; the libraries are
the stand-in for NCCL, the CUDA runtime and the driver."""

import os
import subprocess
import sys
import tempfile
import unittest

from tests.kit import RUNFILES


def runfile(path):
    return os.path.join(RUNFILES, path)


class StandInCase(unittest.TestCase):
    BINARIES = ()  # in the runfiles
    ENVIRONMENT = {"FAKE_NCCL_ASYNC": "1"}

    def setUp(self):
        # Short: an NCCL unique id holds the name of a file in it.
        folder = tempfile.TemporaryDirectory(prefix="gpu", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = os.path.join(self.folder, "out")
        self.binaries = os.path.join(self.folder, "binaries")
        self.libraries = os.path.join(self.folder, "lib")
        for path in (self.binaries, self.libraries):
            os.mkdir(path)
        for path in self.BINARIES:
            os.symlink(runfile(path), os.path.join(self.binaries, os.path.basename(path)))
        for name in ("libnccl.so.2", "libcudart.so.13", "libcuda.so.1"):
            os.symlink(runfile("tests/gpu/fake/libfake_nccl.so"), os.path.join(self.libraries, name))
        # The plugin finds the driver as it does everywhere.
        self.environment = dict(os.environ, TMPDIR=self.folder, LD_LIBRARY_PATH=self.libraries, INJECT_TORCH="0",
                                PULSE_LIBRARIES=self.libraries, **self.ENVIRONMENT)

    def run_script(self, name, *arguments, **environment):
        """(exit status, output) of a script of this folder"""
        command = [runfile("tests/gpu/" + name), *arguments]
        done = subprocess.run(command if name.endswith(".sh") else [sys.executable, *command],
                              env={**self.environment, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        return done.returncode, done.stdout

    def run_ranks(self, name, program, *arguments, **environment):
        """As run_script, of one that starts ranks of a program of this folder."""
        return self.run_script(
            name, "--library=" + runfile("plugin/libnccl-profiler-pulse.so"), "--program=" + runfile("tests/gpu/" + program),
            "--libraries=" + self.libraries, "--out=" + self.out, *arguments, **environment)
