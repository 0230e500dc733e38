"""The dashboards keep to Grafana's model, and what does not is named."""

import copy
import glob
import json
import os
import unittest

from tests import running
from tests.deploy import grafana_schema

DASHBOARDS = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"],
                          "deploy/grafana/dashboards")
KINDS = ("stat", "timeseries", "heatmap", "table")


def dashboards():
    for path in sorted(glob.glob(os.path.join(DASHBOARDS, "*.json"))):
        with open(path, encoding="utf-8") as file:
            yield os.path.basename(path), json.load(file)


class Schema(unittest.TestCase):

    def setUp(self):
        self.job = dict(dashboards())["job.json"]

    def panel(self, kind):
        """A copy of the dashboard, and its first panel of the kind."""
        board = copy.deepcopy(self.job)
        return board, next(panel for panel in board["panels"] if panel["type"] == kind)

    def refused(self, board, *words):
        with self.assertRaises(ValueError) as raised:
            grafana_schema.check_dashboard(board, "job")
        for word in words:
            self.assertIn(word, str(raised.exception))

    def test_the_dashboards_keep_to_it(self):
        found = list(dashboards())
        self.assertEqual(len(found), 4)
        for name, board in found:
            grafana_schema.check_dashboard(board, name)
        self.assertLessEqual(set(KINDS), {panel["type"] for panel in self.job["panels"]})

    def test_unknown_fields(self):
        for kind in KINDS:
            for path in ((), ("options",), ("fieldConfig",), ("fieldConfig", "defaults"), ("gridPos",),
                         ("targets", 0)):
                board, panel = self.panel(kind)
                part = panel
                for step in path:
                    part = part[step]
                part["colour"] = "red"
                self.refused(board, "unknown field colour", repr(panel["title"]))
        for change in (lambda board: board, lambda board: board["links"][0],
                       lambda board: board["templating"]["list"][1],
                       lambda board: board["annotations"]["list"][0]):
            board = copy.deepcopy(self.job)
            change(board)["colour"] = "red"
            self.refused(board, "unknown field colour")

    def test_units(self):
        for wrong in ("seconds", "us", "percentUnit", "bytes/s", "GB/s", 1, None, ""):
            board, panel = self.panel("timeseries")
            panel["fieldConfig"]["defaults"]["unit"] = wrong
            self.refused(board, repr(panel["title"]), "unit")
        for right in ("\u00b5s", "s", "Bps", "binBps", "ops", "suffix:s/s"):
            board, panel = self.panel("timeseries")
            panel["fieldConfig"]["defaults"]["unit"] = right
            grafana_schema.check_dashboard(board, "job")
        board, panel = self.panel("heatmap")
        panel["options"]["yAxis"]["unit"] = "second"
        self.refused(board, "options.yAxis.unit", "'second' is no unit")

    def test_values(self):
        for kind, path, wrong in (
                ("stat", "options.colorMode", "text"), ("stat", "options.graphMode", True),
                ("stat", "options.reduceOptions.calcs", ["lastNonNull"]),
                ("stat", "options.reduceOptions.values", "no"),
                ("timeseries", "options.legend.displayMode", "rows"),
                ("timeseries", "options.legend.placement", "top"),
                ("timeseries", "options.legend.calcs", "max"),
                ("timeseries", "options.tooltip.mode", "all"),
                ("timeseries", "fieldConfig.defaults.custom.showPoints", False),
                ("timeseries", "fieldConfig.defaults.custom.fillOpacity", 0.5),
                ("timeseries", "fieldConfig.defaults.custom.stacking", "normal"),
                ("timeseries", "fieldConfig.defaults.custom.stacking.mode", "stack"),
                ("timeseries", "fieldConfig.defaults.custom.thresholdsStyle.mode", "dashes"),
                ("timeseries", "fieldConfig.defaults.color.mode", "palette"),
                ("timeseries", "fieldConfig.defaults.min", "0"),
                ("heatmap", "targets.0.format", "buckets"),
                ("timeseries", "targets.0.expr", ""),
                ("timeseries", "gridPos.w", 25), ("timeseries", "type", "graph"),
                ("heatmap", "options.color.mode", "spectrum"), ("heatmap", "options.color.steps", 256),
                ("heatmap", "options.color.scheme", "interpolateSpectral"),
                ("heatmap", "options.rowsFrame.layout", "upper"),
                ("table", "options.cellHeight", "small"),
                ("table", "fieldConfig.defaults.custom.cellOptions.type", "colour-text"),
                ("table", "transformations.0.id", "join"),
                ("table", "transformations.1.options.indexByName", ["comm"])):
            board, panel = self.panel(kind)
            *steps, last = path.split(".")
            part = panel
            for step in steps:
                part = part[int(step) if isinstance(part, list) else step]
            self.assertIn(last, part)
            part[last] = wrong
            self.refused(board, last)

    def test_thresholds(self):
        for wrong in ([], [{"value": 0, "color": "red"}],
                      [{"value": None, "color": "red"}, {"value": 2, "color": "red"},
                       {"value": 1, "color": "red"}],
                      [{"value": None, "color": "crimson"}], [{"color": "red"}]):
            board, panel = self.panel("stat")
            panel["fieldConfig"]["defaults"]["thresholds"]["steps"] = wrong
            self.refused(board, "thresholds", repr(panel["title"]))

    def test_overrides(self):
        for wrong, word in ((("units", "s"), "'units'"), (("unit", "sec"), "'sec'"),
                            (("custom.colour", "red"), "custom.colour"),
                            (("custom.drawStyle", "bars"), "custom.drawStyle"),  # no table has it
                            (("custom.width", "wide"), "custom.width"),
                            (("links", [{"url": "/d/nccl-job"}]), "title is missing"),
                            (("mappings", [{"type": "value", "options": {"a": {"colour": "red"}}}]),
                             "unknown field colour")):
            board, panel = self.panel("table")
            panel["fieldConfig"]["overrides"][0]["properties"].append(
                {"id": wrong[0], "value": wrong[1]})
            self.refused(board, word, "fieldConfig.overrides[0].properties[")

    def test_what_must_be_there(self):
        for kind, part, name in (("stat", "options", "reduceOptions"),
                                 ("timeseries", "options", "legend"), ("heatmap", "options", "yAxis"),
                                 ("table", "options", "showHeader"),
                                 ("table", "fieldConfig", "overrides")):
            board, panel = self.panel(kind)
            del panel[part][name]
            self.refused(board, "%s is missing" % name, repr(panel["title"]))
        for name in ("uid", "title", "schemaVersion", "panels"):
            board = copy.deepcopy(self.job)
            del board[name]
            self.refused(board, "%s is missing" % name)

    def test_dashboard(self):
        for path, wrong in (("refresh", "30"), ("refresh", False), ("schemaVersion", 12),
                            ("graphTooltip", True), ("time.from", "1h"), ("timezone", "local"),
                            ("templating.list.1.refresh", 3), ("templating.list.1.type", "metric"),
                            ("templating.list.1.hide", False), ("links.0.type", "dashboard"),
                            ("annotations.list.0.iconColor", "danger"), ("uid", "nccl/job")):
            board = copy.deepcopy(self.job)
            *steps, last = path.split(".")
            part = board
            for step in steps:
                part = part[int(step) if isinstance(part, list) else step]
            part[last] = wrong
            self.refused(board, "." + last)


if __name__ == "__main__":
    running.main()
