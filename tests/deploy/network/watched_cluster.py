"""Nodes in network namespaces with an endpoint each; two `pulse watch`, a real Prometheus and a real Alertmanager watch
them."""

import json
import os
import subprocess

from tests.deploy import alertmanager_server, servers
from tests.deploy.network import network_nodes
from tests.deploy.prometheus_server import Prometheus
from tests.kit import PATIENCE_S, temporary_folder, wait_until

PULSE = os.path.join(os.getcwd(), "exporter/pulse")
PORT = 9410
WATCH_PORTS = (9420, 9421)  # of a namespace of its own


class WatchedCluster:
    """Its jobs are who uses it; it ends with the test.

    options: of the Prometheus.
    """

    def __init__(self, test, nodes, as_shipped=False, **options):
        program = servers.path_or_skip("prometheus")
        servers.path_or_skip("prometheus-alertmanager")
        network_nodes.watch_or_skip()
        self.folder = temporary_folder(test)
        self.nodes = []
        for number in range(nodes):
            self.nodes.append(network_nodes.Node(number))
            test.addCleanup(self.nodes[-1].end)
            self.nodes[-1].start([PULSE, "agent", "--listen=:%d" % PORT], stdout=subprocess.DEVNULL)
        self.webhook, alertmanager = alertmanager_server.start(test, as_shipped)
        self.prometheus = Prometheus(self.folder, program=program, alertmanager=alertmanager.name,
                                     as_shipped=as_shipped, **options)
        test.addCleanup(self.prometheus.end)
        endpoints = ["%s:%d" % (node.address, PORT) for node in self.nodes]
        self.prometheus.scrape("nccl-pulse", endpoints)
        self.watchers, targets = [], []
        for port in WATCH_PORTS:
            self.watchers.append(subprocess.Popen([PULSE, "watch", "--listen=127.0.0.1:%d" % port, *endpoints],
                                                  stderr=subprocess.DEVNULL))
            test.addCleanup(self.watchers[-1].wait)
            test.addCleanup(self.watchers[-1].kill)
            targets.append("127.0.0.1:%d" % port)
        self.prometheus.scrape("nccl-pulse-watch", targets)

    def wait_for(self, condition, what):
        wait_until(condition, lambda: "%s; %s; %s" % (what() if callable(what) else what,
                                                      self.prometheus.failing_rules(), self.sent()))

    def sent(self, *paths):
        """What has arrived at the webhook: (path, alert's name, job id, host, rank), each once, in order."""
        return list(dict.fromkeys(
            self.key(path, alert) for path, alert in list(self.webhook.alerts)
            if alert["status"] == "firing" and (not paths or path in paths)))

    @staticmethod
    def key(path, alert):
        return (path, *(alert["labels"].get(name, "") for name in ("alertname", "job_id", "Hostname", "global_rank")))

    def summary(self, sent):
        """The text of the first alert of this kind."""
        return next(alert["annotations"]["summary"] for path, alert in list(self.webhook.alerts)
                    if alert["status"] == "firing" and sent == self.key(path, alert))

    def diagnose(self, job_id):
        """Of `pulse diagnose` on the machine that watches: a process, whose answer verdict() reads."""
        return subprocess.Popen([PULSE, "diagnose", "--json", "--timeout=15s", "--prometheus=" + self.prometheus.url,
                                 "--job-id=" + job_id], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def verdict(process):
        out, err = process.communicate(timeout=PATIENCE_S)
        if not out:
            raise AssertionError("pulse diagnose: %d, %s" % (process.returncode, err))
        return json.loads(out)
