"""Jobs at which it is easy to name the wrong rank, all at once, over a network: who is paged, when, and the text.

The nodes, jobs and watchers are those of network_paging_test. What goes wrong:

  ahead       a host posts a call ahead and then pauses for 18 s; the job resumes
  watchdog    a rank does not call; the watchdog of another rank, which waits for it, ends that one
  away        a node cannot be scraped for 12 s, during a checkpoint as the job has made before
  foreign     all GPUs are in kernels that are not NCCL's
  retried     a call failed and was made again; another rank does not call
  stopped     a rank has SIGSTOP for 14 s; the job resumes
  exits       a rank stays in exit()
  ends        all ranks end as they should
  requeued    all ranks are killed, and run again on half of the nodes
  no-id-*     two jobs without an id: one writes checkpoints, a rank of the other does not call
"""

import signal
import sys
import time
import unittest

from tests import running
from tests.deploy.network.cluster_job import Job
from tests.deploy.network.watched_cluster import WatchedCluster

INTERVAL_S = 2
WAITS = {"1m": "1h", "2m": "1h"}

# {job: (its first node, its nodes, what its ranks do but for the others, what these do)}
JOBS = {
    "ahead": (0, 4, {5: "ahead"}, "prefetch"),
    "watchdog": (1, 4, {5: "silent"}, "well"),
    "away": (2, 5, {0: "saves"}, "well"),  # its last node is in no other job
    "foreign": (0, 2, {}, "stuck"),
    "retried": (2, 4, {4: "retried", 6: "silent"}, "well"),
    "stopped": (1, 2, {}, "well"),
    "exits": (3, 2, {1: "exits"}, "well"),
    "ends": (3, 2, {}, "well"),
    "requeued": (4, 2, {}, "well"),
    "no-id-saves": (0, 2, {0: "saves"}, "well"),
    "no-id-hangs": (4, 2, {3: "silent"}, "well"),
}
# {job: the only rank that may be named}
CULPRITS = {"ahead": 5, "away": 0, "no-id-saves": 0, "watchdog": 5, "retried": 6, "stopped": 3, "exits": 1, "no-id-hangs": 3}
# {job: what its message says after "hangs: "}
NEXT = r"[^;]*; \d processes wait. Next: py-spy dump --pid \d+ on node-%d"
TEXTS = {
    "watchdog": r"rank 5 \(node-3, GPU 5\) has not called AllReduce" + NEXT % 3,
    "foreign": "no rank is named: GPUs of communicator [0-9a-f]+ are behind earlier work of their own, which has not "
               "ended; 4 processes wait. Next: nvidia-smi and py-spy dump on its hosts",
    "retried": r"rank 6 \(node-5, GPU 6\) has not called (2 x )?AllReduce" + NEXT % 5,
    "exits": r"rank 1 \(node-3, GPU 1\) is in exit\(\), and has not called AllGather[^;]*; 3 processes wait. Next: gdb -p",
    "no-id-hangs": r"rank 3 \(node-5, GPU 3\) has not called AllReduce" + NEXT % 5,
    "ahead": "no rank is named: communicator [0-9a-f]+ makes no progress; 8 processes wait. Next: pulse status",
    "away": r"rank 0 \(node-2, GPU 0\) has not called AllGather" + NEXT % 2,
    "no-id-saves": r"rank 0 \(node-0, GPU 0\) has not called AllGather" + NEXT % 0,
    "stopped": r"rank 3 \(node-2, GPU 3\) is stopped by a signal; 3 processes wait. Next: cat /proc/\d+/status",
}
PAGED = {"watchdog", "foreign", "retried", "exits", "no-id-hangs"}
VERDICTS = {"watchdog": "rank_not_called", "retried": "rank_not_called", "exits": "rank_not_called",
            "foreign": "no_progress"}
SAVES_S = 44  # three checkpoints
HEALTHY_S = 6
HANG = ("NcclJobHung", "NcclJobHungLong")


