"""Recorded runs, in which nothing was wrong: no page may say that something hangs or lags."""

import glob
import json
import os
import signal
import subprocess
import threading
import time
import unittest

from tests import running
from tests.node import cluster

# The runs of several ranks.
RUNS = {"h200x2-graph": 2, "h200x2-net-mixed": 2, "h200x2-nvlink-group": 2, "h200x4-pytorch-ddp-fsdp": 4}


class ReplayVerdictTest(unittest.TestCase):

    def replay(self, run, timing, speed, wanted=frozenset()):
        """(what pages said was wrong, ranks that were compared, pages); a slow machine may compare the wanted ones late."""
        port = cluster.free_port()
        folder = os.path.join(cluster.RUNFILES, "tests/traces", run)
        self.assertEqual(len(glob.glob(os.path.join(folder, "*.xz"))), RUNS[run])
        replay = subprocess.Popen(
            [os.path.join(cluster.RUNFILES, "bench/replay/replay"), "--speed=%g" % speed, "--repeat=2", "--hold=600",
             "--library=" + os.path.join(cluster.RUNFILES, "plugin/libnccl-profiler-pulse.so"),
             folder],
            env=dict(os.environ, NCCL_PULSE_TIMING=timing,
                     NCCL_PULSE_LISTEN="127.0.0.1:%d" % port),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(replay.communicate)
        self.addCleanup(replay.kill)
        wrong, compared, pages = [], set(), 0
        ended = threading.Event()
        reader = threading.Thread(target=self.read, args=(replay, ended), daemon=True)
        reader.start()
        done = False
        patience = time.monotonic() + cluster.PATIENCE_S
        while not done or (not compared >= wanted and time.monotonic() < patience):
            # The last page is of what has been replayed to the end.
            time.sleep(0.3)
            done = ended.is_set()
            self.assertTrue(reader.is_alive() or ended.is_set(), "the replay ended early")
            answer = cluster.get(port, "/api/v1/communicators")
            if answer is None:
                continue
            pages += 1
            for comm in json.loads(answer[1])["communicators"]:
                wrong += [comm[what]["text"] for what in ("hang", "straggler") if comm[what]]
                compared |= {rank["rank"] for rank in comm["ranks"] if rank["straggler_seconds"] is not None}
        self.compare_with_diagnose(port)
        replay.send_signal(signal.SIGINT)
        return wrong, compared, pages

    def compare_with_diagnose(self, port):
        """What the endpoint sends to `pulse diagnose` says the same as its own page, by another clock.

        The replay has ended, but the last page may have been made before that."""

        def is_same():
            answer = cluster.get(port, "/api/v1/communicators")
            if answer is None:
                return False
            page = json.loads(answer[1])
            said = json.loads(subprocess.run(
                [cluster.PULSE, "diagnose", "--json", "--timeout=60s",
                 "--endpoint=127.0.0.1:%d" % port], stdout=subprocess.PIPE, check=False).stdout)
            self.assertEqual((said["roots"], said["stragglers"]), ([], []))
            return said["endpoints"]["heard"] == 1 and (said["health"], said["notes"]) == (
                page["health"]["status"], page["health"]["notes"])
        cluster.wait_until(is_same, "pulse diagnose says what the page says")

    @staticmethod
    def read(replay, ended):
        """In a thread: two lines that come together are one event to select()."""
        for line in replay.stdout:
            if line.startswith("replayed "):
                ended.set()
                return

    def test_kernel_timing(self):
        for run, ranks in RUNS.items():
            with self.subTest(run):
                wrong, compared, pages = self.replay(run, "kernel", 1, set(range(ranks)))
                self.assertEqual(wrong, [])
                self.assertEqual(compared, set(range(ranks)))
                self.assertGreater(pages, 0)

    def test_default_timing(self):
        for run in RUNS:
            with self.subTest(run):
                self.assertEqual(self.replay(run, "auto", 0)[0], [])


if __name__ == "__main__":
    running.main()
