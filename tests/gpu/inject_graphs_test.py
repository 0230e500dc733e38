"""inject_graphs.py and the graphs of inject_program. The stand-in makes no stamps, so nothing counts replays there: what is
tested is that its jobs run, that no case is called right then, and what the verdicts are held against."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
import types
import unittest

from tests import running
from tests.gpu.inject_test import Injected
from tests.gpu.stand_in_case import runfile

sys.path.insert(0, runfile("tests/gpu"))
import inject_cases  # noqa: E402  pylint: disable=wrong-import-position
import inject_graphs  # noqa: E402  pylint: disable=wrong-import-position

PAGE = """# TYPE nccl_graph_replays_total counter
nccl_graph_replays_total{comm="a",rank="0"} 7
nccl_graph_replays_total{comm="a",rank="1"} 0
nccl_graph_replays_total{comm="b",rank="1"} 3
"""


class Scrapes:
    """So many scrapes, each with these hangs."""

    begin = 0

    def __init__(self, *hangs):
        self.left = [(5 * i, "", [{"hang": hang}]) for i, hang in enumerate(hangs, 1)]

    def next(self, _):
        return self.left.pop(0) if self.left else None


class ExpectationTest(unittest.TestCase):

    def judge(self, name, verdict, suspects, text="", gpus=2):
        return inject_cases.judge(inject_graphs.CASES[name], 1, gpus, verdict, suspects, suspects, "", text)

    def test_who_is_to_be_named(self):
        self.assertEqual(self.judge("graph-never", "rank_not_begun", [1]), "")
        self.assertNotEqual(self.judge("graph-never", "rank_not_begun", [0]), "")
        self.assertNotEqual(self.judge("graph-never", "no_progress", []), "")
        for gpus in (2, 4):
            self.assertEqual(self.judge("graph-between", "no_progress", [], gpus=gpus), "")
            self.assertNotEqual(self.judge("graph-between", "no_progress", [1], gpus=gpus), "")

    def test_which_call_the_text_must_say(self):
        said = "It waits at captured call 61 of 65 of graph 1."
        self.assertEqual(self.judge("graph-held", "rank_not_begun", [1], said), "")
        self.assertNotEqual(self.judge("graph-held", "rank_not_begun", [1], said.replace("61", "60")), "")

    def test_ranks_without_replays_are_found(self):
        for comm, ranks in (("a", [1]), ("b", [0]), ("c", [0, 1])):
            self.assertEqual(inject_graphs.unseen(PAGE, 2, comm, inject_graphs.REPLAYS), ranks)

    def test_silence(self):
        options = types.SimpleNamespace(hang_after=10, scrape=5, late=0.5)

        def wrong(*hangs):
            return inject_graphs.stay_silent(options, Scrapes(*hangs))[0]
        self.assertEqual(wrong(None, None, None), "")
        self.assertIn("a hang is reported", wrong(None, None, "hang"))
        self.assertIn("too short", wrong(None, None))

    def test_plan(self):
        plan = inject_graphs.plan(2, [1, 5, 20])
        self.assertEqual([(delay, rank) for case, rank, delay, call, named in plan if named], [(1, 0), (5, 1), (20, 0)])
        self.assertEqual([(case, rank) for case, rank, delay, call, named in plan if not named],
                         [("balanced", -1), ("at the 31st", 1), ("launches", 1)])


class FaultTest(unittest.TestCase):

    def test_the_time_counts_from_the_fault(self):
        for fault, event in (("held", "held"), ("never", "fault"), ("kernel", "fault")):
            scrapes, process, waited = Scrapes(), types.SimpleNamespace(event=lambda name, said=event: name == said), []
            job = types.SimpleNamespace(wait=lambda what, seconds, done: waited.append(done()))
            scrapes.begin = time.monotonic() - 4
            self.assertAlmostEqual(inject_graphs.await_fault(job, process, fault, scrapes), 4, places=0)
            self.assertEqual(waited, [True])
            self.assertAlmostEqual(scrapes.begin, time.monotonic(), places=0)


class ProgramTest(Injected):

    def test_no_case_is_right_without_stamps(self):
        self.ranks = 2
        status, output, records = self.run_inject(
            "--parts=replays", "--cases=graph-held", "--variants=server", "--run-in=0.1",
            "--graph-delays=", "--late=20")
        self.assertEqual((status, [record["state"] for record in records]), (1, ["WRONG"]), output)
        for record in records:
            # Only said once the job has run.
            self.assertIn("the page counts replays of all ranks", record["error"])

    def start(self, rank, *arguments, exchange=None):
        process = subprocess.Popen(
            [runfile("tests/gpu/inject_program"), "--rank=%d" % rank, "--nranks=2", "--exchange=" + (exchange or self.folder),
             "--library-path=" + self.libraries, "--graph=5"] + list(arguments),
            env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def next_event(self, process):
        return json.loads(process.stdout.readline())

    def test_each_case_has_a_graph(self):
        control = inject_graphs.GraphControl(types.SimpleNamespace(out=self.folder), "")
        ranks = [self.start(rank, "--control=" + os.path.join(self.folder, "control")) for rank in range(2)]
        for number, call in enumerate((-1, -1, 3)):
            control.call = call
            control.write(number, number - 1, 1)
            self.assertEqual([(event["event"], event["case"]) for event in map(self.next_event, ranks)],
                             [("case", number)] * 2)

    def test_faults(self):
        for fault in ("never", "kernel", "held"):
            exchange = tempfile.mkdtemp(prefix=fault, dir=self.folder)
            ranks = [self.start(rank, "--hold-at=3", exchange=exchange) for rank in range(2)]
            self.assertEqual([self.next_event(rank)["event"] for rank in ranks], ["running"] * 2)
            ranks[0].stdin.write(fault + "\n")
            ranks[0].stdin.flush()
            event = self.next_event(ranks[0])
            self.assertEqual((event["event"], event["fault"]), ("fault", fault))
            if fault == "held":
                self.assertEqual(self.next_event(ranks[0])["event"], "held")
            # That it has gone on would be said at once.
            self.assertEqual(select.select([ranks[0].stdout], [], [], 0.5)[0], [], fault)


if __name__ == "__main__":
    running.main()
