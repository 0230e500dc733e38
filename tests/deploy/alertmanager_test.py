"""What the example for Alertmanager sends of a hang: one page. By the real Alertmanager."""

import json
import subprocess
import unittest

from tests import running
from tests.deploy import alertmanager_server, servers
from tests.deploy.alertmanager_server import EXAMPLE
from tests.kit import wait_until

JOB = {"job_id": "7", "workload": "llama", "namespace": "ml"}
ROOT = {"Hostname": "node5", "global_rank": "22", "verdict": "rank_not_called"}


def alert(name, severity, **labels):
    return {"labels": dict(JOB, alertname=name, severity=severity, **labels), "annotations": {"summary": name}}


class AlertmanagerTest(unittest.TestCase):

    def test_configuration(self):
        checked = subprocess.run([servers.path_or_skip("amtool"), "check-config", EXAMPLE], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(checked.returncode, 0, checked.stdout)

    @staticmethod
    def post(server, alerts):
        server.ask("/api/v2/alerts", json.dumps(alerts).encode(), Content_Type="application/json")

    def test_one_hang_is_one_page(self):
        webhook, server = alertmanager_server.start(self)
        page = alert("NcclJobHungLong", "critical", **ROOT)
        # Of another job, last: when it has arrived the others would have.
        other = dict(alert("NcclGpuXid", "warning"), labels=dict(
            alert("NcclGpuXid", "warning")["labels"], job_id="8", workload="other"))
        self.post(server, [page])
        self.post(server, [
            alert("NcclJobHung", "warning", **ROOT),
            alert("NcclSlowRank", "warning", Hostname="node5"),
            alert("NcclLatencyRegression", "warning", job="nccl-pulse"),
            alert("NcclPulseKernelTimingUntrusted", "info", comm="c0ffee")])
        wait_until(lambda: webhook.sent)
        self.post(server, [other])
        wait_until(lambda: len(webhook.sent) > 1)
        self.assertEqual(webhook.sent, [("/page", ["NcclJobHungLong"]), ("/chat", ["NcclGpuXid"])])

    def test_each_hang_is_told_at_once(self):
        webhook, server = alertmanager_server.start(self)
        # Jobs without an ID: each hangs when the notification of the one before is out.
        for number, (name, severity, path) in enumerate((
                ("NcclJobHungLong", "critical", "/page"), ("NcclJobHungLong", "critical", "/page"),
                ("NcclJobHungLong", "critical", "/page"), ("NcclJobHung", "warning", "/chat"),
                ("NcclJobHung", "warning", "/chat"))):
            unnamed = alert(name, severity, comm="c0ffee%d" % number, **ROOT)
            for label in ("job_id", "workload"):
                del unnamed["labels"][label]
            self.post(server, [unnamed])
            wait_until(lambda: len(webhook.sent) > number)
            self.assertEqual(webhook.sent[number:], [(path, [name])])

    def test_a_warning_alone_is_no_page(self):
        webhook, server = alertmanager_server.start(self)
        self.post(server, [alert("NcclJobHung", "warning", **ROOT)])
        wait_until(lambda: webhook.sent)
        self.assertEqual(webhook.sent, [("/chat", ["NcclJobHung"])])

    def test_two_jobs_are_two_pages(self):
        webhook, server = alertmanager_server.start(self)
        pages = [alert("NcclJobHungLong", "critical", **ROOT) for _ in range(2)]
        pages[1]["labels"]["job_id"] = "8"
        # A warning of the one is not inhibited by the other's page.
        self.post(server, pages[:1] + [dict(alert("NcclJobHung", "warning"), labels=dict(
            alert("NcclJobHung", "warning")["labels"], job_id="9"))])
        self.post(server, pages[1:])
        wait_until(lambda: len(webhook.sent) == 3)
        self.assertEqual(sorted(webhook.sent), [
            ("/chat", ["NcclJobHung"]), ("/page", ["NcclJobHungLong"]), ("/page", ["NcclJobHungLong"])])


if __name__ == "__main__":
    running.main()
