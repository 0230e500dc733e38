"""VictoriaMetrics in place of Prometheus: what docs/prometheus.md says of it.

The real single-node server and vmalert over real endpoints, the dashboards' and the rules' queries beside a real
Prometheus over the same samples, and alerts in vmalert's own test tool.
"""

import json
import math
import os
import re
import subprocess
import time
import unittest

import yaml

from tests import running
from tests.deploy import beside_rules, cluster, prometheus_server, servers, victoria, watch_rules
from tests.deploy.dashboard_queries import panel_queries
from tests.deploy.made_up_pages import dcgm_page, history, made_up_page, watch_page
from tests.kit import get, temporary_folder, wait_until

# What differs, and is in the document: MetricsQL's changes() counts the first sample of a series as a change.
NEW_SERIES = {
    ("nccl-pulse-exporter", "Stuck pollers"),
    ("alerts", "NcclPulsePluginStalled"),
    ("dcgm", "NcclGpuXid"),
}
# The made-up page loses as much as the alert just tolerates: either side may see it above. Of two calls in neighboring
# buckets either one is the median.
ON_THE_EDGE = {("alerts", "NcclPulseMeasurementsLost"), ("recording", "comm:nccl_operation_duration_seconds:p50")}
# Of values that both have.
MOST = 0.05
# A sum of floating-point numbers of either order: what is zero for one is not for the other.
NOTHING = 1e-12
RANGE_S = 5
# Of a replay's page, once there are durations.
ENOUGH_SERIES = 400


class SteadyPage:
    """A real endpoint's page, of which all counters grow evenly: what rate() makes of it does not depend on when it
    is scraped."""

    GROWS_WITHIN_S = 60  # by what the counter was

    def __init__(self, text):
        self.start_s = time.time()
        self.lines, kind = [], ""
        for line in text.splitlines():
            if line.startswith("#"):
                kind = line.split()[3] if line.startswith("# TYPE") else kind
                continue
            series, _, value = line.rpartition(" ")
            clock = series.split("{")[0].endswith("_timestamp_seconds") and float(value) > 0
            self.lines.append((series, float(value), kind in ("counter", "histogram", "summary"), clock))

    def __call__(self):
        passed = time.time() - self.start_s
        return "".join("%s %r\n" % (series, value * (1 + passed / self.GROWS_WITHIN_S) if grows else
                                    value + passed if clock else value)
                       for series, value, grows, clock in self.lines)


