"""check.py and nccl_program end to end, on the stand-in for NCCL: that the scripts are right before
there is a GPU, and that the plugin counts exactly in a process that NCCL-like code runs in."""

import os

from tests import running
from tests.gpu.stand_in_case import StandInCase


class Checked(StandInCase):
    """check_newer_test.py has more of them."""

    ENVIRONMENT = {}

    def run_check(self, *arguments, **environment):
        return self.run_ranks("check.py", "nccl_program", "--listen=127.0.0.1:0", "--gpus=4", *arguments, **environment)

    def check(self, *arguments, driver=True, **environment):
        if not driver:  # there are no stream durations and no heartbeat
            os.remove(os.path.join(self.libraries, "libcuda.so.1"))
        status, output = self.run_check(*arguments, **environment)
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


class FaultTest(Checked):
    """What must be noticed is."""

    def check_fault(self, fault, text, *arguments):
        status, output = self.run_check("--ranks=2", "--phases=collectives,exit", "--settle=2", *arguments,
                                        FAKE_NCCL_FAULT=fault)
        self.assertEqual(status, 1, output)
        self.assertIn("RESULT DIFFERENT", output)
        self.assertIn(text, output)

    def test_call_without_event(self):
        self.check_fault("skip", "('Reduce', 'le_16MiB', 'ncclFloat32', 'false'): expected 3, found 0")

    def test_crash(self):
        self.check_fault("crash", "rank 1 ended with status ")

    def test_hang(self):
        self.check_fault("hang", "phase collectives: no answer within 5 s", "--phase-timeout=5")


if __name__ == "__main__":
    running.main(at_once=3)
