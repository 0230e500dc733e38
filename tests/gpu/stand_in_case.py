"""A folder of programs and a folder of libraries, as scripts find them on a machine with GPUs; the
libraries are the stand-in for NCCL, the CUDA runtime and the driver."""

import os
import tempfile
import unittest

from tests.kit import RUNFILES



def runfile(path):
    return os.path.join(RUNFILES, path)


class StandInCase(unittest.TestCase):
    BINARIES = ()  # in the runfiles

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
            os.symlink(runfile("tests/gpu/fake/libfake_nccl.so"),
                       os.path.join(self.libraries, name))