class Servers(unittest.TestCase):

    def start(self, thing):
        self.addCleanup(thing.end)
        return thing

    def test_it_takes_all_files_but_one_as_they_are(self):
        """Which is why the document has a sed. What it replaces there is missing in MetricsQL."""
        refused = {}
        for name in victoria.RULE_FILES:
            checked = subprocess.run(
                [servers.path_or_skip("vmalert"), "-dryRun", "-loggerLevel=ERROR",
                 "-rule=" + os.path.join(prometheus_server.RULES, name + ".yaml")],
                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if checked.returncode:
                refused[name] = re.findall(r"unsupported function \S+", checked.stdout)
        self.assertEqual(refused, {"recording": ['unsupported function "histogram_sum"']})

    def test_it_scrapes_and_evaluates_all_rules(self):
        """Of a real job: with the real intervals and ranges."""
        server = self.start(victoria.VictoriaMetrics(temporary_folder(self)))
        replay = self.start(cluster.Replay("h200x2-net-mixed", 0.005, SLURM_JOB_ID="2"))
        server.scrape("nccl-pulse", [replay.target])
        # Evaluations are of whole minutes, so of up to a minute ago: something to say of then.
        for past_s in range(0, 90, 10):
            server.ask("/api/v1/import/prometheus?extra_label=job=nccl-pulse&timestamp=%d" %
                       ((time.time() - past_s) * 1000), made_up_page().encode())
        # It has asked for text, so there are classic histograms.
        replayed = '{instance="%s"}' % replay.target
        wait_until(lambda: server.query("nccl_operation_duration_seconds_bucket" + replayed))
        self.assertEqual(server.query("nccl_operation_duration_seconds"), {})

        folder = temporary_folder(self)
        vmalert = self.start(victoria.Vmalert(folder, victoria.write_rules(folder, victoria.sed()), server.url))
        wait_until(lambda: not any(rule["lastEvaluation"].startswith("0001") for rule in vmalert.rules()))
        self.assertEqual([(rule["name"], rule["lastError"]) for rule in vmalert.rules() if rule["health"] != "ok"], [])
        wait_until(lambda: server.query("rank:nccl_communicator:live" + replayed))
        wait_until(lambda: "NcclPulseProcessesRejected" in {
            alert["name"] for alert in vmalert.data("/api/v1/alerts")["alerts"]})

    def steady_targets(self):
        pages = []
        for run, speed in (("h200x2-net-mixed", 0.05), ("h200x4-pytorch-ddp-fsdp", 0.3)):
            replay = cluster.Replay(run, speed, SLURM_JOB_ID="2")
            try:
                # The recorded calls come within seconds, durations of them once a response is asked for. Between two
                # repetitions the endpoint may be gone for a moment.
                pages.append(wait_until(lambda: self.rich_page(replay)))
            finally:
                replay.end()
        return [self.start(cluster.Page(page)).target for page in [*pages, made_up_page, watch_page]]

    @staticmethod
    def rich_page(replay):
        """None if nobody answers or there are no durations yet."""
        status, text = get(int(replay.target.rpartition(":")[2])) or (None, "")
        page = SteadyPage(text)
        return page if status == 200 and len(page.lines) > ENOUGH_SERIES else None

    def queries(self, rules):
        """{(where, name): expressions} of the dashboards and of a Prometheus' rules."""
        found = dict(panel_queries())
        for name in victoria.RULE_FILES:
            with open(os.path.join(rules, name + ".yaml"), encoding="utf-8") as file:
                for group in yaml.safe_load(file)["groups"]:
                    for rule in group["rules"]:
                        found[name, rule.get("record") or rule["alert"]] = [rule["expr"]]
        return found

    def test_the_same_samples_give_the_same_answers(self):
        past = history(time.time())
        server = self.start(victoria.VictoriaMetrics(temporary_folder(self), past))
        folder = temporary_folder(self)
        prometheus = self.start(cluster.Prometheus(
            folder, past, program=servers.path_or_skip("prometheus"), writes_to=server.url + "/api/v1/write"))
        targets = self.steady_targets()
        begin_s = int(time.time())
        prometheus.scrape("nccl-pulse", targets)
        prometheus.scrape("dcgm", [self.start(cluster.Page(dcgm_page)).target])
        # Until the dashboards and rules have come to rest, after ten seconds or so.
        differences = self.differences(prometheus, server, self.queries(os.path.join(folder, "rules")), begin_s)
        deadline = time.monotonic() + cluster.PATIENCE_S
        # One look that finds nothing else: on a loaded machine a scrape may come late, before it and behind it.
        while True:
            found = differences()
            if set(found) - ON_THE_EDGE == NEW_SERIES:
                break
            self.assertLess(time.monotonic(), deadline, found)
            time.sleep(1)

    def differences(self, prometheus, server, queries, begin_s):
        """A function: {key: what differs between their answers} of now, of new series since `begin_s`. Once all are the same
        it counts the answers."""
        # Each server's topk() and bottomk() take their own of equal values.
        lines = [[key, re.sub(r"\b(top|bottom)k\(\d+, ", "(", expression)]
                 for key, expressions in queries.items() for expression in expressions]
        # One sed for all.
        theirs = [json.loads(line) for line in victoria.adapted(
            "\n".join(json.dumps(expression) for _, expression in lines), victoria.sed()).split("\n")]

        def differences():
            end_s = int(time.time()) - 4
            found, answered = {}, 0
            for (key, expression), adapted in zip(lines, theirs):
                start_s = min(begin_s if key in NEW_SERIES else end_s, end_s - RANGE_S)
                ours = self.ask(prometheus, expression, start_s, end_s)
                answered += bool(ours)
                says = self.difference(ours, self.ask(server, adapted, start_s, end_s))
                if says:
                    found[key] = says
            # The others are of what is not the matter here: hangs, late nodes, ranks that are gone, full tables.
            if answered < 0.75 * len(lines):
                found["all", "answered"] = "%d of %d" % (answered, len(lines))
            return found
        return differences

    @staticmethod
    def ask(server, expression, start_s, end_s):
        """{labels but the name: {time: value}}, without values that are none: VictoriaMetrics has no series of such."""
        result = server.data("/api/v1/query_range", query=expression, start=start_s, end=end_s, step=1, nocache=1)["result"]
        found = {}
        for series in result:
            labels = tuple(sorted((name, value) for name, value in series["metric"].items() if name != "__name__"))
            assert labels not in found, (expression, labels)
            values = {time_s: float(value) for time_s, value in series["values"] if value != "NaN"}
            if values:
                found[labels] = values
        return found

    @staticmethod
    def difference(ours, theirs):
        """"" if none."""
        if set(ours) != set(theirs):
            return "Prometheus alone: %s; VictoriaMetrics alone: %s" % (
                sorted(set(ours) - set(theirs))[:2], sorted(set(theirs) - set(ours))[:2])
        for labels, values in ours.items():
            for time_s in set(values) & set(theirs[labels]):
                a, b = values[time_s], theirs[labels][time_s]
                if a != b and not math.isclose(a, b, rel_tol=MOST, abs_tol=NOTHING):
                    return "%r and %r: %s" % (a, b, labels)
        return ""


class InVmalert:
    """The tests of alerts again, by vmalert's own tool."""

    RUN = staticmethod(victoria.run)

    def setUp(self):
        servers.path_or_skip("vmalert-tool")
        super().setUp()


class DcgmInVmalert(InVmalert, beside_rules.Dcgm):
    pass


class WatchInVmalert(InVmalert, watch_rules.Watch):
    pass


if __name__ == "__main__":
    running.main()
