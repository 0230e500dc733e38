"""The dashboards, and what they ask for."""

import glob
import json
import os
import re

from tests.replay.replayed_run import RUNFILES

GRAFANA = os.path.join(RUNFILES, "deploy/grafana")


def dashboards():
    found = {}
    for path in sorted(glob.glob(os.path.join(GRAFANA, "dashboards/*.json"))):
        with open(path, encoding="utf-8") as file:
            found[os.path.basename(path)] = json.load(file)
    return found


def panels(board):
    """All panels of a board, also of collapsed rows."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", [])


def panel_queries():
    """{(dashboard, panel): its expressions}, variables filled in, with rates over as long as prometheus_server.py's rules."""
    found = {}
    for board in dashboards().values():
        for variable in board["templating"]["list"]:
            match = re.match(r"label_values\((.*), (\w+)\)$", variable.get("definition", ""))
            if match:
                found[board["uid"], "variable " + variable["name"]] = ["group by (%s) (%s)" % match.group(2, 1)]
        for panel in panels(board):
            if panel["type"] != "row":
                key = board["uid"], panel["title"]
                assert key not in found, key
                found[key] = [query["expr"] for query in panel["targets"]]
    return {key: [re.sub(r"\$\w+", ".*", re.sub(r"\[(\$__rate_interval|5m)\]", "[10s]", e)) for e in queries]
            for key, queries in found.items()}
