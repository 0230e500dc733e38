"""visibility.py on the stand-in for NCCL: that its table shows what each release reports."""

import json
import os

from tests import running
from tests.gpu.stand_in_case import StandInCase


class VisibilityTest(StandInCase):
    BINARIES = ("tests/gpu/visibility_program", "plugin/libnccl-profiler-pulse.so")

    def run_visibility(self, *arguments, **environment):
        """(exit status, output, {(operation, way): row of results.jsonl})"""
        status, output = self.run_script("visibility.py", *arguments, self.binaries, self.out, "own", **environment)
        rows = {}
        path = os.path.join(self.out, "results.jsonl")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for row in map(json.loads, file):
                    rows[row["operation"], row["way"]] = row
        return status, output, rows

    def test_what_is_seen_and_what_is_not(self):
        status, output, rows = self.run_visibility(
            "--operations=AlltoAll;Broadcast", "--ways=eager,captured-1",
            FAKE_NCCL_VERSION="23102")
        self.assertEqual(status, 0, output)
        self.assertEqual(rows["AlltoAll", "eager"]["cell"], "CLETH", output)
        self.assertEqual(rows["AlltoAll", "eager"]["hang"], ["rank_not_called"])
        self.assertEqual(rows["AlltoAll", "eager"]["calls"], {"AlltoAll": 80, "Send": 160, "Recv": 160})
        # Replays of a graph that has too few launches to be followed.
        self.assertEqual(rows["AlltoAll", "captured-1"]["cell"], "C---?", output)
        # This release reports the call and nothing of its launch. What becomes of that is the
        # plugin's; the page may not say that the rank is idle.
        self.assertEqual(rows["Broadcast", "eager"]["cell"][0], "C", output)
        self.assertNotEqual(rows["Broadcast", "eager"]["cell"][4], "-", output)
        with open(os.path.join(self.out, "visibility.md"), encoding="utf-8") as file:
            table = file.read()
        self.assertIn("| operation | way | 2.31.2 |", table)
        self.assertIn("| AlltoAll | eager | `C L E T H` |", table)

    def test_what_cannot_be_run_is_named(self):
        status, output, rows = self.run_visibility("--operations=AllReduce, symmetric memory", "--ways=eager")
        self.assertEqual(status, 1, output)
        self.assertEqual(rows["AllReduce, symmetric memory", "eager"]["cell"], "failed")
        with open(os.path.join(self.out, "visibility.md"), encoding="utf-8") as file:
            self.assertIn("1. AllReduce, symmetric memory, eager, NCCL 2.28.9: windows", file.read())

    def test_no_time(self):
        status, output, rows = self.run_visibility("--operations=AllReduce", "--budget=1")
        self.assertEqual(status, 1, output)
        self.assertEqual(rows["AllReduce", "eager"]["cell"], "no time")

    def test_arguments(self):
        status, output, _ = self.run_visibility("--operations=AllMax")
        self.assertEqual(status, 2, output)
        self.assertIn("--operations takes some of AllReduce", output)


if __name__ == "__main__":
    running.main(at_once=2)
