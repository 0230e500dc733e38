"""inject_nodes.py on the stand-in for NCCL: `pulse diagnose` over the endpoints of all nodes names each
culprit, and nobody else; node_load.py and full_node.sh. Times are not looked at."""

from tests import running
from tests.gpu.inject_test import Injected
from tests.gpu.stand_in_case import runfile


class NodesTest(Injected):

    def check(self, gpus, nodes, cases):
        self.ranks = gpus
        status, output, records = self.run_inject(
            "--nodes=%d" % nodes, "--cases=" + cases, "--hang-after=8", "--scrape=0.5", "--run-in=0.1", "--patience=200",
            "--budget=600", script="inject_nodes.py")
        self.assertEqual((status, [record["state"] for record in records]),
                         (0, ["OK"] * (cases.count(",") + 1)), output)

    def test_two_nodes(self):
        self.check(4, 2, "never,kernel,stopped")

    def test_two_nodes_other_cases(self):
        self.check(4, 2, "killed,size,crossed")

    def test_one_rank_a_node(self):
        self.check(3, 3, "never,broadcast-root")

    def test_load(self):
        status, output = self.run_ranks(
            "node_load.py", "inject_program", "--pulse=" + runfile("exporter/pulse"), "--gpus=2", "--communicators=3",
            "--rate=200", "--seconds=1", "--scrape=0.5")
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"server: ranks' pulse-poll +[0-9.]+ % of a core")
        self.assertRegex(output, r"agent: agent [0-9.]+ % of a core")
        self.assertRegex(output, r"agent: page [1-9][0-9]* bytes, [1-9][0-9]* series")

    def test_plan_names_a_part_that_does_not_exist(self):
        status, output = self.run_script("full_node.sh", self.folder, self.folder, "everything", FULL_NODE_GPUS="2")
        self.assertEqual(status, 2, output)
        self.assertIn("no part everything", output)

    def test_bad_arguments(self):
        for nodes, cases in ((3, "never"), (0, "never"), (1, "nothing")):
            status, output = self.run_ranks("inject_nodes.py", "p", "--pulse=u", "--gpus=2", "--nodes=%d" % nodes,
                                            "--cases=" + cases)
            self.assertEqual(status, 2, output)


if __name__ == "__main__":
    running.main(at_once=2)
