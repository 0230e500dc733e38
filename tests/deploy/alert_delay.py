"""How long after a hang its alerts come, from Prometheus and from VictoriaMetrics with vmalert: the table of
docs/dashboards.md.

    ./bazelw run //tests/deploy:alert_delay

The last column has the flags that the document gives; --server-flag and --vmalert-flag try others instead.
A made-up job of 32 ranks on four nodes runs for some minutes, as one that has run for an hour, and then one rank
stops calling. All look at the same endpoints, every 15 s, with the rules' own intervals. Takes ten minutes, and
little processor time.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

# As in a test, for those imported below.
os.environ.setdefault("TEST_SRCDIR", os.path.dirname(os.getcwd()))
os.environ.setdefault("TEST_WORKSPACE", os.path.basename(os.getcwd()))

from bench.fleet import configuration  # pylint: disable=wrong-import-position
from bench.fleet.processes import Endpoints, Prometheus
from tests.deploy import cluster, prometheus_server, servers, victoria

ALERTS = ("NcclJobHung", "NcclJobHungLong")
# What is needed to get the rules in at all.
LEAST = r"s/histogram_(sum|count)\(/(/g"


def of_an_hour_ago(url):
    """An endpoint's page, with processes that have run for an hour."""
    with urllib.request.urlopen(url, timeout=cluster.PATIENCE_S) as answer:
        text = answer.read().decode()
    return re.sub(r"^(nccl_pulse_start_timestamp_seconds\{.*\}) (\S+)$",
                  lambda match: "%s %r" % (match[1], float(match[2]) - 3600), text, flags=re.MULTILINE)


class Watched:
    """One that evaluates the rules. ask(): its alerts, as its API has them."""

    def __init__(self, name, ask):
        self.name, self.ask, self.first = name, ask, {}

    def look(self, passed_s):
        for alert in self.ask():
            labels = alert["labels"]
            if alert["state"] == "firing" and labels["alertname"] in ALERTS:
                key = labels["alertname"], "named" if labels.get("Hostname") else "nobody named"
                if key not in self.first:
                    self.first[key] = passed_s
                    print("%5.0f s  %s: %s, %s" % (passed_s, self.name, *key), flush=True)


@contextlib.contextmanager
def victoria_metrics(folder, targets, program, server_flags=(), vmalert_flags=()):
    """The server and vmalert with default flags but for these, and what they listen on."""
    scrape = os.path.join(folder, "scrape.json")
    with open(scrape, "w", encoding="utf-8") as file:
        json.dump({"global": {"scrape_interval": "15s"}, "scrape_configs": [
            {"job_name": configuration.JOB, "static_configs": [{"targets": targets}]}]}, file)
    port, alert_port = cluster.free_port(), cluster.free_port()
    url, alert_url = ("http://127.0.0.1:%d" % each for each in (port, alert_port))
    commands = [
        ["victoria-metrics", "-storageDataPath=" + os.path.join(folder, "data"), "-promscrape.config=" + scrape,
         "-httpListenAddr=" + url[len("http://"):], *server_flags],
        ["vmalert", *("-rule=" + path for path in victoria.write_rules(folder, program)), "-datasource.url=" + url,
         "-remoteWrite.url=" + url, "-remoteRead.url=" + url, "-notifier.blackhole",
         "-httpListenAddr=" + alert_url[len("http://"):], *vmalert_flags]]
    processes = []
    with contextlib.ExitStack() as stack:
        for name, *flags in commands:
            log = stack.enter_context(open(os.path.join(folder, name + ".log"), "w", encoding="utf-8"))
            process = subprocess.Popen([servers.path_or_skip(name), *flags], stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            processes.append(process)
            time.sleep(2)

        def ask():
            with urllib.request.urlopen(alert_url + "/api/v1/alerts", timeout=cluster.PATIENCE_S) as answer:
                return json.load(answer)["data"]["alerts"]
        yield ask


@contextlib.contextmanager
def prometheus(folder, targets):
    path = os.path.join(folder, "prometheus.json")
    rules = [os.path.join(prometheus_server.RULES, name + ".yaml") for name in victoria.RULE_FILES]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"global": {"scrape_interval": "15s"}, "rule_files": rules, "scrape_configs": [
            {"job_name": configuration.JOB, "static_configs": [{"targets": targets}]}]}, file)
    with Prometheus(servers.path_or_skip("prometheus"), folder, path) as server:
        yield lambda: server._api("alerts")["alerts"]  # pylint: disable=protected-access


def main():
    parser = argparse.ArgumentParser(prog="alert_delay")
    parser.add_argument("--before", type=float, default=180, help="seconds that the job runs (default 180)")
    parser.add_argument("--after", type=float, default=390, help="seconds that it hangs (default 390)")
    parser.add_argument("--server-flag", action="append", help="of VictoriaMetrics, instead of the document's")
    parser.add_argument("--vmalert-flag", action="append", help="of vmalert, instead of the document's")
    parser.add_argument("--sed", help="what makes the rules fit in the last column, instead of the document's")
    parser.add_argument("--only", help="columns whose names have this in them")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        endpoints = stack.enter_context(Endpoints(4, 8, 4, int(options.before + options.after) + 600, True))
        pages = [cluster.Page(lambda url="http://%s/metrics" % address: of_an_hour_ago(url))
                 for address in endpoints.addresses.values()]
        targets = [page.target for page in pages]
        watched = []
        for name, start in (
                ("Prometheus", prometheus),
                ("vmalert, `histogram_` replaced alone", lambda *given: victoria_metrics(*given, LEAST)),
                ("vmalert, all replaced", lambda *given: victoria_metrics(*given, victoria.sed())),
                ("vmalert, all replaced, with flags", lambda *given: victoria_metrics(
                    *given, options.sed or victoria.sed(), options.server_flag or victoria.flags("victoria-metrics"),
                    options.vmalert_flag or victoria.flags("vmalert")))):
            if options.only and options.only not in name:
                continue
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="alert_delay-"))
            watched.append(Watched(name, stack.enter_context(start(folder, targets))))
        time.sleep(options.before)
        for each in watched:
            each.look(0)
        print("    0 s  one rank stops; load average %.1f" % os.getloadavg()[0], flush=True)
        endpoints.hang()
        start_s = time.monotonic()
        while time.monotonic() < start_s + options.after:
            for each in watched:
                each.look(time.monotonic() - start_s)
            time.sleep(0.5)
    print("| seconds from the hang to the alert | %s |\n|---%s|" % (
        " | ".join(each.name for each in watched), "|---" * len(watched)))
    for key in [(ALERTS[0], "nobody named"), (ALERTS[0], "named"), (ALERTS[1], "nobody named"), (ALERTS[1], "named")]:
        print("| `%s`, %s | %s |" % (*key, " | ".join(
            "%.0f" % each.first[key] if key in each.first else "never" for each in watched)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