class AwkwardJobsTest(unittest.TestCase):

    def setUp(self):
        self.cluster = WatchedCluster(self, 7, interval_s=INTERVAL_S, hung_s=6, waits=WAITS)
        self.jobs = {}
        for name in JOBS:
            self.start(name, *JOBS[name])
        self.begin = time.monotonic() + SAVES_S
        self.told = {}  # {(path, alert, job, host, rank): when first, in seconds after all went wrong}

    def start(self, name, first, nodes, behaviours, others):
        self.jobs[name] = Job(name, self.cluster.nodes[first:first + nodes], self.cluster.folder, behaviours, others,
                              has_id=not name.startswith("no-id"))
        self.addCleanup(self.jobs[name].end)

    def look(self):
        for each in self.cluster.sent():
            self.told.setdefault(each, time.monotonic() - self.begin)

    def run_for(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(0.2)

    def job_of(self, alert):
        """The job of a message. Without an id it is known by the host: the jobs without ids share none."""
        _, _, job_id, host, _ = alert
        if job_id:
            return job_id
        return next((name for name in JOBS if name.startswith("no-id") and
                     host in [node.name for node in self.jobs[name].nodes]), "")

    def paged(self):
        return {self.job_of(each) for each in self.told if each[0] == "/page"}

    def test_nobody_is_named_falsely(self):
        # Its page takes longest: nobody can be named.
        self.run_for(HEALTHY_S)
        self.jobs["foreign"].go_wrong()
        # Waits of a checkpoint are expected from the fourth on.
        self.run_for(SAVES_S - HEALTHY_S)
        for job in self.jobs.values():
            job.go_wrong()
        for rank in self.jobs["ends"].ranks:
            rank.terminate()
        for rank in self.jobs["requeued"].ranks:
            rank.kill()
        first, _, *does = JOBS["requeued"]
        self.start("requeued", first, 1, *does)
        stopped = self.jobs["stopped"].ranks[3]
        stopped.send_signal(signal.SIGSTOP)
        self.addCleanup(stopped.send_signal, signal.SIGCONT)
        self.run_for(6)
        self.jobs["watchdog"].ranks[2].send_signal(signal.SIGABRT)
        self.cluster.nodes[6].unplug()
        self.run_for(8)
        stopped.send_signal(signal.SIGCONT)
        self.run_for(4)
        self.cluster.nodes[6].plug()

        def is_done():
            self.look()
            return self.paged() >= PAGED
        self.cluster.wait_for(is_done, lambda: "all hangs are paged: %s" % self.told)
        self.run_for(4 * INTERVAL_S)
        for each, when in self.told.items():
            path, alert, _, host, rank = each
            print("%6.1f s  %-5s %s  %s  %s rank %s" % (when, path[1:], alert, self.job_of(each) or "-", host or "-",
                                                        rank or "-"), file=sys.stderr)
        self.check_told()
        for name in JOBS:
            if not name.startswith("no-id"):
                with self.subTest(name):
                    self.check_verdict(name, self.cluster.verdict(self.cluster.diagnose(name)))

    def check_told(self):
        self.assertEqual(self.paged(), PAGED, self.told)
        for each in self.told:
            _, alert, _, host, rank = each
            job = self.job_of(each)
            if alert in HANG:
                begin = "^A job without ID" if job.startswith("no-id") else "^Job " + job
                self.assertRegex(self.cluster.summary(each), "%s hangs: %s" % (begin, TEXTS.get(job, "nothing")))
            if alert in HANG and host:
                culprit = CULPRITS.get(job)
                self.assertEqual((host, rank), (culprit is not None and self.jobs[job].host_of(culprit), str(culprit)),
                                 (job, self.told))

    def check_verdict(self, name, verdict):
        roots = [root for root in verdict["roots"] if not root["usual"]]
        self.assertEqual([root["verdict"] for root in roots],
                         [VERDICTS[name]] if name in VERDICTS else [], verdict["sentence"])
        for root in roots:
            self.assertEqual([rank["process"]["global_rank"] for rank in root["ranks"]],
                             [str(CULPRITS[name])] if name in CULPRITS else [], verdict["sentence"])


if __name__ == "__main__":
    running.main()
