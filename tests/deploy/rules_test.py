"""Every alert of deploy/prometheus fires when it should, and is silent when something else is the matter.

promtool evaluates the rules as they are; a test says what was scraped (scenario.py).
"""

import glob
import json
import os
import re
import shutil
import subprocess
import tempfile
import textwrap
import unittest
from unittest import mock

from tests import running
from tests.deploy import scenario
# The tests of the alerts: they run with those below.
from tests.deploy.beside_rules import Dcgm, Fleet
from tests.deploy.exporter_rules import Durations, Exporter
from tests.deploy.latency_rules import Latency, Past, Waiting
from tests.deploy.rules_case import COMM, RUNBOOK, RulesTest, in_all_forms
from tests.deploy.scenario import Job
from tests.deploy.watch_rules import Watch

FORMS = in_all_forms(Durations, Fleet, Latency, Past, Waiting)
globals().update(FORMS)
CASES = (Dcgm, Durations, Exporter, Fleet, Latency, Past, Waiting, Watch, *FORMS.values())


def alerts():
    """{alert: its lines in the file}"""
    found = {}
    for path in glob.glob(os.path.join(scenario.RULES, "*.yaml")):
        with open(path, encoding="utf-8") as file:
            for part in re.split(r"^ *- alert: ", file.read(), flags=re.MULTILINE)[1:]:
                found[part.split("\n")[0]] = part
    return found


