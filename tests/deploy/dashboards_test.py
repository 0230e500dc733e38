"""The dashboards: Grafana's model is kept, links and variables lead somewhere, every query has data.

Queries run in a real Prometheus that scrapes real replays. What no replay has (a hang, GPUs beside it, yesterday)
comes from a page that says so, and only the panels in WITHOUT_REPLAY may need it.
"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

from tests import running
from tests.deploy import cluster, servers
from tests.deploy.dashboard_queries import GRAFANA, dashboards, panel_queries, panels
from tests.deploy.made_up_pages import dcgm_page, history, made_up_page, watch_page
from tests.deploy.rules_case import RUNBOOK
from tests.kit import temporary_folder
from tests.replay.replayed_run import RUNFILES

HANG = "nothing hangs in a recorded run"
PAST = "needs an hour of history"
DCGM = "needs dcgm-exporter"
FAULT = "needs a fault"
ALERT = "only an alert for information fires"
LATE = "nobody is late in a recorded run"

# (dashboard, panel): why no replay gives it data. Of a table: of some of its columns.
WITHOUT_REPLAY = {
    ("nccl-fleet", "Hung jobs"): HANG,
    ("nccl-fleet", "Waiting jobs"): "recorded runs wait less",
    ("nccl-fleet", "Jobs"): HANG,
    ("nccl-fleet", "Alerts"): ALERT,
    ("nccl-fleet", "Firing alerts"): ALERT,
    ("nccl-fleet", "Oldest work in flight"): HANG,
    ("nccl-fleet", "Blocking ranks"): HANG,
    ("nccl-fleet", "Late nodes"): LATE,
    ("nccl-fleet", "Slowdown"): PAST,
    ("nccl-fleet", "Network wait per byte"): PAST,
    ("nccl-job", "In flight for"): HANG,
    ("nccl-job", "Communicators"): HANG,
    ("nccl-job", "Work in flight"): HANG,
    ("nccl-job", "Blocking ranks"): HANG,
    ("nccl-job", "With CUDA graphs"): "not recorded here",
    ("nccl-job", "Late ranks"): LATE,
    ("nccl-job", "Slowdown"): PAST,
    ("nccl-node", "Ranks"): HANG,
    ("nccl-node", "Oldest launch in flight"): HANG,
    ("nccl-node", "Lost to this node"): LATE,
    ("nccl-node", "GPU utilization"): DCGM,
    ("nccl-node", "Power"): DCGM,
    ("nccl-node", "SM clock"): DCGM,
    ("nccl-node", "XID"): DCGM,
    ("nccl-pulse-exporter", "Ended processes"): "needs an agent",
    ("nccl-pulse-exporter", "Stuck pollers"): FAULT,
    ("nccl-pulse-exporter", "Endpoints down"): FAULT,
    ("nccl-pulse-exporter", "Ignored events"): FAULT,
    ("nccl-pulse-exporter", "Refused and uncompleted"): FAULT,
    ("nccl-pulse-exporter", "Overflowed"): FAULT,
    ("nccl-pulse-exporter", "Overflowed operations"): FAULT,
}

NATIVE = ["--enable-feature=native-histograms"]

# How durations may come to be stored: whether by the newer Prometheus, its flags, and settings of the scrape.
# This system's own, as it is, is the one of test_every_query_has_data.
FORMS = {
    "2.42, native": (False, NATIVE, {}),
    "3, classic": (True, [], {}),
    "3, native": (True, NATIVE, {}),
    "3, native and classic": (True, NATIVE, {"always_scrape_classic_histograms": True}),
    "3, classic converted to native": (True, NATIVE, {"convert_classic_histograms_to_nhcb": True,
                                                     "scrape_protocols": ["OpenMetricsText1.0.0"]}),
}

def everything(value):
    """All dictionaries in a document."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from everything(each)


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from strings(each)


