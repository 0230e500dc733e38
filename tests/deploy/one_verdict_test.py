"""One table of jobs with something wrong: the engine, `pulse diagnose --json`, the JSON of the node's endpoint,
`pulse status`, the page and /metrics of `pulse watch` and the alert give the same verdict, rank and first step."""

import json
import os
import subprocess
import unittest

from tests import running
from tests.deploy import scenario
from tests.deploy.rules_case import RUNBOOK
from tests.gpu.endpoint import Page

TABLE = os.path.join(os.getcwd(), "tests/fleet/verdict_table")
HANG = "nccl_job_hang_start_timestamp_seconds"
INFO = "nccl_job_hang_info"
SLOW = "nccl_job_straggler_ratio"
# Of the scenario, which begins at 0.
NOW_S, SINCE_S = 1200, 1190
# What tells one watcher from another.
WATCHERS = [{"job": "nccl-pulse-watch", "instance": "watch-%d:9420" % i, "pod": "watch-%d" % i} for i in range(2)]


def parse(text):
    """[(name, labels, value)]"""
    return [(name, {key: json.loads('"%s"' % escaped) for key, escaped in labels}, value)
            for (name, labels), value in Page(text).samples.items()]


class OneVerdictTest(unittest.TestCase):

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        lines = subprocess.run([TABLE], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        cls.rows = [json.loads(line) for line in lines]

    def test_all_say_the_same(self):
        self.assertGreaterEqual(len(self.rows), 40)
        for row in self.rows:
            with self.subTest(row["name"]):
                expected, said = row["expected"], row["engine"]
                self.assertEqual((said["verdict"], said["rank"]), (expected["verdict"], expected["rank"]))
                self.assertTrue(said["first"].startswith(expected["first"]), said)
                self.assertEqual(self.of_json(row["json"]), said)
                self.assertEqual(self.of_metrics(row["metrics"]), said)
                if said["first"]:
                    self.assertIn("Next: %s." % said["first"], row["watch"])
                if said["first"] and row["node"]:
                    self.assertIn(said, self.of_node(row["node"]))
                    self.assertIn("Next: %s." % said["first"], row["status"])

    def test_all_have_one_state(self):
        """The words of health are those of docs/http-api.md, which does not tell ended jobs from unused ones."""
        words = {"waiting": "wait", "straggler": "slow"}
        for row in self.rows:
            with self.subTest(row["name"]):
                state, said = row["state"], row["json"]
                self.assertEqual(said["sentence"].split()[0], state.upper())
                self.assertEqual(said["finding"], state if state in ("hang", "incomplete") else "none")
                jobs = [labels["state"] for name, labels, value in parse(row["metrics"])
                        if name == "nccl_watch_jobs" and value]
                self.assertEqual(jobs, [state])
                if state != "ended":
                    for page in (said["health"], *([row["node"]["health"]["status"]] if row["node"] else [])):
                        self.assertEqual(words.get(page, page), state)
                if row["expected"]["rank"] >= 0 and state == "incomplete":
                    self.assertIn("global rank %d " % row["expected"]["rank"], said["sentence"])

    @staticmethod
    def of_node(page):
        """Of each communicator; a rank that is not seen has no number in the job."""
        found = []
        for comm in page["communicators"]:
            for what, suspects in (("hang", "suspects"), ("straggler", "rank")):
                finding = comm[what]
                if finding is None:
                    continue
                named = (finding[suspects] if what == "hang" else [finding[suspects]]) or [-1]
                numbers = {rank["rank"]: int(rank["process"]["global_rank"]) for rank in comm["ranks"]}
                found.append({"verdict": finding.get("verdict", ""), "rank": numbers.get(named[0], named[0]),
                              "first": finding["first_step"]})
        return found

    @staticmethod
    def of_json(verdict):
        for root in verdict["roots"]:
            if not root["usual"]:
                rank = [each["process"]["global_rank"] if each["process"] else each["rank"] for each in root["ranks"]]
                return {"verdict": root["verdict"], "rank": int(rank[0]) if rank else -1, "first": root["first"]}
        for straggler in verdict["stragglers"]:
            return {"verdict": "", "rank": int(straggler["ranks"][0]["process"]["global_rank"]),
                    "first": straggler["first"]}
        return {"verdict": "", "rank": -1, "first": ""}

    @staticmethod
    def texts(text):
        """The labels of the first hang's texts."""
        return next((labels for name, labels, _ in parse(text) if name == INFO), {})

    def of_metrics(self, text):
        for name, labels, _ in parse(text):
            if name in (HANG, SLOW):
                return {"verdict": labels.get("verdict", ""),
                        "rank": int(labels.get("global_rank", labels.get("rank", -1))),
                        "first": {**self.texts(text), **labels}["first_step"]}
        return {"verdict": "", "rank": -1, "first": ""}

    def test_alerts(self):
        """Both watchers say it, and it is one alert."""
        found = scenario.run([self.scenario(row) for row in self.rows], ("hang", "stragglers"), 15)
        self.assertEqual(found, "")

    def scenario(self, row):
        series, alerts = [], {"NcclJobHung": [], "NcclJobHungLong": [], "NcclSlowRank": [],
                              "NcclSlowNode": [], "NcclHangUnwatched": [], "NcclWatchAbsent": [], "NcclWatchBlind": []}
        for name, labels, value in parse(row["metrics"]):
            if name == HANG:
                value = SINCE_S
                alerts["NcclJobHung"].append(self.hang(self.texts(row["metrics"]), labels))
            elif name == SLOW:
                alerts["NcclSlowRank"].append(self.slow(row["expected"], labels, value))
            elif name == "nccl_job_hang_process_start_timestamp_seconds":
                value = 0
            is_round = name == "nccl_watch_round_timestamp_seconds"
            for watcher in WATCHERS:
                series.append({"series": name + scenario.labels_text({**labels, **watcher}.items()),
                               "values": "%s%d" % ("0+15x" if is_round else "%rx" % value, NOW_S // 15)})
        return {"interval": "15s", "input_series": series, "promql_expr_test": [],
                "alert_rule_test": [{"alertname": name, "eval_time": "%ds" % NOW_S, "exp_alerts": expected}
                                    for name, expected in alerts.items()]}

    @staticmethod
    def where(labels):
        return ((" on " + labels["Hostname"] if "Hostname" in labels else "") +
                (" GPU " + labels["gpu"] if "gpu" in labels else ""))

    @staticmethod
    def hang(texts, labels):
        return {"exp_labels": {**labels, "severity": "warning"}, "exp_annotations": {
            "summary": "Job 4711 hangs: %s. Next: %s." % (texts["text"], texts["first_step"]),
            "description": "Since 1970-01-01 00:19:50 +0000 UTC, communicator %s%s." % (
                labels["comm"], ", pid " + labels["pid"] if "pid" in labels else ""),
            "runbook_url": RUNBOOK + "#nccljobhung"}}

    def slow(self, expected, labels, value):
        of_alert = {name: value for name, value in labels.items() if name != "first_step"}
        return {"exp_labels": {**of_alert, "severity": "warning"}, "exp_annotations": {
            "summary": "Rank %d%s is late: job 4711 has lost %.4g%% of the last ten minutes" % (
                expected["rank"], self.where(labels), 100 * value),
            "description": "Next: %s." % labels["first_step"], "runbook_url": RUNBOOK + "#ncclslowrank"}}


if __name__ == "__main__":
    running.main()
