"""Metrics and alerts have one name in code, rules, boards and documents.

docs/metrics.md is what the code's catalogue prints (catalogue_test); here all others are compared with it.
"""

import glob
import os
import re
import unittest

from tests import running
from tests.kit import RUNFILES

METRIC = re.compile(r"(?<![\w:{/.-])((?:\w+:)?nccl_(?!trace_rank)[a-z][\w:]*[a-z0-9])(?![\w*/])")
ALERT = re.compile(r"\bNccl[A-Z]\w+[a-z]\b")
# Of NCCL and of others; what documents name otherwise with this beginning.
OTHERS = {"nccl_profiler", "nccl_pulse", "nccl_tests", "nccl_log"}


def read(pattern):
    """{path: text} of the files that match."""
    texts = {}
    for path in glob.glob(os.path.join(RUNFILES, pattern)):
        with open(path, encoding="utf-8") as file:
            texts[os.path.relpath(path, RUNFILES)] = file.read()
    return texts


def unknown(texts, known, pattern):
    """["file: name"] of what no text of `known` defines."""
    wrong = []
    for path, text in texts.items():
        for name in pattern.findall(text):
            stem = re.sub(r"_(bucket|sum|count)$|:rate5m$", "", name)
            if name not in known and stem not in known:
                wrong.append("%s: %s" % (path, name))
    return sorted(set(wrong))


class NamesTest(unittest.TestCase):

    def setUp(self):
        self.rules = read("deploy/prometheus/*.yaml")
        self.documents = {**read("README.md"), **read("docs/*.md")}
        rules = "\n".join(self.rules.values())
        tables = self.documents["docs/metrics.md"] + self.documents["docs/prometheus.md"]
        self.metrics = set(re.findall(r"^\| `(nccl_\w+)`", tables, re.MULTILINE)) | set(re.findall(r"record: (\S+)", rules)) | OTHERS
        self.alerts = set(re.findall(r"alert: (\S+)", rules))
        self.assertGreater(len(self.metrics), 60)
        self.assertGreater(len(self.alerts), 15)

    def test_metrics(self):
        texts = {**self.rules, **self.documents, **read("deploy/grafana/dashboards/*.json")}
        self.assertEqual([], unknown(texts, self.metrics, METRIC))

    def test_alerts(self):
        texts = {**self.rules, **self.documents, **read("deploy/grafana/dashboards/*.json")}
        self.assertEqual([], unknown(texts, self.alerts, ALERT))
        sections = set(re.findall(r"^### (Nccl\w+)", self.documents["docs/runbook.md"], re.MULTILINE))
        self.assertEqual(self.alerts, sections)

    def test_what_is_wrong_is_found(self):
        self.assertEqual(["x: nccl_activity_unknown"],
                         unknown({"x": "`nccl_activity_unknown` nccl_hang_expected"}, {"nccl_hang_expected"}, METRIC))
        self.assertEqual(["x: NcclHung"], unknown({"x": "NcclHung and NcclJobHung"}, {"NcclJobHung"}, ALERT))


if __name__ == "__main__":
    running.main()
