"""A server whose sockets outlive it, because a child has them that was made without fork's handlers. It is
no server any more, and an open connection is no live member."""

import os
import signal
import tempfile

from tests import running
from tests.node.cluster import Agent, NodeCase, ranks, values, wait_until


class DeadServerTest(NodeCase):

    def clone(self, process):
        child = int(process.ask("clone"))
        self.kill_at_the_end(child)
        return child

    def test_members_meet_elsewhere_and_come_back(self):
        processes = self.start_ranks(3)
        server = self.server_of(processes)
        processes.remove(server)
        child = self.clone(server)
        server.kill()
        expected = {process.rank: 10 for process in processes}
        self.wait_for(expected, self.port + 1)
        for process in processes:
            wait_until(lambda: "process %d has ended, but its socket is still open" % server.pid in
                       process.log(), "it is said why")
        # A new one finds them.
        late = self.start(7)
        self.assertEqual(late.port, self.port + 1)
        late.ask("run 3")
        expected[7] = 3
        self.wait_for(expected, self.port + 1)
        os.kill(child, signal.SIGKILL)
        self.wait_for(expected)

    def test_a_member_that_is_dead_is_said_to_be(self):
        agent = Agent.of(self, self.listen)
        first, second = self.start_ranks(2)
        self.clone(first)
        first.kill()
        wait_until(lambda: values(self.port, "nccl_pulse_process_up", "global_rank") == {"0": 0, "1": 1}, "it is gone")
        self.assertEqual(set(ranks(self.port)), {0, 1})
        self.assertIn("process %d of rank 0 ended unexpectedly" % first.pid, agent.log())
        second.ask("run 1")
        self.wait_for({0: 10, 1: 11})


class AbandonedFileTest(NodeCase):
    """In NCCL_PULSE_FILE_SD_DIR."""

    def test_of_processes_that_a_signal_has_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            for number, end in enumerate((signal.SIGTERM, signal.SIGINT, signal.SIGKILL)):
                process = self.start(number, "127.0.0.1:%d" % (self.port + 10 * number), NCCL_PULSE_FILE_SD_DIR=folder)
                left, = os.listdir(folder)  # of the one before
                self.assertTrue(left.endswith("-%d.json" % process.port), left)
                os.kill(process.pid, end)
                process.process.wait()
            self.assertEqual(os.listdir(folder), [left])
            agent = Agent.of(self, "127.0.0.1:%d" % (self.port + 30), "--file-sd-dir=" + folder)
            own, = os.listdir(folder)
            self.assertTrue(own.endswith("-%d.json" % (self.port + 30)), own)


if __name__ == "__main__":
    running.main(at_once=4)
