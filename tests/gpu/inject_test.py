"""inject.sh, inject.py and inject_program on the stand-in for NCCL: that each injected hang gets its
verdict, and a late rank its name. Times are not looked at: goals are as long as patience."""

import json
import os
import subprocess
import sys
import tempfile
import types
import unittest

from tests import running
from tests.kit import RUNFILES

RANKS = 3
CASES = "watchdog,never,order,size,killed,stopped"
OTHER_CASES = "kernel-alone,finalized,kernel,kernel-waited,killed-server,crossed,order-queued"
BROADCASTS = "broadcast-root,broadcast-held"


def runfile(path):
    return os.path.join(RUNFILES, path)


class Injected(unittest.TestCase):
    """inject_unseen_test.py has more of them."""

    def setUp(self):
        # Short: an NCCL unique id holds the name of a file in it.
        folder = tempfile.TemporaryDirectory(prefix="inj", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.ranks = RANKS
        self.libraries = os.path.join(self.folder, "lib")
        os.mkdir(self.libraries)
        for name in ("libnccl.so.2", "libcudart.so.13", "libcuda.so.1"):
            os.symlink(runfile("tests/gpu/fake/libfake_nccl.so"),
                       os.path.join(self.libraries, name))
        self.environment = dict(os.environ, TMPDIR=self.folder, LD_LIBRARY_PATH=self.libraries,
                                FAKE_NCCL_ASYNC="1", PULSE_LIBRARIES=self.libraries)

    def run_script(self, command, **environment):
        """(exit status, output)"""
        done = subprocess.run(command, env=dict(self.environment, **environment),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        return done.returncode, done.stdout

    def run_inject(self, *arguments):
        """(exit status, output, {(case, variant or rank): record})"""
        out = tempfile.mkdtemp(dir=self.folder)
        status, output = self.run_script(
            [sys.executable, runfile("tests/gpu/inject.py"),
             "--library=" + runfile("plugin/libnccl-profiler-pulse.so"),
             "--program=" + runfile("tests/gpu/inject_program"),
             "--pulse=" + runfile("exporter/pulse"), "--libraries=" + self.libraries,
             "--gpus=%d" % self.ranks, "--out=" + out] + list(arguments))
        with open(os.path.join(out, "results.jsonl"), encoding="utf-8") as file:
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
        binaries = os.path.join(self.folder, "binaries")
        os.mkdir(binaries)
        for path in ("tests/gpu/inject_program", "exporter/pulse",
                     "plugin/libnccl-profiler-pulse.so"):
            os.symlink(runfile(path), os.path.join(binaries, os.path.basename(path)))
        out = os.path.join(self.folder, "result")
        # No time for anything, which is said.
        status, output = self.run_script([runfile("tests/gpu/inject.sh"), binaries, out, "2"],
                                         INJECT_BUDGET_S="30", INJECT_TORCH="0",
                                         INJECT_PARTS="hangs", INJECT_CASES="never,killed-server")
        self.assertEqual(status, 1, output)
        self.assertIn("RESULT LEFT OUT hang never, agent: no time", output)
        self.assertIn("3 cases, 3 not right", output)
        self.assertEqual(sorted(os.listdir(out)), ["logs.tar.gz", "report.txt", "results.jsonl"])
        status, output = self.run_script([runfile("tests/gpu/inject.sh")])
        self.assertEqual(status, 2, output)
        self.assertIn("INJECT_BUDGET_S", output)


if __name__ == "__main__":
    running.main(at_once=2)
