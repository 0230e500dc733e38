"""inject.sh, inject.py and inject_program on the stand-in for NCCL: that each injected hang gets its
verdict, and a late rank its name. Times are not looked at: goals are as long as patience."""

import json
import os
import sys
import types

from tests import running
from tests.gpu.stand_in_case import StandInCase, runfile

RANKS = 3
CASES = "watchdog,never,order,size,killed,stopped"
OTHER_CASES = "kernel-alone,finalized,kernel,kernel-waited,killed-server,crossed,order-queued"
BROADCASTS = "broadcast-root,broadcast-held"


class Injected(StandInCase):
    """inject_unseen_test.py has more of them."""

    BINARIES = ("tests/gpu/inject_program", "exporter/pulse", "plugin/libnccl-profiler-pulse.so")
    ranks = RANKS

    def run_inject(self, *arguments, script="inject.py"):
        """(exit status, output, records)"""
        status, output = self.run_ranks(script, "inject_program", "--pulse=" + runfile("exporter/pulse"),
                                        "--gpus=%d" % self.ranks, *arguments)
        with open(os.path.join(self.out, "results.jsonl"), encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        return status, output, records

    def check_hangs(self, cases, variant="server"):
        status, output, records = self.run_inject(
            "--parts=hangs", "--variants=" + variant, "--cases=" + cases, "--hang-after=2",
            "--scrape=0.5", "--run-in=0.1", "--late=200", "--budget=700")
        self.assertEqual(status, 0, output)
        self.assertEqual([(record["state"], record["wrong"]) for record in records],
                         [("OK", "")] * (cases.count(",") + 1), output)


class InjectTest(Injected):

    def test_hangs(self):
        self.check_hangs(CASES)

    def test_other_hangs(self):
        self.check_hangs(OTHER_CASES)

    def test_hangs_with_an_agent(self):
        self.check_hangs("killed,killed-node,stopped,finalized", variant="agent")

    def test_page_and_json_may_differ_at_first(self):
        sys.path.insert(0, runfile("tests/gpu"))
        import inject_watch  # pylint: disable=import-outside-toplevel
        limits = types.SimpleNamespace(hang_after=2, scrape=1, late=0)

        def hang_of(*pages):
            """Judges scrapes whose pages say so, and whose JSON has come to the verdict."""
            answers = [(number, '# TYPE %s gauge\n%s{comm="c",verdict="%s"} 1\n' % (inject_watch.HANG, inject_watch.HANG, verdict),
                        [{"comm": "c", "hang": {"verdict": "process_stopped"}}]) for number, verdict in enumerate(pages)]
            scrapes = types.SimpleNamespace(begin=0, next=lambda until: answers.pop(0) if answers else None)
            return inject_watch.until_hang(limits, scrapes, ["c"], at_first="no_progress")
        number, found, _ = hang_of("no_progress", "process_stopped")
        self.assertEqual((number, found), (1, [("process_stopped", [], "")]))
        self.assertIsNone(hang_of("no_progress", "no_progress"))
        self.assertEqual(hang_of("process_gone")[0], 0)  # which await_hang calls wrong

    def test_broadcasts_that_are_seen(self):
        self.check_hangs(BROADCASTS)

    def test_too_few_gpus_for_a_case(self):
        self.ranks = 2
        status, output, records = self.run_inject("--parts=hangs", "--cases=broadcast-held")
        self.assertEqual((status, [record["state"] for record in records]), (0, ["NOT RUN"]), output)

    def test_stragglers(self):
        _, output, records = self.run_inject(
            "--parts=stragglers", "--delays=40", "--scrape=1", "--balanced=1", "--late=200",
            "--budget=700")
        # Whom a loaded machine makes late meanwhile is not known.
        turns = [record for record in records if record.get("case") == "turn"]
        self.assertEqual([record["straggler"]["rank"] for record in turns if record["straggler"]],
                         list(range(RANKS)), output)

    def test_script(self):
        # No time for anything, which is said.
        status, output = self.run_script("inject.sh", self.binaries, self.out, "2", INJECT_BUDGET_S="30",
                                         INJECT_PARTS="hangs", INJECT_CASES="never,killed-server")
        self.assertEqual(status, 1, output)
        self.assertIn("RESULT LEFT OUT hang never, agent: no time", output)
        self.assertIn("3 cases, 3 not right", output)
        self.assertEqual(sorted(os.listdir(self.out)), ["logs.tar.gz", "report.txt", "results.jsonl"])
        status, output = self.run_script("inject.sh")
        self.assertEqual(status, 2, output)
        self.assertIn("INJECT_BUDGET_S", output)


if __name__ == "__main__":
    running.main(at_once=2)
