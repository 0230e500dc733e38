"""One page for each hang, and it names who is to blame: from the endpoints of eight nodes to a webhook.

Jobs of eight nodes with two GPUs each, side by side at the same eight endpoints, one thing wrong with each of them, none
with one. The endpoints' pages are made up; Prometheus, Alertmanager, rules and routes are the real ones, with shorter
intervals.
"""

import itertools
import tempfile
import time
import unittest

from tests import running
from tests.deploy import alertmanager_server, servers
from tests.deploy.made_up_pages import sample
from tests.deploy.prometheus_server import PATIENCE_S, Page, Prometheus

NODES, GPUS = 8, 2
INTERVAL_S = 2
HEALTHY_S = 6  # before something goes wrong
SUSPECTED_S = 13  # before an endpoint says so, as long as the rules need


class MadeUpJob:
    """Tensor parallel in the node, data parallel across. From `start` on the culprit does not come, and all others
    wait: those of its node in tensor-parallel calls, the rest in data-parallel ones."""

    first_pids = itertools.count(1000, 100)

    def __init__(self, name, culprit=None, verdict="", is_gone=False, is_stopped=False, node_gone=False):
        self.name, self.culprit, self.verdict = name, culprit, verdict
        self.start = float("inf")
        self.is_gone, self.is_stopped, self.node_gone = is_gone, is_stopped, node_gone
        self.first_pid = next(self.first_pids)

    def page(self, node, now):
        is_wrong = self.culprit is not None and now >= self.start
        if is_wrong and self.node_gone and node == self.culprit[0]:
            return ""
        text = "".join(self.rank(node, gpu, now, is_wrong) for gpu in range(GPUS))
        if is_wrong and self.verdict and node == self.culprit[0] and now > self.start + SUSPECTED_S:
            text += sample("nccl_hang_start_timestamp_seconds", self.start, comm="%s-tp%d" % (self.name, node),
                           verdict=self.verdict, suspect_rank=str(self.culprit[1]), op="AllReduce")
        return text

    def rank(self, node, gpu, now, is_wrong):
        is_culprit = is_wrong and (node, gpu) == self.culprit
        process = {"pid": str(self.first_pid + node * GPUS + gpu), "global_rank": str(node * GPUS + gpu)}
        if is_culprit and self.is_gone:
            return sample("nccl_pulse_process_up", 0, job_name=self.name, **process)
        text = sample("nccl_pulse_process_up", 1, job_name=self.name, **process)
        text += sample("nccl_pulse_last_poll_timestamp_seconds",
                       self.start if is_culprit and self.is_stopped else now, job_name=self.name, **process)
        on_node, across = ("%s-tp%d" % (self.name, node), gpu, GPUS), ("%s-dp%d" % (self.name, gpu), node, NODES)
        waits_in = None
        if is_wrong and not is_culprit:
            waits_in = on_node if node == self.culprit[0] else across
        last = self.start if is_wrong else now
        for index, each in enumerate((on_node, across)):
            comm, rank, ranks = each
            of = {"comm": comm, "rank": str(rank), "job_name": self.name}
            text += sample("nccl_communicator_info", 1, **of, **process, nranks=str(ranks),
                           nnodes=str(NODES if index else 1), index=str(index), job_id=self.name,
                           Hostname="node%d" % node, gpu=str(gpu), UUID="GPU-%d-%d" % (node, gpu))
            for name, value in (("launches_total", last * 100), ("launches_completed_total", last * 100),
                                ("inflight_launches", int(each == waits_in)),
                                ("last_launch_timestamp_seconds", last), ("last_completion_timestamp_seconds", last),
                                ("oldest_inflight_launch_timestamp_seconds", last if each == waits_in else 0)):
                text += sample("nccl_" + name, value, **of)
        return text


class PagingTest(unittest.TestCase):

    def setUp(self):
        self.prometheus = servers.path_or_skip("prometheus")
        servers.path_or_skip("prometheus-alertmanager")

    def start(self, jobs):
        webhook, url = alertmanager_server.start(self)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        # What waits for minutes waits for seconds.
        prometheus = Prometheus(folder.name, program=self.prometheus, interval_s=INTERVAL_S, hung_s=4,
                                alertmanager=url[len("http://"):])
        self.addCleanup(prometheus.end)
        pages = [Page(lambda node=node: "".join(job.page(node, time.time()) for job in jobs))
                 for node in range(NODES)]
        for page in pages:
            self.addCleanup(page.end)
        prometheus.scrape("nccl-pulse", [page.target for page in pages])
        return webhook, prometheus

    def test_each_culprit_is_one_page(self):
        jobs = [MadeUpJob("healthy"),
                MadeUpJob("stuck", culprit=(5, 1), verdict="rank_not_called"),
                MadeUpJob("mixed", culprit=(2, 0), verdict="mismatched_operations"),
                MadeUpJob("stopped", culprit=(3, 1), verdict="process_stopped", is_stopped=True),
                MadeUpJob("crashed", culprit=(6, 0), verdict="process_gone", is_gone=True),
                MadeUpJob("unplugged", culprit=(4, 0), node_gone=True)]
        expected = {"stuck": ("NcclJobHungLong", "node5", "11"), "mixed": ("NcclHangCertain", "node2", "4"),
                    "stopped": ("NcclJobHungLong", "node3", "7"), "crashed": ("NcclRankMissing", "node6", "12"),
                    "unplugged": ("NcclRankMissing", "node4", "8")}
        webhook, prometheus = self.start(jobs)

        def paged():
            return [(alert["labels"]["job_id"], tuple(alert["labels"].get(name, "") for name in (
                "alertname", "Hostname", "global_rank"))) for path, alert in list(webhook.alerts)
                    if path == "/page" and alert["status"] == "firing"]

        # All are seen at work for so long.
        deadline = time.monotonic() + PATIENCE_S
        seen = "count(rank:nccl_communicator:live offset %ds) == %d" % (
            HEALTHY_S, len(jobs) * NODES * GPUS * 2)
        while not prometheus.query(seen):
            self.assertLess(time.monotonic(), deadline, prometheus.failing_rules())
            time.sleep(0.5)
        for job in jobs:
            job.start = time.time()
        while {job for job, _ in paged()} != set(expected):
            self.assertLess(time.monotonic(), deadline, "%s; %s" % (paged(), prometheus.failing_rules()))
            time.sleep(0.2)
        # Whatever else fires by then is inhibited, or a warning.
        hung = [labels["job_id"] for labels, _ in prometheus.alerts("NcclJobHung")]
        time.sleep(5 * INTERVAL_S)
        self.assertEqual(sorted(paged()), sorted(expected.items()))
        self.assertIn("stuck", hung)
        self.assertEqual(prometheus.failing_rules(), [])


if __name__ == "__main__":
    running.main()
