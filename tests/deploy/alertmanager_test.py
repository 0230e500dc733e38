"""What the example for Alertmanager sends of a hang: one page. By the real Alertmanager."""

import http.server
import json
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

from tests import running
from tests.deploy import servers

EXAMPLE = os.path.join(os.getcwd(), "deploy/prometheus/alertmanager.yaml")
PATIENCE_S = 120

# Debian's reads its templates from where the package puts them, and it is not installed: they are put there in a mount
# namespace of its own.
TEMPLATES = "/usr/share/prometheus/alertmanager"
IN_PLACE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", """
mount -t tmpfs none /usr/share
mkdir -p %s
cp -L "$0"/*.tmpl %s
exec "$@"
""" % (TEMPLATES, TEMPLATES)]

JOB = {"job": "nccl-pulse", "job_id": "7", "workload": "llama", "namespace": "ml"}
ROOT = {"instance": "node5:9410", "Hostname": "node5", "global_rank": "22"}


def alert(name, severity, **labels):
    return {"labels": dict(JOB, alertname=name, severity=severity, **labels),
            "annotations": {"summary": name}}


class Webhook:
    """Keeps what is sent: [(path, names of the alerts that fire)]"""

    def __init__(self):
        sent = self.sent = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # pylint: disable=invalid-name
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                sent.append((self.path, sorted(each["labels"]["alertname"] for each in body["alerts"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = "http://127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self):
        self.server.shutdown()
        self.server.server_close()


class AlertmanagerTest(unittest.TestCase):

    def setUp(self):
        self.program = servers.path_or_skip("prometheus-alertmanager")

    def test_configuration(self):
        checked = subprocess.run([servers.path_or_skip("amtool"), "check-config", EXAMPLE], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(checked.returncode, 0, checked.stdout)

    def start(self):
        """The real one, with the example's receivers here and nothing to wait for."""
        webhook = Webhook()
        self.addCleanup(webhook.end)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with open(EXAMPLE, encoding="utf-8") as file:
            text = file.read().replace("http://localhost:9095", webhook.address)
        path = os.path.join(folder.name, "alertmanager.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(re.sub(r"group_(wait|interval): \S+", r"group_\1: 1s", text))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            url = "http://127.0.0.1:%d" % probe.getsockname()[1]
        log = open(os.path.join(folder.name, "log"), "w+", encoding="utf-8")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [*IN_PLACE, os.path.join(servers.FOLDER, "root" + TEMPLATES),
             self.program, "--config.file=" + path, "--storage.path=" + folder.name,
             "--web.listen-address=" + url[len("http://"):], "--cluster.listen-address="],
            stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        deadline = time.monotonic() + PATIENCE_S
        while not self.answers(url + "/-/ready"):
            if process.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                self.fail("Alertmanager does not start:\n" + log.read())
            time.sleep(0.1)
        return webhook, url

    @staticmethod
    def answers(url):
        try:
            return urllib.request.urlopen(url, timeout=10).status == 200
        except OSError:
            return False

    def wait_for(self, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)

    @staticmethod
    def post(url, alerts):
        request = urllib.request.Request(url + "/api/v2/alerts", json.dumps(alerts).encode(),
                                         {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=30).close()

    def test_one_hang_is_one_page(self):
        webhook, url = self.start()
        page = alert("NcclJobHungLong", "critical", **ROOT)
        # Of another job, last: when it has arrived the others would have.
        other = dict(alert("NcclGpuXid", "warning"), labels=dict(
            alert("NcclGpuXid", "warning")["labels"], job_id="8", workload="other"))
        self.post(url, [page])
        self.post(url, [
            alert("NcclJobHung", "warning", **ROOT),
            alert("NcclHangSuspected", "warning", comm="c0ffee"),
            alert("NcclStraggler", "warning", comm="c0ffee", rank="1"),
            alert("NcclPulsePollStuck", "warning", instance="node5:9410", pid="122"),
            alert("NcclPulseKernelTimingUntrusted", "info", comm="c0ffee")])
        self.wait_for(lambda: webhook.sent)
        self.post(url, [other])
        self.wait_for(lambda: len(webhook.sent) > 1)
        self.assertEqual(webhook.sent, [("/page", ["NcclJobHungLong"]), ("/chat", ["NcclGpuXid"])])

    def test_a_warning_alone_is_no_page(self):
        webhook, url = self.start()
        self.post(url, [alert("NcclJobHung", "warning", **ROOT)])
        self.wait_for(lambda: webhook.sent)
        self.assertEqual(webhook.sent, [("/chat", ["NcclJobHung"])])

    def test_two_jobs_are_two_pages(self):
        webhook, url = self.start()
        pages = [alert("NcclJobHungLong", "critical", **ROOT) for _ in range(2)]
        pages[1]["labels"]["job_id"] = "8"
        # A warning of the one is not inhibited by the other's page.
        self.post(url, pages[:1] + [dict(alert("NcclJobHung", "warning"), labels=dict(
            alert("NcclJobHung", "warning")["labels"], job_id="9"))])
        self.post(url, pages[1:])
        self.wait_for(lambda: len(webhook.sent) == 3)
        self.assertEqual(sorted(webhook.sent), [
            ("/chat", ["NcclJobHung"]), ("/page", ["NcclJobHungLong"]), ("/page", ["NcclJobHungLong"])])


if __name__ == "__main__":
    running.main()