class Structure(unittest.TestCase):

    def test_they_are_what_the_generator_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, os.path.join(GRAFANA, "generate.py"), folder], check=True)
            for name in dashboards():
                with open(os.path.join(folder, name)) as made, \
                        open(os.path.join(GRAFANA, "dashboards", name)) as stored:
                    self.assertEqual(made.read(), stored.read(), "run: python3 deploy/grafana/generate.py")
            self.assertEqual(sorted(os.listdir(folder)), sorted(dashboards()))

    def test_units_are_grafanas(self):
        """Of those in @grafana/data 11.6.9: Grafana draws a number without its unit if it does not know it."""
        for part in everything(dashboards()):
            if isinstance(part.get("unit", "s"), str):
                self.assertIn(part.get("unit", "s"), ("Bps", "bytes", "dthms", "hertz", "none", "ops", "percent", "percentunit", "s", "short",
                                                      "string", "suffix:x", "watt"))

    def test_percentages_have_one_decimal(self):
        """9.1 %, not 9.1322 %."""
        found = 0
        for part in everything(dashboards()):
            if part.get("unit") == "percentunit":
                self.assertEqual(1, part["decimals"])
                found += 1
            elif {"id": "unit", "value": "percentunit"} in part.get("properties", []):
                self.assertIn({"id": "decimals", "value": 1}, part["properties"])
                found += 1
        self.assertGreater(found, 20)

    def test_a_panel_without_data_has_a_text(self):
        for board in dashboards().values():
            for panel in panels(board):
                if (board["uid"], panel["title"]) in WITHOUT_REPLAY and len(panel["targets"]) == 1:
                    self.assertIn("noValue", panel["fieldConfig"]["defaults"], panel["title"])

    def test_model(self):
        uids = [board["uid"] for board in dashboards().values()]
        self.assertEqual(len(uids), len(set(uids)))
        titles = [board["title"] for board in dashboards().values()]
        self.assertEqual(len(titles), len(set(titles)))
        for board in dashboards().values():
            self.assertRegex(board["uid"], r"^[a-z-]{1,40}$")
            self.assertGreaterEqual(board["schemaVersion"], 36)
            ids = [panel["id"] for panel in panels(board)]
            self.assertEqual(len(ids), len(set(ids)))
            for panel in panels(board):
                self.assertIn(panel["type"], ("row", "stat", "timeseries", "heatmap", "table"))
                self.assertTrue(panel["title"])
                for of_panel in panel.get("targets", []):
                    self.assertEqual(of_panel["datasource"], panel["datasource"])
                refs = [of_panel["refId"] for of_panel in panel.get("targets", [])]
                self.assertEqual(len(refs), len(set(refs)))
                self.assertEqual(bool(refs), panel["type"] != "row")
                if refs:
                    self.assertIn("unit", panel["fieldConfig"]["defaults"])

    def test_panels_do_not_overlap_and_can_be_read_on_a_laptop(self):
        for board in dashboards().values():
            taken = {}
            for panel in panels(board):
                place = panel["gridPos"]
                self.assertLessEqual(place["x"] + place["w"], 24)
                # 24 columns on 1440 pixels: a number needs 200, lines need 450.
                self.assertGreaterEqual(place["w"], {"row": 24, "stat": 4, "table": 12}.get(
                    panel["type"], 8), panel["title"])
                for x in range(place["x"], place["x"] + place["w"]):
                    for y in range(place["y"], place["y"] + place["h"]):
                        self.assertNotIn((x, y), taken, panel["title"])
                        taken[x, y] = panel["title"]

    def test_lines_by_rank_or_endpoint_are_bounded(self):
        found = 0
        for board in dashboards().values():
            if "Hostname" in {variable["name"] for variable in board["templating"]["list"]}:
                continue  # of one node
            for panel in panels(board):
                for query in panel.get("targets", []) if panel["type"] == "timeseries" else []:
                    if re.search(r"{{(rank|instance|pid|Hostname)}}", query["legendFormat"]):
                        self.assertRegex(query["expr"], r"^(top|bottom)k\(\d+, ", panel["title"])
                        found += 1
        self.assertGreater(found, 10)

    def test_collapsed_rows_hold_their_panels(self):
        rows = [row for board in dashboards().values() for row in board["panels"] if row["type"] == "row"]
        self.assertEqual({True, False}, {row["collapsed"] for row in rows})
        self.assertEqual([], [row["title"] for row in rows if row["collapsed"] != bool(row["panels"])])

    def test_a_hung_job_is_one_that_the_alert_names(self):
        hung, = [panel for panel in panels(dashboards()["fleet.json"]) if panel["title"] == "Hung jobs"]
        self.assertIn("(nccl_job_hang_start_timestamp_seconds{", hung["targets"][0]["expr"])

    def test_data_source_is_the_variable(self):
        for board in dashboards().values():
            for part in everything(board):
                if "datasource" in part and isinstance(part["datasource"], dict):
                    self.assertEqual(part["datasource"], {"type": "prometheus", "uid": "${datasource}"})

    def test_variables_are_defined_and_used(self):
        built_in = {"__rate_interval", "__url_time_range", "__data", "__all", "__auto"}
        for board in dashboards().values():
            defined = {variable["name"] for variable in board["templating"]["list"]}
            used = set()
            for text in strings(board):
                used |= set(re.findall(r"\$\{?(\w+)", text))
            self.assertEqual(used - built_in, defined, board["uid"])

    def test_links_lead_to_dashboards(self):
        boards = {board["uid"]: board for board in dashboards().values()}
        linked = set()
        for board in boards.values():
            for part in everything(board):
                url = re.match(r"/d/([^?]+)\?(.*)", part.get("url", ""))
                if url is None:
                    continue
                linked.add(url.group(1))
                defined = {variable["name"] for variable in boards[url.group(1)]["templating"]["list"]}
                self.assertLessEqual(set(re.findall(r"var-(\w+)=", url.group(2))), defined)
            links, (runbook,) = board["links"][:-1], board["links"][-1:]
            self.assertEqual((runbook["title"], runbook["url"]), ("Runbook", RUNBOOK))
            for link in links:
                self.assertTrue(set(link["tags"]) <= set(board["tags"]))
                self.assertTrue(link["includeVars"] and link["keepTime"])
        self.assertEqual(linked, {"nccl-job", "nccl-node"})

    def test_tables_link_and_rename_columns_that_they_have(self):
        for board in dashboards().values():
            for panel in panels(board):
                if panel["type"] != "table":
                    continue
                organize = panel["transformations"][-1]["options"]
                keys = [name for name in organize["indexByName"] if not name.startswith("Value")]
                names = set(keys) | set(organize["renameByName"].values())
                for override in panel["fieldConfig"]["overrides"]:
                    self.assertIn(override["matcher"]["options"], names)
                for query in panel["targets"]:
                    self.assertIn(query["format"], "table")
                # As a number, process 1340 would be shown, and linked to, as 1.34 K.
                self.assertEqual(panel["fieldConfig"]["defaults"]["unit"], "string")

    def test_tables_are_not_wider_than_a_laptop(self):
        for board in dashboards().values():
            for panel in panels(board):
                if panel["type"] != "table":
                    continue
                organize = panel["transformations"][-1]["options"]
                config = panel["fieldConfig"]
                widths = {name: config["defaults"]["custom"]["minWidth"] for name in organize["indexByName"]}
                for override in config["overrides"]:
                    for each in override["properties"]:
                        if each["id"] == "custom.width":
                            widths[override["matcher"]["options"]] = each["value"]
                self.assertLessEqual(sum(widths.values()), 1400 * panel["gridPos"]["w"] / 24 - 50, panel["title"])

    def test_metrics_exist(self):
        """Every metric that is named is in the catalogue, recorded, dcgm-exporter's or Prometheus' own."""
        known = set()
        for path in ("docs/metrics.md", "docs/prometheus.md"):
            with open(os.path.join(RUNFILES, path), encoding="utf-8") as file:
                known |= set(re.findall(r"^\| `(nccl_\w+)`", file.read(), re.MULTILINE))
        for rules in glob.glob(os.path.join(RUNFILES, "deploy/prometheus/*.yaml")):
            with open(rules, encoding="utf-8") as file:
                known |= set(re.findall(r"record: (\S+)", file.read()))
        for board in dashboards().values():
            for query in everything(board):
                for name in re.findall(r"(?<![\w:\"])((?:\w+:)?nccl_[\w:]+)", query.get("expr", "")):
                    stem = re.sub(r"_(bucket|sum|count)$", "", name)
                    self.assertTrue(name in known or stem in known, name)


