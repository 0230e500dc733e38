"""inject_test.py where less is seen than is going on: a Broadcast that NCCL reports no launch of, and a
healthy job whose GPUs have not come to what was launched."""

from tests import running
from tests.gpu.inject_test import BROADCASTS, Injected


class UnseenTest(Injected):

    def test_broadcasts_of_a_newer_nccl(self):
        self.environment["FAKE_NCCL_VERSION"] = "23007"
        self.check_hangs(BROADCASTS)

    def test_broadcasts_of_a_newer_nccl_with_an_agent(self):
        self.environment["FAKE_NCCL_VERSION"] = "23007"
        self.check_hangs("broadcast-root", variant="agent")

    def test_running_ahead_is_no_hang(self):
        self.check_hangs("run-ahead")


if __name__ == "__main__":
    running.main(at_once=3)
