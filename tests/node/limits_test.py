"""What others can make a server cost: memory, by what they hand over, and processor time, by what they ask for."""

import gzip
import os
import subprocess
import threading
import time

from tests import running
from tests.gpu.endpoint import Page, thread_times
from tests.node import cluster
from tests.node.agent_test import AgentCase
from tests.node.cluster import wait_until

HOSTILE_PEER = os.path.join(cluster.RUNFILES, "tests/node/hostile_peer")
PROTOBUF = ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;" "encoding=delimited")
KINDS = (("/metrics", "text/plain"), ("/metrics", "application/openmetrics-text"),
         ("/metrics", PROTOBUF), ("/api/v1/communicators", "*/*"))
REJECTED = "nccl_pulse_processes_rejected_total"
MOST_BYTES = 64 << 20
# exporter/endpoint/server.h and exporter/http/page_cache.h.
JOB_SHARE = 0.02
BURST_S = 0.02 * (0.6 * 20 + 0.2 * 10 + 0.2 * 60)


def peak_bytes(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def cpu_seconds(pid):
    """Of the server's thread."""
    return thread_times(pid)["pulse-http"]


def ask_for_all(port, whole=True):
    """Every kind of page, as it is and compressed. Their sizes."""
    sizes = []
    for path, accept in KINDS:
        for encoding in ("identity", "gzip"):
            response, body = cluster.fetch(port, path, Accept=accept, Accept_Encoding=encoding)
            sizes.append(len(body))
            # 503: an old one did not stay, and the time for a new one is not earned yet.
            assert response.status == 200 or not whole and response.status == 503
    return sizes


class LimitsCase(AgentCase):

    def hand_over(self, *arguments):
        """A hostile peer; the first that it is told."""
        peer = subprocess.Popen([HOSTILE_PEER, str(self.port), *map(str, arguments)],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(peer.stdout.close)
        self.addCleanup(peer.wait)
        self.addCleanup(peer.stdin.close)
        return peer, peer.stdout.readline().rstrip()

    def samples_of(self, *names):
        """Of the page, compressed: the server has spent its time for sending, and this is a tenth."""
        response, body = cluster.fetch(self.port, Accept_Encoding="gzip")
        self.assertEqual(response.status, 200)
        lines = gzip.decompress(body).decode().splitlines()
        # No others: to parse all of such a page takes seconds.
        starts = tuple(start % name for name in names for start in ("%s{", "%s ", "# TYPE %s "))
        return Page("".join(line + "\n" for line in lines if line.startswith(starts))).samples

    def expect_memory_is_bounded(self, pid):
        ask_for_all(self.port)
        before = peak_bytes(pid)
        for shape in ("labels", "histograms", "calls"):
            _, answer = self.hand_over(shape)
            self.assertIn("16 MiB that a process may have on a page", answer)
        # Each within what a process may have, and forty of them not within what a page may.
        answers = [self.hand_over("small", 300)[1] for _ in range(40)]
        self.assertIn("welcome", answers)
        self.assertTrue(any("the page is full" in answer for answer in answers))
        time.sleep(0.3)  # the pages from before are no longer shared
        sizes = ask_for_all(self.port, whole=False)
        self.assertGreater(max(sizes), 4 << 20)
        # What one page leaves behind must not add up.
        for _ in range(3):
            time.sleep(0.3)
            ask_for_all(self.port, whole=False)
        self.assertLess(peak_bytes(pid) - before, MOST_BYTES)
        # What others measured is all there, and those who do not fit are counted.
        rejected = wait_until(self.rejected_beside_ranks, "the honest ones and the refused are there")
        self.assertEqual(rejected.get("too_large"), 3)
        self.assertGreater(rejected["page_full"], 0)

    def rejected_beside_ranks(self):
        """By reason, on a page that knows of all of them and has the honest ranks; else None."""
        ranks, rejected = {}, {}
        for (name, pairs), value in self.samples_of("nccl_operations_total", REJECTED).items():
            labels = dict(pairs)
            if name == REJECTED:
                rejected[labels["reason"]] = value
            else:
                ranks[int(labels["rank"])] = value
        return rejected if ranks == {0: 10, 1: 10} and rejected.get("page_full") else None


class MemoryTest(LimitsCase):

    def test_job(self):
        processes = self.start_ranks(2)
        server = self.server_of(processes)
        self.expect_memory_is_bounded(server.pid)
        self.assertIn("was refused: its measurements would take more than the 16 MiB", server.log())

    def test_agent(self):
        agent = self.agent()
        self.start_ranks(2)
        self.expect_memory_is_bounded(agent.process.pid)
        self.assertIn("of user %d was refused" % os.geteuid(), agent.log())


class ProcessorTest(LimitsCase):

    def test_a_job_spends_no_more_than_its_share_whatever_is_asked(self):
        process = self.start_ranks(1)[0]
        for _ in range(4):
            self.hand_over("small", 500)
        stopping = threading.Event()
        answered = [0] * len(KINDS)

        def ask(kind):
            path, accept = KINDS[kind]
            while not stopping.wait(0.01):
                # None: it made way for another.
                answered[kind] += cluster.fetch(self.port, path, Accept=accept, Accept_Encoding="gzip") is not None

        askers = [threading.Thread(target=ask, args=(kind,), daemon=True)
                  for kind in range(len(KINDS)) for _ in range(2)]
        start, cpu_start = time.monotonic(), cpu_seconds(process.pid)
        for asker in askers:
            asker.start()
        # Until what may be saved up is spent several times over, if there were no budget.
        wait_until(lambda: time.monotonic() - start > 20 and all(answered), "all have been answered for a while")
        elapsed, cpu = time.monotonic() - start, cpu_seconds(process.pid) - cpu_start
        stopping.set()
        # A round that overdraws: a page of each kind, compressed, and one that came from the shared part. It takes
        # 0.5 s on an idle core; without a budget ten more follow.
        one_round = 2
        self.assertLess(cpu, JOB_SHARE * elapsed + BURST_S + one_round)
        # Who still waits for an answer needs none.
        process.kill()
        for asker in askers:
            asker.join()
        print("%.2f %% of a core, %s answers a second" % (
            100 * cpu / elapsed, [round(count / elapsed, 1) for count in answered]))


if __name__ == "__main__":
    running.main()
