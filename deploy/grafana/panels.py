"""Panels and dashboards as Grafana's JSON model has them, and a layout that keeps them apart.

For Grafana 10 and newer. A panel is made without a place; Dashboard puts panels side by side into rows of
24 columns.
"""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

GREEN, YELLOW, RED = "green", "orange", "red"


def thresholds(*steps):
    """steps: (from this value on, color); the first value is None."""
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}


NONE = thresholds((None, "text"))


def bad_from(*bounds):
    """Green; from the last bound on red, from the one before it on orange."""
    colors = [YELLOW, RED][-len(bounds):]
    return thresholds((None, GREEN), *zip(bounds, colors))


def target(expression, legend="", index=0, **more):
    return dict({"refId": chr(ord("A") + index), "datasource": DATASOURCE,
                 "expr": " ".join(expression.split()), "legendFormat": legend or "__auto",
                 "range": True}, **more)


def panel(kind, title, description, targets, unit, steps=NONE, options=None, custom=None,
          overrides=(), links=(), **defaults):
    config = dict({"unit": unit, "thresholds": steps, "color": {"mode": "palette-classic"}}, **defaults)
    if custom:
        config["custom"] = custom
    if links:
        config["links"] = list(links)
    return {"type": kind, "title": title, "description": description, "datasource": DATASOURCE,
            "targets": targets, "options": options or {},
            "fieldConfig": {"defaults": config, "overrides": list(overrides)}}


def stat(title, description, expression, unit="short", steps=NONE, none="0", **defaults):
    """One number. `none`: what stands there when there is no series."""
    return panel("stat", title, description, [target(expression, instant=True, range=False)], unit,
                 steps, {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value",
                         "graphMode": "none", "textMode": "value"},
                 color={"mode": "thresholds"}, noValue=none, **defaults)


def graph(title, description, *queries, unit="short", steps=None, stack=False, **defaults):
    """Lines over time. queries: (expression, legend)."""
    custom = {"lineWidth": 1, "fillOpacity": 30 if stack else 5, "showPoints": "never",
              "spanNulls": False, "stacking": {"mode": "normal" if stack else "none"},
              "thresholdsStyle": {"mode": "dashed" if steps else "off"}}
    options = {"tooltip": {"mode": "multi", "sort": "desc"},
               "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"],
                          "sortBy": "Max", "sortDesc": True}}
    targets = [target(expression, legend, i) for i, (expression, legend) in enumerate(queries)]
    defaults.setdefault("min", 0)
    return panel("timeseries", title, description, targets, unit, steps or NONE, options, custom,
                 **defaults)


def heatmap(title, description, expression, unit="s"):
    """Of a histogram's buckets, by le."""
    return panel("heatmap", title, description,
                 [target(expression, "{{le}}", format="heatmap")], unit, options={
                     "calculate": False, "cellGap": 0, "yAxis": {"unit": unit, "axisPlacement": "left"},
                     "rowsFrame": {"layout": "auto"}, "filterValues": {"le": 1e-9},
                     "color": {"mode": "scheme", "scheme": "Spectral", "steps": 64, "reverse": True},
                     "exemplars": {"color": "rgba(255,0,255,0.7)"},
                     "tooltip": {"mode": "single", "show": True, "yHistogram": True},
                     "legend": {"show": True}})


def table(title, description, keys, columns, links=()):
    """One row for each value of the labels `keys`. columns: (name, expression, unit[, thresholds])."""
    targets, renames, overrides = [], {}, []
    for i, (name, expression, unit, *steps) in enumerate(columns):
        targets.append(target(expression, "", i, instant=True, range=False, format="table"))
        # Grafana names the value column of one query "Value", of several "Value #A".
        value = "Value #%s" % targets[-1]["refId"] if len(columns) > 1 else "Value"
        renames[value] = name
        properties = [{"id": "unit", "value": unit}]
        if steps:
            properties += [{"id": "thresholds", "value": steps[0]},
                           {"id": "custom.cellOptions", "value": {"type": "color-text"}},
                           {"id": "color", "value": {"mode": "thresholds"}}]
        overrides.append({"matcher": {"id": "byName", "options": name}, "properties": properties})
    for label, url in links:
        overrides.append({"matcher": {"id": "byName", "options": label}, "properties": [
            {"id": "links", "value": [{"title": "Open", "url": url}]}]})
    made = panel("table", title, description, targets, "short", overrides=overrides,
                 options={"showHeader": True, "cellHeight": "sm"}, custom={"filterable": True})
    order = {name: i for i, name in enumerate(list(keys) + list(renames))}
    made["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": renames,
                                       "indexByName": order}}]
    return made


def dashboard_url(uid, **variables):
    """variables: of the dashboard, from the row's fields."""
    return "/d/%s?${datasource:queryparam}&%s&${__url_time_range}" % (uid, "&".join(
        "var-%s=${__data.fields.%s}" % pair for pair in variables.items()))


def query_variable(name, expression, label=None, all_value=None, multi=True):
    """all_value: what "All" stands for; without it, all values that there are."""
    variable = {"name": name, "type": "query", "label": label or name, "datasource": DATASOURCE,
                "query": {"query": expression, "refId": name}, "definition": expression,
                "refresh": 2, "sort": 1, "multi": multi, "includeAll": multi, "hide": 0,
                "current": {"text": "All", "value": "$__all"} if multi else {}}
    if all_value:
        variable["allValue"] = all_value
    return variable


class Dashboard:
    """Panels are added by the row; `row` starts a section with a heading."""

    def __init__(self, uid, title, description, *variables):
        self.document = {
            "uid": uid, "title": title, "description": description, "tags": ["nccl-pulse"],
            "schemaVersion": 39, "version": 1, "editable": True, "graphTooltip": 1, "refresh": "30s",
            "timezone": "browser", "time": {"from": "now-1h", "to": "now"},
            "links": [{"type": "dashboards", "title": "NCCL", "tags": ["nccl-pulse"],
                       "asDropdown": False, "includeVars": False, "keepTime": True, "icon": "dashboard"}],
            "annotations": {"list": [{
                "name": "Alerts", "datasource": DATASOURCE, "enable": True, "iconColor": "red",
                "expr": 'ALERTS{alertname=~"Nccl.*", alertstate="firing", severity="critical"}',
                "titleFormat": "{{alertname}}", "textFormat": "{{workload}} {{comm}}"}]},
            "templating": {"list": [{
                "name": "datasource", "type": "datasource", "label": "Data source",
                "query": "prometheus", "hide": 0, "refresh": 1, "current": {}}] + list(variables)},
            "panels": []}
        self.y = 0

    def _place(self, made, x, width, height):
        panels = self.document["panels"]
        panels.append(dict({"id": len(panels) + 1,
                            "gridPos": {"x": x, "y": self.y, "w": width, "h": height}}, **made))

    def row(self, title):
        self._place({"type": "row", "title": title, "collapsed": False, "panels": []}, 0, 24, 1)
        self.y += 1

    def add(self, *panels, height=9):
        """Side by side, equally wide."""
        width = 24 // len(panels)
        for i, made in enumerate(panels):
            self._place(made, i * width, width, height)
        self.y += height
