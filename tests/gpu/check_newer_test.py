"""check_test.py on the stand-in as other NCCLs."""

from tests import running
from tests.gpu.check_test import Checked


class NewerTest(Checked):
    """NCCL 2.30.7 reports nothing of a Broadcast but the call."""

    PHASES = "--phases=collectives,group,nonblocking,graph,exit"

    def check(self, *arguments, driver=True, FAKE_NCCL_VERSION="23007", **environment):  # pylint: disable=invalid-name
        super().check("--ranks=2", *arguments, driver=driver, FAKE_NCCL_VERSION=FAKE_NCCL_VERSION, **environment)

    def test_nvlink(self):
        self.check(self.PHASES)

    def test_nvlink_kernel(self):
        self.check(self.PHASES, "--timing=kernel")

    def test_network(self):
        self.check(self.PHASES, "--mode=network")

    def test_network_kernel(self):
        self.check(self.PHASES, "--mode=network", "--timing=kernel")

    def test_without_a_driver(self):
        self.check("--phases=collectives,broadcast,exit", driver=False)

    def test_work_after_a_broadcast_is_unknown(self):
        self.check("--phases=broadcast,exit")

    def test_broadcasts_are_seen_when_asked_for(self):
        self.check("--phases=broadcast,exit", NCCL_ALLGATHERV_ENABLE="0")

    def test_2_31(self):
        self.check("--phases=group,exit", FAKE_NCCL_VERSION="23102")

    def test_2_27(self):
        for mode in ("nvlink", "network"):
            status, output = self.run_check("--ranks=2", "--mode=" + mode, FAKE_NCCL_VERSION="22707")
            self.assertEqual(status, 0, output)


if __name__ == "__main__":
    running.main(at_once=4)
