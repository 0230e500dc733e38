"""A real VictoriaMetrics: its single-node server, vmalert with our rules, and its test tool."""

import json
import os
import re
import subprocess
import tempfile

from tests.deploy import cluster, prometheus_server, scenario, servers
from tests.kit import ServerProgram, free_port

DOCUMENT = "docs/prometheus.md"
RULE_FILES = ("recording", "hang", "fleet", "alerts", "dcgm", "stragglers")


def sed():
    """The program with which the document makes recording.yaml and the dashboards fit for VictoriaMetrics."""
    with open(os.path.join(cluster.RUNFILES, DOCUMENT), encoding="utf-8") as file:
        return re.search(r"^ *sed -E '([^']+)'", file.read(), re.MULTILINE).group(1)


def adapted(text, program):
    return subprocess.run(["sed", "-E", program], input=text, check=True, text=True, stdout=subprocess.PIPE).stdout


def write_rules(folder, program):
    """Our rule files as the document changes them. Their paths."""
    paths = []
    for name in RULE_FILES:
        with open(os.path.join(prometheus_server.RULES, name + ".yaml"), encoding="utf-8") as file:
            text = adapted(file.read(), program) if name == "recording" else file.read()
        paths.append(os.path.join(folder, name + ".yaml"))
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write(text)
    return paths


class _Server(ServerProgram):

    def __init__(self, folder, program, *flags):
        port = free_port()
        super().__init__([servers.path_or_skip(program), "-httpListenAddr=127.0.0.1:%d" % port, "-loggerLevel=WARN", *flags],
                         port, os.path.join(folder, program + ".log"), "/health")


class VictoriaMetrics(_Server):
    """The single-node server; it scrapes every second, and shows what it has at once, instead of what was 30 seconds
    ago. history: OpenMetrics text of samples from the past."""

    def __init__(self, folder, history=""):
        self.folder = folder
        configuration = os.path.join(folder, "scrape.json")
        with open(configuration, "w", encoding="utf-8") as file:
            json.dump({"global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                       "scrape_configs": [{"job_name": job, "file_sd_configs": [
                           {"files": [os.path.join(folder, job + ".json")]}]}
                                          for job in ("nccl-pulse", "dcgm")]}, file)
        super().__init__(folder, "victoria-metrics", "-storageDataPath=" + os.path.join(folder, "data"),
                         "-promscrape.config=" + configuration, "-promscrape.fileSDCheckInterval=1s",
                         "-search.latencyOffset=0s")
        if history:  # there in milliseconds
            self.ask("/api/v1/import/prometheus",
                      re.sub(r" (\d+)$", r" \g<1>000", history, flags=re.MULTILINE).encode())

    def scrape(self, job, targets):
        cluster.write_targets(self.folder, job, targets)

    def query(self, expression):
        """{labels: value} now."""
        return {tuple(sorted(series["metric"].items())): float(series["value"][1])
                for series in self.data("/api/v1/query", query=expression, nocache=1)["result"]}


class Vmalert(_Server):
    """Evaluates at once and of now, instead of some time later and of 30 seconds ago."""

    def __init__(self, folder, rules, url):
        super().__init__(folder, "vmalert", *["-rule=" + path for path in rules], "-datasource.url=" + url,
                         "-remoteWrite.url=" + url, "-remoteWrite.flushInterval=1s", "-remoteRead.url=" + url,
                         "-notifier.blackhole", "-rule.evalDelay=0s", "-group.maxStartDelay=1s")

    def rules(self):
        return [rule for group in self.data("/api/v1/rules")["groups"] for rule in group["rules"]]


def run(tests, files, interval_s, _):
    """As scenario.run, by vmalert-tool, with the rules as the document changes them. Like vmalert it does not show
    a rule what other rules of its group have recorded in the same evaluation."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        paths = [path for path in write_rules(folder, sed())
                 if os.path.basename(path) in [name + ".yaml" for name in files]]
        document = {"rule_files": paths, "evaluation_interval": "%ds" % interval_s,
                    "group_eval_order": scenario.groups(paths), "tests": [_translated(test) for test in tests]}
        path = os.path.join(folder, "tests.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document, file)  # JSON is YAML
        result = subprocess.run(
            [servers.path_or_skip("vmalert-tool"), "unittest", "--disableAlertgroupLabel", "--files=" + path],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return "" if result.returncode == 0 else result.stdout


def _translated(test):
    """Functions like round() keep the metric's name here."""
    return {"interval": test["interval"], "input_series": test["input_series"],
            "metricsql_expr_test": [dict(each, expr='label_del(%s, "__name__")' % each["expr"])
                                    for each in test["promql_expr_test"]],
            "alert_rule_test": test["alert_rule_test"]}