class Queries(unittest.TestCase):

    def tables(self):
        """{(dashboard, panel): the labels that are its columns}"""
        return {(board["uid"], panel["title"]):
                {name for name in panel["transformations"][-1]["options"]["indexByName"]
                 if not name.startswith("Value")}
                for board in dashboards().values() for panel in panels(board)
                if panel["type"] == "table"}

    def start(self, thing):
        self.addCleanup(thing.end)
        return thing

    def without_data(self, prometheus, queries):
        """Those that have none yet."""
        return {key: left for key, left in (
            (key, [e for e in expressions if not prometheus.query(e)])
            for key, expressions in queries.items()) if left}

    def wait_for_data(self, prometheus, queries):
        deadline = time.monotonic() + cluster.PATIENCE_S
        while queries:
            queries = self.without_data(prometheus, queries)
            time.sleep(0.2)
            if time.monotonic() > deadline:
                self.fail("no data:\n%s\nfailing rules: %s\n%s" % (
                    json.dumps([[*key, left] for key, left in queries.items()], indent=1),
                    prometheus.failing_rules(), prometheus.log()[-4000:]))

    def replays(self):
        replays = [
            # Slowly: their calls come within a fifth of a second or less, and rates take two scrapes of
            # them. They go on and on: what a starved machine has not seen comes again.
            cluster.Replay("h200x2-threads", 0.005, SLURM_JOB_ID="1"),
            cluster.Replay("h200x2-net-mixed", 0.005, SLURM_JOB_ID="2",
                           NCCL_PULSE_NETWORK_WINDOW="100"),
            # With kernel timing, all-to-alls are not trusted.
            cluster.Replay("h200x4-pytorch-ddp-fsdp", 0.3, SLURM_JOB_ID="3",
                           NCCL_PULSE_TIMING="kernel", NCCL_PULSE_LABELS="workload=mixed"),
        ]
        return [self.start(replay).target for replay in replays]

    def test_every_query_has_data_in_every_form(self):
        newer = servers.path_or_skip("prometheus")
        targets = self.replays()
        queries = {key: expressions for key, expressions in panel_queries().items() if key not in WITHOUT_REPLAY}
        # All beside each other: what they wait for is the replays' own pace.
        started = {}
        for form, (is_newer, flags, scraping) in FORMS.items():
            started[form] = self.start(cluster.Prometheus(
                temporary_folder(self), flags=flags, program=newer if is_newer else "prometheus",
                scraping=scraping))
            started[form].scrape("nccl-pulse", targets)
        for form, prometheus in started.items():
            with self.subTest(form):
                self.wait_for_data(prometheus, queries)
                self.assertEqual(prometheus.failing_rules(), [])
                self.check_form(prometheus, form)
                self.assertEqual(prometheus.query('ALERTS{alertname!~"Nccl(Pulse|Watch).*"}'), [])

    def check_form(self, prometheus, form):
        """Durations are stored as the form says, and no otherwise."""
        name = 'nccl_operation_duration_seconds%s{timing!="network"}'
        self.assertEqual(bool(prometheus.query(name % "_bucket")), form in ("3, classic", "3, native and classic"))
        self.assertEqual(bool(prometheus.query("histogram_count(%s)" % name % "")), form != "3, classic")

    def test_conversion_without_the_feature_is_noticed(self):
        """It stores nothing, and says nothing."""
        prometheus = self.start(cluster.Prometheus(
            temporary_folder(self), program=servers.path_or_skip("prometheus"),
            scraping={"convert_classic_histograms_to_nhcb": True}))
        prometheus.scrape("nccl-pulse", self.replays())
        self.wait_for_data(prometheus, {"alert": [
            'ALERTS{alertname="NcclPulseHistogramsMissing", alertstate="firing"}']})
        self.assertEqual(prometheus.query('{__name__=~"nccl_operation_duration_seconds.*"}'), [])

    def test_every_query_has_data(self):
        prometheus = self.start(cluster.Prometheus(temporary_folder(self), history(time.time())))
        targets = self.replays()
        prometheus.scrape("nccl-pulse", targets)

        queries = panel_queries()
        self.assertLessEqual(set(WITHOUT_REPLAY), set(queries))
        self.wait_for_data(prometheus, {key: expressions for key, expressions in queries.items()
                                        if key not in WITHOUT_REPLAY})
        left = self.without_data(prometheus, {key: queries[key] for key in WITHOUT_REPLAY})
        # On a machine that has no time for the exporter it may not answer, and an alert on it fire.
        busy = {key for key, why in WITHOUT_REPLAY.items() if why == ALERT or key[1] == "Endpoints down"}
        self.assertEqual(set(left) | busy, set(WITHOUT_REPLAY))
        # Nothing is wrong with the recorded jobs, not even for a moment.
        self.assertEqual(prometheus.query('ALERTS{alertname!~"Nccl(Pulse|Watch).*"}'), [])

        # And an endpoint that does not answer.
        prometheus.scrape("nccl-pulse", targets + [self.start(cluster.Page(made_up_page)).target, "127.0.0.1:1"])
        prometheus.scrape("nccl-pulse-watch", [self.start(cluster.Page(watch_page)).target])
        prometheus.scrape("dcgm", [self.start(cluster.Page(dcgm_page)).target])
        self.wait_for_data(prometheus, left)
        self.assertEqual(prometheus.failing_rules(), [])

        # Columns are merged into rows by all labels that they have: one more (__name__, say), and each
        # column gets rows of its own.
        for key, columns in self.tables().items():
            for expression in queries[key]:
                for labels in prometheus.query(expression):
                    self.assertLessEqual(set(labels), columns, (key, expression))


if __name__ == "__main__":
    running.main()
