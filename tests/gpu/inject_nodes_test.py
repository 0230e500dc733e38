"""inject_nodes.py on the stand-in for NCCL: `pulse diagnose` over the endpoints of all nodes names each
culprit, and nobody else; node_load.py and full_node.sh. Times are not looked at."""

import json
import os
import sys
import tempfile

from tests import running
from tests.gpu.inject_test import Injected, runfile


class NodesTest(Injected):

    def inject(self, gpus, nodes, cases):
        out = tempfile.mkdtemp(dir=self.folder)
        status, output = self.run_script(
            [sys.executable, runfile("tests/gpu/inject_nodes.py"),
             "--library=" + runfile("plugin/libnccl-profiler-pulse.so"),
             "--program=" + runfile("tests/gpu/inject_program"),
             "--pulse=" + runfile("exporter/pulse"), "--libraries=" + self.libraries,
             "--gpus=%d" % gpus, "--nodes=%d" % nodes, "--cases=" + cases, "--hang-after=8",
             "--scrape=0.5", "--run-in=0.1", "--patience=200", "--budget=600", "--out=" + out])
        with open(os.path.join(out, "results.jsonl"), encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        return status, output, records

    def check_two_nodes(self, cases):
        status, output, records = self.inject(4, 2, cases)
        self.assertEqual((status, [record["state"] for record in records]),
                         (0, ["OK"] * (cases.count(",") + 1)), output)

    def test_two_nodes(self):
        self.check_two_nodes("never,kernel,stopped")

    def test_two_nodes_other_cases(self):
        self.check_two_nodes("killed,size,crossed")

    def test_one_rank_a_node(self):
        status, output, records = self.inject(3, 3, "never,broadcast-root")
        self.assertEqual((status, [record["state"] for record in records]), (0, ["OK"] * 2), output)

    def test_load(self):
        status, output = self.run_script(
            [sys.executable, runfile("tests/gpu/node_load.py"),
             "--library=" + runfile("plugin/libnccl-profiler-pulse.so"),
             "--program=" + runfile("tests/gpu/inject_program"),
             "--pulse=" + runfile("exporter/pulse"), "--libraries=" + self.libraries, "--gpus=2",
             "--communicators=3", "--rate=200", "--seconds=1", "--scrape=0.5",
             "--out=" + os.path.join(self.folder, "load")])
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"server: ranks' pulse-poll +[0-9.]+ % of a core")
        self.assertRegex(output, r"agent: agent [0-9.]+ % of a core")
        self.assertRegex(output, r"agent: page [1-9][0-9]* bytes, [1-9][0-9]* series")

    def test_plan_names_a_part_that_does_not_exist(self):
        status, output = self.run_script([runfile("tests/gpu/full_node.sh"), self.folder,
                                          self.folder, "everything"], FULL_NODE_GPUS="2")
        self.assertEqual(status, 2, output)
        self.assertIn("no part everything", output)

    def test_bad_arguments(self):
        for nodes, cases in ((3, "never"), (0, "never"), (1, "nothing")):
            status, output = self.run_script(
                [sys.executable, runfile("tests/gpu/inject_nodes.py"), "--library=l", "--program=p",
                 "--pulse=u", "--gpus=2", "--nodes=%d" % nodes, "--cases=" + cases,
                 "--out=" + self.folder])
            self.assertEqual(status, 2, output)


if __name__ == "__main__":
    running.main(at_once=2)
