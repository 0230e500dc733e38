"""prove.py and proof_program on the stand-in for NCCL: that the scripts are right before there is a
GPU. Only what holds however slow the machine is: durations are not looked at."""

from tests import running
from tests.gpu.stand_in_case import StandInCase


class ProveTest(StandInCase):
    ENVIRONMENT = {}

    def run_prove(self, *arguments, **environment):
        return self.run_ranks("prove.py", "proof_program", "--listen=127.0.0.1:0", "--gpus=4", *arguments, **environment)

    def test_capture(self):
        status, output = self.run_prove("capture", "--rounds=4")
        self.assertEqual(status, 0, output)
        self.assertIn("right on each rank [4, 4] of 4, invalidated [0, 0]", output)

    def test_accuracy_has_durations_of_both(self):
        status, output = self.run_prove("accuracy", "--sizes=64,4096", "--repeats=40")
        self.assertEqual(status, 0, output)
        self.assertIn("2 of 2 sizes have durations of both", output)

    def test_accuracy_without_durations_is_wrong(self):
        # Nothing crosses a network.
        status, output = self.run_prove("accuracy", "--compare=network,kernel", "--sizes=64", "--repeats=10")
        self.assertEqual(status, 1, output)
        self.assertIn("RESULT WRONG accuracy: network against kernel, nvlink: 0 of 1", output)

    def test_coverage(self):
        self.check_coverage()

    def test_coverage_where_broadcasts_are_not_reported(self):
        self.check_coverage(FAKE_NCCL_VERSION="23007")

    def check_coverage(self, **environment):
        _, output = self.run_prove("coverage", "--sizes=64,8192", "--seconds=2", **environment)
        # How often each rank samples depends on the machine.
        self.assertIn("RESULT OK coverage: calls by rank", output)
        self.assertIn("RESULT OK coverage: every call has a duration or a reason", output)
        self.assertIn("RESULT OK coverage: launches made and completed by rank", output)

    def test_straggler_ends(self):
        _, output = self.run_prove("straggler", "--repeats=5")
        self.assertIn("late by 20 ms: the others' mean grows by", output)

    def test_limit(self):
        status, output = self.run_prove("coverage", "--sizes=64", "--seconds=60", "--limit=8")
        self.assertEqual(status, 1, output)
        self.assertRegex(output, "did not finish: phase coverage: no answer within [0-9] s")


if __name__ == "__main__":
    running.main(at_once=4)
