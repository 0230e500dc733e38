"""run_versions.py on the stand-in for NCCL: that it unpacks, runs, and says what was right."""

import lzma
import os

from tests import running
from tests.gpu.stand_in_case import StandInCase, runfile


class RunVersionsTest(StandInCase):
    BINARIES = ("tests/gpu/inject_program", "tests/gpu/proof_program", "tests/gpu/nccl_program",
                "exporter/pulse", "plugin/libnccl-profiler-pulse.so")

    def run_versions(self, *arguments, **environment):
        """(exit status, output)"""
        return self.run_script("run_versions.py", "--gpus=2", self.binaries, self.out, *arguments, **environment)

    def read(self, name):
        with open(os.path.join(self.out, name), encoding="utf-8") as file:
            return file.read()

    def test_a_packed_library(self):
        packed = os.path.join(self.folder, "libnccl-new.so.2.xz")
        with open(runfile("tests/gpu/fake/libfake_nccl.so"), "rb") as file:
            with lzma.open(packed, "wb", preset=0) as out:
                out.write(file.read())
        _, output = self.run_versions(
            packed, FAKE_NCCL_VERSION="23007", PULSE_PARTS="capture", INJECT_PARTS="hangs",
            INJECT_CASES="broadcast-held")
        self.assertRegex(self.read("table.txt"), r"(?m)^ +NCCL +2\.30\.7$")
        self.assertRegex(self.read("table.txt"), r"(?m)^prove +capture +right \d+\.0 s$")
        # Two GPUs are too few for it.
        self.assertRegex(self.read("table.txt"), r"(?m)^inject +broadcast-held, server +not run$")
        self.assertIn("RESULT OK capture", self.read("report.txt"))
        self.assertEqual(sorted(os.listdir(self.out)), ["logs-2.30.7.tar", "report.txt", "results.jsonl", "table.txt"])
        self.assertIn("2 cells, 0 not right", output)

    def test_what_is_wrong_is_said(self):
        status, output = self.run_versions("own", "--parts=prove", PULSE_PARTS="check", FAKE_NCCL_FAULT="skip")
        self.assertEqual(status, 1, output)
        self.assertRegex(self.read("table.txt"), r"(?m)^prove +check +DIFFERENT")

    def test_no_time(self):
        status, output = self.run_versions("own", "--budget=10")
        self.assertEqual(status, 1, output)
        self.assertRegex(self.read("table.txt"), r"(?m)^prove +\(all\) +no time$")

    def test_bad_libraries(self):
        for library, text in (("/nowhere", "/nowhere: no such file or folder"),
                              (__file__, "invalid ELF header"),
                              (self.folder, "no libnccl.so.2 in " + self.folder)):
            status, output = self.run_versions(library, PULSE_LIBRARIES=self.folder)
            self.assertEqual(status, 2, output)
            self.assertIn(text, output)
        status, output = self.run_versions("own", self.libraries)
        self.assertEqual(status, 2, output)
        self.assertIn("a version twice: 2.28.9, 2.28.9", output)


if __name__ == "__main__":
    running.main(at_once=4)