class Whole(RulesTest):

    def test_promtool_finds_nothing_wrong(self):
        paths = sorted(glob.glob(os.path.join(scenario.RULES, "*.yaml")))
        rules = [path for path in paths if os.path.basename(path) not in ("prometheus.yaml", "alertmanager.yaml")]
        result = subprocess.run(["promtool", "check", "rules", *rules], text=True, capture_output=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        result = subprocess.run(
            ["promtool", "check", "config", os.path.join(scenario.RULES, "prometheus.yaml")],
            text=True, capture_output=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_every_alert_has_its_section_and_its_annotations(self):
        with open("docs/runbook.md", encoding="utf-8") as file:
            sections = re.split(r"^### ", file.read(), flags=re.MULTILINE)[1:]
        self.assertEqual(sorted(alerts()), sorted(section.split("\n")[0] for section in sections))
        for section in sections:
            for word in ("**Means**", "**Look at**", "**Do**"):
                self.assertIn(word, section)
        for alert, text in alerts().items():
            self.assertIn("runbook_url: %s#%s\n" % (RUNBOOK, alert.lower()), text)
            self.assertRegex(text, r"severity: (info|warning|critical)")
            if "<<:" not in text:
                self.assertIn("summary:", text)
                self.assertIn("description:", text)

    def test_metrics_exist(self):
        known = set()
        for path in ("docs/metrics.md", "docs/prometheus.md"):
            with open(path, encoding="utf-8") as file:
                known |= set(re.findall(r"^\| `(nccl_\w+)`", file.read(), re.MULTILINE))
        rules = ""
        for path in glob.glob(os.path.join(scenario.RULES, "*.yaml")):
            with open(path, encoding="utf-8") as file:
                rules += file.read()
        known |= set(re.findall(r"record: (\S+)", rules))
        used = set(re.findall(r"\b(?:\w+:)?nccl_\w[\w:]*", re.sub(r"#.*", "", rules)))
        self.assertEqual([name for name in used if name not in known and
                          re.sub(r"_(bucket|sum|count)$", "", name) not in known], [])

    def promtool_check(self, what, text):
        """Of a file beside the rules."""
        with tempfile.TemporaryDirectory() as folder:
            for path in glob.glob(os.path.join(scenario.RULES, "*.yaml")):
                shutil.copy(path, folder)
            path = os.path.join(folder, "checked.yaml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            result = subprocess.run(["promtool", "check", what, path], text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_the_alerts_know_the_scrape_jobs_of_the_documents(self):
        known = re.findall(r'up\{job=~"([^"]+)"\}', alerts()["NcclPulseEndpointDown"])
        jobs = []
        for path in glob.glob("docs/*.md"):
            with open(path, encoding="utf-8") as file:
                jobs += re.findall(r"- job_name: *(\S+)", file.read())
        self.assertGreater(len(jobs), 1)
        self.assertEqual([job for job in jobs if not any(re.fullmatch(each, job) for each in known)], [])

    def test_examples_of_the_documents(self):
        documents = {}
        for name in ("debug-a-slow-job", "prometheus", "scale"):
            with open("docs/%s.md" % name, encoding="utf-8") as file:
                documents[name] = re.findall(r"```(yaml|promql)\n(.*?)```", file.read(), re.DOTALL)
        cluster, at_scrape = [text for kind, text in documents["scale"] if kind == "yaml"]
        self.promtool_check("config", cluster)
        self.promtool_check("config", "scrape_configs:\n- job_name: nccl-pulse\n" + textwrap.indent(at_scrape, "  "))
        queries = [query for kind, text in sum(documents.values(), []) if kind == "promql"
                   for query in re.split(r"^#.*\n", text, flags=re.MULTILINE) if query.strip()]
        self.assertGreater(len(queries), 12)
        self.promtool_check("rules", json.dumps({"groups": [{"name": "examples", "rules": [
            {"record": "example", "expr": query} for query in queries]}]}))

        # What the relabelling lets through.
        keep, drop = re.findall(r"regex: (.+)\n", cluster)
        recorded = set()
        for path in glob.glob(os.path.join(scenario.RULES, "*.yaml")):
            with open(path, encoding="utf-8") as file:
                recorded |= set(re.findall(r"record: (\S+)", file.read()))
        written = {name for name in recorded | {"nccl_operations_total", "ALERTS"}
                   if re.fullmatch(keep, name) and not re.fullmatch(drop, name)}
        self.assertIn("ALERTS", written)
        self.assertEqual({name for name in recorded if not name.startswith(("rank:", "process:"))} - written,
                         {"comm:nccl_operation_duration_seconds_%s:rate5m" % part
                          for part in ("bucket", "sum", "count")})
        self.assertFalse([name for name in written if name.startswith(("rank:", "nccl_"))])
        # Every other of the buckets that there are, up to 31 ms; behind it they are far apart as it is.
        drop = re.search(r"le\], regex: '(.+)'", at_scrape).group(1)
        with open("exporter/exposition/classic_buckets.h", encoding="utf-8") as file:
            exponents = re.search(r"kClassicExponents = \{([^}]+)\}", file.read()).group(1)
        bounds = [2.0**int(exponent) for exponent in exponents.split(",")]
        dropped = [bound for bound in bounds
                   if re.fullmatch(drop, "x_bucket;%s" % (repr(bound) if bound < 1 else int(bound)))]
        self.assertEqual(dropped, [bound for bound in bounds if bound <= 2.0**-5][1::2])
        self.assertEqual(len(re.fullmatch(r".*\((.+)\)", drop).group(1).split("|")), len(dropped),
                         "every alternative is a bucket that there is")

    def test_every_alert_is_seen_firing_and_silent(self):
        """By what the tests expect. promtool, which takes the time, is left out: another shard asks it."""
        load = unittest.defaultTestLoader.loadTestsFromTestCase
        result = unittest.TestResult()
        with mock.patch.object(RulesTest, "tearDown", lambda case: None):
            unittest.TestSuite(load(case) for case in CASES).run(result)
        self.assertEqual(result.errors + result.failures, [])
        self.assertEqual(set(alerts()), self.fired)
        self.assertEqual(set(alerts()), self.silent)

    def test_the_test_can_fail(self):
        scrapes = self.scrapes(10)
        Job(scrapes)
        wrong = scenario.firing("NcclPulsePluginStalled", 9, COMM, [("c0ffee",)])
        test = scenario.simulation(scrapes, [wrong], [])
        self.assertIn("FAILED", scenario.run([test], self.FILES, self.STEP_S))


if __name__ == "__main__":
    running.main()
