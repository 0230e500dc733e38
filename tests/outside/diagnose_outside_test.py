"""`pulse diagnose` on jobs without the plugin: the program itself, against a stand-in for NCCL's RAS."""

import json
import os
import socket
import subprocess
import threading
import unittest

from tests import running
from tests.fleet.ras_server import Ras
from tests.kit import PULSE
from tests.outside import pod, rank_without_plugin

FAST = "--hang-after=1s"


def rank(number, count, missing=False, host="192.0.2.7", pid=None):
    """As NCCL 2.28.9 writes it, with the comma that it forgets."""
    who = '{"rank": %d, "host": "%s", "pid": %d, "cuda_dev": %d, "nvml_dev": %d' % (number, host, pid or 100 + number,
                                                                                   number, number)
    if missing:
        return who + '\n "status": {"unresponsive": true, "considered_dead": true}}'
    return who + (', "status": {"init_state": 0, "async_error": 0}, "collective_counts": {"Broadcast": 0, "Reduce": 0, '
                  '"AllGather": 0, "ReduceScatter": 0, "AllReduce": %d}}' % count)


def report(counts, missing=(), host="192.0.2.7", pids=()):
    return ('{"nccl_version": "2.28.9", "communicators": [{"hash": "0x51", "secondary_hash": "0x1", "size": %d, '
            '"ranks": [%s], "missing_ranks": [%s]}]}' %
            (len(counts) + len(missing), ", ".join(rank(i, count, host=host, pid=pids[i] if pids else None) for i, count in enumerate(counts)),
             ", ".join(rank(i, 0, True) for i in missing)))


class DiagnoseOutsideTest(unittest.TestCase):

    def diagnose(self, *flags):
        """The verdict on the job that RAS knows. Something else on this host may have one of its own."""
        run = subprocess.run([PULSE, "diagnose", FAST, "--json", *flags], capture_output=True, text=True,
                             check=False)
        decoder, verdicts, at = json.JSONDecoder(), [], 0
        while run.stdout[at:].strip():
            at += len(run.stdout[at:]) - len(run.stdout[at:].lstrip())
            verdict, length = decoder.raw_decode(run.stdout[at:])
            verdicts.append(verdict)
            at += length
        return run, [verdict for verdict in verdicts if verdict["outside"]]

    def ras(self, *arguments, **options):
        ras = Ras(*arguments, **options)
        self.addCleanup(ras.server.close)
        return ras

    def test_a_rank_that_has_launched_fewer(self):
        ras = self.ras(report([500, 499, 500]))
        run, verdicts = self.diagnose(ras.flag)
        self.assertEqual((run.returncode, len(verdicts)), (3, 1), run.stderr)
        verdict = verdicts[0]
        self.assertEqual(verdict["finding"], "hang")
        self.assertIn("rank 1 (192.0.2.7, GPU 1, pid 101) of a job without NCCL Pulse has launched 499 AllReduce, the "
                      "others 500", verdict["sentence"])
        self.assertEqual([each["rank"] for each in verdict["roots"][0]["ranks"]], [1])
        self.assertTrue(verdict["outside"].startswith("From NCCL's RAS (2.28.9)"), verdict["outside"])
        # Only what is harmless is sent.
        self.assertEqual({line.split()[0] for line in ras.heard}, {"CLIENT", "SET", "TIMEOUT", "STATUS"})
        self.assertEqual(ras.heard.count("SET FORMAT json"), ras.heard.count("STATUS"))

    def test_a_job_that_moves(self):
        ras = self.ras()
        lock = threading.Lock()
        counts = iter(range(500, 100000))

        class Moving(dict):
            def get(self, key, otherwise=None):
                if key != "STATUS":
                    return super().get(key, otherwise)
                with lock:
                    count = next(counts)
                return report([count, count, count]).encode()

        ras.answers = Moving(ras.answers)
        run, verdicts = self.diagnose(ras.flag)
        self.assertEqual((run.returncode, [verdict["finding"] for verdict in verdicts]), (0, ["none"]), run.stdout)

    def test_an_old_nccl_is_not_asked_for_a_report(self):
        ras = self.ras(is_old=True)
        run, verdicts = self.diagnose(ras.flag)
        self.assertEqual((run.returncode, verdicts), (2, []))
        self.assertIn("NCCL is older than 2.28.7", run.stderr)
        self.assertNotIn("STATUS", ras.heard)

    def test_whatever_listens(self):
        for report_text in ("", "{}", "[" * 100000, '{"communicators": [{}]}', "\xff" * 1000):
            run, verdicts = self.diagnose(self.ras(report_text).flag)
            self.assertEqual((run.returncode, verdicts), (2, []), report_text[:40])

    def test_a_host_that_is_not_found(self):
        run, verdicts = self.diagnose("--ras=no-such-host.invalid")
        self.assertEqual((run.returncode, verdicts), (2, []))
        self.assertRegex(run.stderr, "NCCL's RAS at no-such-host.invalid:28028: .* name")

    def test_ras_in_another_network_namespace(self):
        # Nobody in its own network may be asked instead.
        namesake = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(namesake.close)
        ras, enter = pod.start(self, namesake.getsockname()[1])
        environment = dict(os.environ, NCCL_RAS_ADDR=ras.flag.split("=")[1], WORLD_SIZE="3")
        pids = [rank_without_plugin.start(self, rank, environment, preexec_fn=enter).pid for rank in range(3)]
        ras.answers["STATUS"] = report([500, 499, 500], host=pod.ADDRESS, pids=pids).encode()
        run, _ = self.diagnose()
        self.assertEqual(ras.heard, [])
        self.assertRegex(run.stderr, r"\d+ processes use RAS in another network namespace. Next: kubectl exec POD -- pulse "
                         "diagnose, or as root --enter-namespaces.\n")
        namesake.setblocking(False)
        self.assertRaises(BlockingIOError, namesake.accept)
        run, verdicts = self.diagnose("--enter-namespaces")
        sentences = [verdict["sentence"] for verdict in verdicts]
        # By its variables: it is known as a process of this host.
        wanted = "global rank 1 (%s, GPU 1, pid %d) of a job without NCCL Pulse has launched 499 AllReduce" % (pod.ADDRESS, pids[1])
        self.assertTrue(any(wanted in each for each in sentences), (sentences, run.stderr))
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertNotIn("another network namespace", run.stderr)
        # Each namespace has the loopback.
        ras.answers["STATUS"] = report([500, 499, 500], host="127.0.0.1", pids=pids).encode()
        run, verdicts = self.diagnose("--enter-namespaces")
        wanted = "global rank 1 (127.0.0.1 in the network of pid %d, GPU 1, pid %d) of" % (min(pids), pids[1])
        sentences = [verdict["sentence"] for verdict in verdicts]
        self.assertTrue(any(wanted in each for each in sentences), (sentences, run.stderr))

    def test_namespaces_are_entered_by_root_only(self):
        if os.geteuid() != 0:
            self.skipTest("not root")
        run = subprocess.run(["setpriv", "--bounding-set=-sys_admin", PULSE, "diagnose", "--enter-namespaces"],
                             capture_output=True, text=True, check=False)
        self.assertEqual((run.returncode, run.stdout), (1, ""))
        self.assertIn("--enter-namespaces: run as root with CAP_SYS_ADMIN", run.stderr)


if __name__ == "__main__":
    running.main(at_once=4)
