"""A real Prometheus with the rules of deploy/prometheus, quicker than they stand there, and endpoints for it."""

import json
import math
import os
import re
import subprocess
import time

from tests.kit import PATIENCE_S, Server, ServerProgram, free_port, reply  # pylint: disable=unused-import

RULES = os.path.join(os.getcwd(), "deploy/prometheus")


class Page(Server):
    """An endpoint that serves what a function says."""

    def __init__(self, text):
        super().__init__(lambda handler: reply(handler, text().encode(),
                                               headers=[("Content-Type", "text/plain; version=0.0.4")]))
        self.target = self.name


def write_targets(folder, job, targets):
    """For a server that scrapes what JOB.json names."""
    path = os.path.join(folder, job + ".json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump([{"targets": targets}], file)
    os.rename(path + ".new", path)


def refused(log, metrics):
    """The log's lines on samples that Prometheus refuses: out of order, twice on a page, too old. metrics: its own.

    A group that Prometheus has begun late and that misses an evaluation is then evaluated twice at one timestamp, while
    samples arrive. These refused samples are left out.
    """
    late = ["file=%s group=%s " % group
            for group in re.findall(r'^prometheus_rule_group_iterations_missed_total\{rule_group="(.+);(.+)"\} [1-9]',
                                    metrics, re.MULTILINE)]
    return [line for line in log.splitlines() if re.search("(?i)scrape|ingest|evaluat", line) and not (
        "different value but same timestamp" in line and any(group in line for group in late))]


class Prometheus(ServerProgram):
    """Rules look back for ten of its intervals, and alerts wait for nothing.

    history: OpenMetrics text of samples from the past.
    flags: of Prometheus.
    interval_s: between scrapes, and evaluations of the rules; it is the scrapes' time limit, too.
    hung_s: what stands for a minute in the alerts on hangs.
    program: this system's Prometheus, or a newer one (servers.py).
    scraping: further settings of the scrape jobs.
    alertmanager: host:port of one, None: nobody is told.
    writes_to: URL to which it writes all samples, at once.
    waits: {how long an alert waits as it stands there: how long here}; the others wait for nothing.
    as_shipped: with the rules as they stand there but for the intervals.
    """

    def __init__(self, folder, history="", flags=(), interval_s=1, hung_s=60, program="prometheus",
                 scraping=None, alertmanager=None, writes_to=None, waits=None, as_shipped=False):
        self.folder = folder
        rules = os.path.join(folder, "rules")
        os.mkdir(rules)
        for name in ("recording", "hang", "alerts", "dcgm", "stragglers", "fleet"):
            with open(os.path.join(RULES, name + ".yaml"), encoding="utf-8") as file:
                text = re.sub(r"interval: \S+", "interval: %ds" % interval_s, file.read())
            if not as_shipped:
                text = self._quicker(name, text, interval_s, hung_s, waits or {})
            with open(os.path.join(rules, name + ".yaml"), "w", encoding="utf-8") as file:
                file.write(text)
        with open(os.path.join(folder, "prometheus.json"), "w", encoding="utf-8") as file:
            interval = "%ds" % interval_s
            json.dump({"global": {"scrape_interval": interval, "scrape_timeout": interval},
                       "rule_files": [rules + "/*.yaml"],
                       "remote_write": [{"url": writes_to, "queue_config": {
                           "batch_send_deadline": "200ms"}}] if writes_to else [],
                       "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]
                                    if alertmanager else []},
                       "scrape_configs": [{
                           **(scraping or {}), "job_name": job,
                           "file_sd_configs": [{"files": [os.path.join(folder, job + ".json")],
                                                "refresh_interval": "1s"}]}
                                          for job in ("nccl-pulse", "nccl-pulse-watch", "dcgm")]}, file)
        data = os.path.join(folder, "data")
        if history:
            past = os.path.join(folder, "history")
            with open(past, "w", encoding="utf-8") as file:
                file.write(history)
            subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", past, data],
                           check=True, stdout=subprocess.DEVNULL)
        port = free_port()
        super().__init__(
            [program, "--config.file=" + os.path.join(folder, "prometheus.json"), "--storage.tsdb.path=" + data,
             "--web.listen-address=127.0.0.1:%d" % port, "--log.level=warn", *flags],
            port, os.path.join(folder, "log"), "/-/ready")
        self.start_s = time.time()

    @staticmethod
    def _quicker(name, text, interval_s, hung_s, waits):
        text = re.sub(r"\[(1|5|10|15)m\]", "[%ds]" % (10 * interval_s), text)
        if name == "hang":
            text, count = re.subn(r"(nccl_watch_round_timestamp_seconds -) (\d+)",
                                  lambda match: "%s %d" % (match[1], int(match[2]) * hung_s // 60), text)
            assert count, "no rule says how long a job has hung"
        return re.sub(r"(\n +for: )(\S+)", lambda match: match[1] + waits[match[2]] if match[2] in waits else "", text)

    def refused(self):
        return refused(self.log(), self.ask("/metrics").decode())

    def scrape(self, job, targets):
        write_targets(self.folder, job, targets)

    def query(self, expression):
        """The series that had a value at any time: their labels."""
        answer = self.data("/api/v1/query_range", query=expression, start=self.start_s, end=time.time(), step=1)["result"]
        return [series["metric"] for series in answer
                if series.get("histograms") or
                any(math.isfinite(float(value)) for _, value in series["values"])]

    def targets(self):
        return self.data("/api/v1/targets")["activeTargets"]

    def rules(self):
        return [rule for group in self.data("/api/v1/rules")["groups"] for rule in group["rules"]]

    def failing_rules(self):
        return ["%s: %s" % (rule["name"], rule["lastError"]) for rule in self.rules() if rule.get("lastError")]

    def alerts(self, name):
        """Those that fire now: [(labels, annotations)]"""
        return [(alert["labels"], alert["annotations"])
                for alert in self.data("/api/v1/alerts")["alerts"]
                if alert["labels"]["alertname"] == name and alert["state"] == "firing"]
