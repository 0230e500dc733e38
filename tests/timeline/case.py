"""Runs `pulse trace`, and reads what it wrote."""

import os
import subprocess
import tempfile
import unittest

from tests.kit import PULSE, RUNFILES  # pylint: disable=unused-import
from tests.timeline import perfetto


class TraceCase(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tr", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = os.path.join(self.folder, "out.pftrace")

    def run_pulse(self, *arguments):
        """(exit status, output, errors)"""
        done = subprocess.run([PULSE, "trace", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False, cwd=self.folder)
        return done.returncode, done.stdout, done.stderr

    def trace(self, *arguments, status=0):
        """The trace, which keeps all rules; self.said is what the program said."""
        code, output, errors = self.run_pulse("--out=" + self.out, *arguments)
        self.assertEqual(code, status, errors)
        self.said = output + errors
        with open(self.out, "rb") as file:
            trace = perfetto.Trace(file.read())
        os.remove(self.out)
        return trace
