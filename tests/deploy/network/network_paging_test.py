"""Each thing that can be wrong with a job is one page that names the culprit, over a network.

Eight nodes, each a network namespace with its own address, host name, agent and processes with the real plugin on
simulated GPUs. Two `pulse watch`, Prometheus, Alertmanager and `pulse diagnose` are on a ninth machine and reach the
nodes by their addresses alone. One of the two is killed while the jobs hang: nobody is told anything twice. Rules and routes are the real ones, with shorter intervals. Several jobs share each node.
"""

import time
import unittest

from tests import running
from tests.deploy.network.cluster_job import GPUS, Job
from tests.deploy.network.watched_cluster import WatchedCluster

NODES = 4  # of a job
INTERVAL_S = 2
HEALTHY_S = 6
# Alerts that the lack of a watcher raises do not wait here.
WAITS = {"1m": "1h", "2m": "1h"}
SLOW = ("NcclSlowRank", "NcclSlowNode")

# {job: (its first node, what its ranks do but for the others, what these do)}
JOBS = {
    "healthy": (0, {}, "well"),
    "silent": (1, {5: "silent"}, "well"),
    "stuck": (2, {2: "stuck"}, "well"),
    "killed": (3, {}, "well"),
    "order": (0, {3: "order"}, "patient"),
    "size": (1, {4: "size"}, "patient"),
    "circle": (2, {7: "circle"}, "patient"),
    "late-host": (3, {5: "late_host"}, "well"),
    "late-gpu": (0, {6: "late_gpu"}, "well"),
    "late-node": (1, {2: "late_gpu", 3: "late_gpu"}, "well"),
    # Its last node is in no other job.
    "unplugged": (4, {6: "silent", 7: "silent"}, "well"),
}
# {job: (the page's alert, ranks of which it names one; if there are none: nobody)}
PAGES = {
    "silent": ("NcclJobHungLong", [5]),
    "stuck": ("NcclJobHungLong", [2]),
    "killed": ("NcclJobHungLong", [1]),
    "order": ("NcclJobHungLong", [3]),
    "size": ("NcclJobHungLong", [4]),
    "circle": ("NcclJobHungLong", [6, 7]),
    # Nobody knows the processes of a node that is not there.
    "unplugged": ("NcclJobHungLong", [None]),
}
WARNINGS = {"late-host": [5], "late-gpu": [6], "late-node": [2, 3]}
VERDICTS = {
    "silent": ("rank_not_called", [5]),
    "stuck": ("rank_not_begun", [2]),
    "killed": ("process_gone", [1]),
    "order": ("mismatched_operations", [3]),
    "size": ("mismatched_operations", [4]),
    "circle": ("circular_wait", [6, 7]),
    "unplugged": ("rank_not_seen", [6, 7]),
}


class NetworkPagingTest(unittest.TestCase):

    def setUp(self):
        self.cluster = WatchedCluster(self, 8, interval_s=INTERVAL_S, hung_s=4, waits=WAITS)
        self.jobs = {}
        for name, (first, behaviours, others) in JOBS.items():
            self.jobs[name] = Job(name, self.cluster.nodes[first:first + NODES], self.cluster.folder, behaviours,
                                  others)
            self.addCleanup(self.jobs[name].end)

    def go_wrong(self):
        prometheus = self.cluster.prometheus
        seen = "count(rank:nccl_communicator:live offset %ds) == %d" % (HEALTHY_S, len(JOBS) * NODES * GPUS * 2)
        self.cluster.wait_for(lambda: prometheus.query(seen), "all ranks are seen at work")
        for job in self.jobs.values():
            job.go_wrong()
        self.jobs["killed"].ranks[1].kill()
        self.cluster.nodes[7].unplug()

    def sent(self, path, *names):
        """{job: [(alert, host, rank)]}"""
        found = {}
        for _, alert, job, host, rank in self.cluster.sent(path):
            if not names or alert in names:
                found.setdefault(job, []).append((alert, host, rank))
        return found

    def culprits(self, job, ranks):
        return [("", "") if each is None else (self.jobs[job].host_of(each), str(each)) for each in ranks]

    def check_resolved(self):
        """No alert has ended, although the series of one watcher have."""
        gone = 'absent(nccl_watch_round_timestamp_seconds{instance="127.0.0.1:9420"})'
        self.cluster.wait_for(lambda: self.cluster.prometheus.query(gone), "one watcher is gone")
        self.assertEqual([alert["labels"] for _, alert in self.cluster.webhook.alerts
                          if alert["status"] == "resolved" and "job_id" in alert["labels"]], [])

    def check_pages(self):
        sent = self.sent("/page")
        self.assertEqual({job: [alert for alert, _, _ in each] for job, each in sent.items()},
                         {job: [alert] for job, (alert, _) in PAGES.items()}, sent)
        for job, [(_, host, rank)] in sent.items():
            self.assertIn((host, rank), self.culprits(job, PAGES[job][1]) or [("", "")], job)

    def check_warnings(self):
        sent = self.sent("/chat", *SLOW)
        self.assertEqual({job: len(each) for job, each in sent.items()}, dict.fromkeys(WARNINGS, 1), sent)
        for job, [(alert, host, rank)] in sent.items():
            # After a call or two it is not known yet that all ranks of the node are late.
            slow = {"NcclSlowRank": self.culprits(job, WARNINGS[job]),
                    "NcclSlowNode": [(self.jobs[job].host_of(WARNINGS[job][0]), "")] if job == "late-node" else []}
            self.assertIn((host, rank), slow[alert], job)
        # Warnings that come before the page name the same.
        for job, sent in self.sent("/chat", "NcclJobHung").items():
            for _, host, rank in sent:
                self.assertIn((host, rank), self.culprits(job, PAGES[job][1]), job)

    def test_each_culprit_is_one_page(self):
        self.go_wrong()
        self.cluster.wait_for(lambda: PAGES.keys() <= self.sent("/page").keys() and
                              WARNINGS.keys() <= self.sent("/chat", *SLOW).keys(), "all is known")
        self.cluster.watchers[0].kill()
        begin = time.monotonic()
        asked = {name: self.cluster.diagnose(name) for name in JOBS}
        verdicts = {name: self.cluster.verdict(process) for name, process in asked.items()}
        # Whatever else fires by then is inhibited, or waits for longer.
        time.sleep(max(0, 4 * INTERVAL_S - (time.monotonic() - begin)))
        self.check_resolved()

        self.check_pages()
        self.check_warnings()
        for name, verdict in verdicts.items():
            with self.subTest(name):
                self.check(name, verdict)
        self.assertEqual(self.cluster.prometheus.failing_rules(), [])

    def check(self, name, verdict):
        """What `pulse diagnose` says is what the page says."""
        self.assertEqual([root["verdict"] for root in verdict["roots"]],
                         [VERDICTS[name][0]] if name in VERDICTS else [], verdict["sentence"])
        for root in verdict["roots"]:
            # Ranks of "dp" have the numbers that they have in the job.
            self.assertEqual([rank["process"]["global_rank"] if rank["process"] else str(rank["rank"])
                              for rank in root["ranks"]], [str(rank) for rank in VERDICTS[name][1]])
        self.assertEqual([sorted(rank["process"]["global_rank"] for rank in each["ranks"])
                          for each in verdict["stragglers"]],
                         [[str(rank) for rank in WARNINGS[name]]] if name in WARNINGS else [], verdict["sentence"])
        is_unplugged = name == "unplugged"
        self.assertEqual(verdict["endpoints"]["heard"], NODES - is_unplugged)


if __name__ == "__main__":
    running.main()
