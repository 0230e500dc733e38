"""Panels and dashboards as Grafana's JSON model has them, and a layout that keeps them apart.

For Grafana 10 and newer. A panel is made without a place; Dashboard puts panels side by side into rows of
24 columns.
"""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

# The links to the runbook lead there. Packages have HOMEPAGE of deploy/package/project.py in its place.
RUNBOOK = "https://docs.example.com/nccl-pulse/runbook.md"

# 400 s are 00:06:40; "dtdurations" shows "6 minutes".
AGE = "dthms"

GREEN, YELLOW, RED = "green", "orange", "red"


def thresholds(*steps):
    """steps: (from this value on, color); the first value is None."""
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}


NONE = thresholds((None, "text"))


def bad_from(*bounds):
    """Green; from the last bound on red, from the one before it on orange."""
    colors = [YELLOW, RED][-len(bounds):]
    return thresholds((None, GREEN), *zip(bounds, colors))


FEWER = thresholds((None, "red"), (1, "green"))

# The text of a panel without data.
NO_STEPS = "No network steps were watched"


def known_from(steps):
    """The same, but gray, not the color of the lowest step, where there is no value."""
    lowest = dict(steps["steps"][0], value=0)
    return dict(steps, steps=NONE["steps"] + [lowest] + steps["steps"][1:])


def decimals(unit):
    """9.1 %, not 9.1322 %."""
    return {"decimals": 1} if unit == "percentunit" else {}


def target(expression, legend="", index=0, **more):
    return dict({"refId": chr(ord("A") + index), "datasource": DATASOURCE,
                 "expr": " ".join(expression.split()), "legendFormat": legend or "__auto",
                 "range": True}, **more)


def panel(kind, title, description, targets, unit, steps=NONE, options=None, custom=None,
          overrides=(), links=(), **defaults):
    config = dict({"unit": unit, "thresholds": steps, "color": {"mode": "palette-classic"}}, **decimals(unit), **defaults)
    if custom:
        config["custom"] = custom
    if links:
        config["links"] = list(links)
    return {"type": kind, "title": title, "description": description, "datasource": DATASOURCE,
            "targets": targets, "options": options or {},
            "fieldConfig": {"defaults": config, "overrides": list(overrides)}}


def stat(title, description, expression, unit="short", steps=NONE, none="0", **defaults):
    """One number. `none`: what stands there when there is no series; "?" has no color."""
    if none == "?" and steps is not NONE:
        steps = known_from(steps)
    return panel("stat", title, description, [target(expression, instant=True, range=False)], unit,
                 steps, {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                         "colorMode": "value", "graphMode": "none", "textMode": "value",
                         "justifyMode": "auto", "orientation": "auto", "wideLayout": True,
                         "showPercentChange": False, "percentChangeColorMode": "standard"},
                 color={"mode": "thresholds"}, noValue=none, **defaults)


def graph(title, description, *queries, unit="short", steps=None, stack=False, none=None, **defaults):
    """Lines over time. queries: (expression, legend). `none`: instead of "No data"."""
    if none:
        defaults["noValue"] = none
    # Areas only if the values add up: many lines would hide each other.
    custom = {"lineWidth": 1, "fillOpacity": 30 if stack else 0, "showPoints": "never",
              "spanNulls": False, "stacking": {"mode": "normal" if stack else "none"},
              "thresholdsStyle": {"mode": "dashed" if steps else "off"}}
    options = {"tooltip": {"mode": "multi", "sort": "desc"},
               "legend": {"showLegend": True, "displayMode": "table", "placement": "bottom",
                          "calcs": ["lastNotNull", "max"], "sortBy": "Max", "sortDesc": True}}
    targets = [target(expression, legend, i) for i, (expression, legend) in enumerate(queries)]
    defaults.setdefault("min", 0)
    return panel("timeseries", title, description, targets, unit, steps or NONE, options, custom,
                 **defaults)


def largest(expression, legend, count=20):
    """A query for `graph`, bounded whatever the number of ranks or endpoints."""
    return "topk(%d, %s)" % (count, expression), legend


def rate_of(part, histogram, selected):
    """The rate of a histogram's part (sum or count), in whatever form it is stored."""
    return "rate(%s_%s%s[$__rate_interval]) or histogram_%s(rate(%s%s[$__rate_interval]))" % (
        histogram, part, selected, part, histogram, selected)


def heatmap(title, description, histogram, selected, unit="s"):
    """Of a histogram: the native one, else the classic one's buckets."""
    native = "sum(rate(%s%s[$__rate_interval]))" % (histogram, selected)
    expression = "%s or (sum by (le) (rate(%s_bucket%s[$__rate_interval])) unless on () %s)" % (
        native, histogram, selected, native)
    return panel("heatmap", title, description,
                 [target(expression, "{{le}}", format="heatmap")], unit, options={
                     "calculate": False, "cellGap": 0, "yAxis": {"unit": unit, "axisPlacement": "left"},
                     "rowsFrame": {"layout": "auto"}, "filterValues": {"le": 1e-9},
                     "color": {"mode": "scheme", "scheme": "Spectral", "steps": 64, "reverse": False,
                               "exponent": 0.5, "fill": "dark-orange"},
                     "exemplars": {"color": "rgba(255,0,255,0.7)"}, "showValue": "never",
                     "tooltip": {"mode": "single", "yHistogram": True},
                     "legend": {"show": True}})


# In pixels. A laptop has 1400 for all columns; those without a width share the rest.
WIDTHS = {"alertname": 260, "severity": 100, "gpu": 60, "rank": 70, "comm": 165, "nranks": 90, "nnodes": 90,
          "index": 80, "job_id": 90, "workload": 120, "pid": 90, "instance": 180, "UUID": 320, "first_step": 420,
          "global_rank": 90, "verdict": 130, "version": 70, "nccl_api_version": 145, "timing": 70, "completions": 105}


def override(column, **properties):
    """properties: a dot in their names is written as two underscores."""
    return {"matcher": {"id": "byName", "options": column}, "properties": [
        {"id": name.replace("__", "."), "value": value} for name, value in properties.items()]}


def table(title, description, keys, columns, links=(), details=(), sort=(), overrides=(), none=None):
    """One row for each value of the labels `keys` and `details`, the values between them.

    columns: (name, expression, unit[, thresholds]). Rows are merged by labels: the expressions give no
    others than those. Without a name the column only brings rows and is not shown.
    sort: (column, whether descending).
    none: instead of "No data". Grafana also writes it into empty cells of values.
    """
    targets, renames, hidden = [], {}, {"Time": True}
    overrides = list(overrides)
    for i, (name, expression, unit, *steps) in enumerate(columns):
        targets.append(target(expression, "", i, instant=True, range=False, format="table"))
        # Grafana calls the value column "Value" if there is one query, otherwise "Value #A" and so
        # on.
        value = "Value #%s" % targets[-1]["refId"] if len(columns) > 1 else "Value"
        if name is None:
            hidden[value] = True
            continue
        renames[value] = name
        color = {"thresholds": steps[0], "custom__cellOptions": {"type": "color-text"},
                 "color": {"mode": "thresholds"}} if steps else {}
        overrides.append(override(name, unit=unit, **decimals(unit), **color))
    for label in (*keys, *details):
        properties = dict({"noValue": ""} if none else {}, **{"custom__width": WIDTHS[label]} if label in WIDTHS else {})
        overrides += [override(label, **properties)] if properties else []
    # A job without a name or ID needs a text to click on.
    overrides += [override(label, links=[{"title": "Open", "url": url}], mappings=[{
        "type": "special", "options": {"match": "empty", "result": {"text": "(none)", "index": 0}}}])
                  for label, url in links]
    # Labels are text: as numbers, process 1340 would be shown (and linked to) as 1.34 K.
    made = panel("table", title, description, targets, "string", overrides=overrides, **({"noValue": none} if none else {}),
                 options={"showHeader": True, "cellHeight": "sm", "frameIndex": 0,
                          "sortBy": [{"displayName": name, "desc": desc} for name, desc in sort]},
                 custom={"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False,
                         "filterable": True, "minWidth": 80})
    order = {name: i for i, name in enumerate((*keys, *renames, *details))}
    made["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": hidden, "renameByName": renames,
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
                "refresh": 2, "sort": 1, "multi": multi, "includeAll": multi, "hide": 0}
    if multi:
        variable["current"] = {"text": "All", "value": "$__all"}
    if all_value:
        variable["allValue"] = all_value
    return variable


class Dashboard:
    """Panels are added by the row; `row` starts a section with a heading."""

    def __init__(self, uid, title, description, *variables):
        of = ', workload=~"$workload"' if any(each["name"] == "workload" for each in variables) else ""
        alerts = 'ALERTS{alertname=~"Nccl.*", alertstate="firing", severity=~"warning|critical"%s}' % of
        self.document = {
            "uid": uid, "title": title, "description": description, "tags": ["nccl-pulse"],
            "schemaVersion": 39, "version": 1, "editable": True, "graphTooltip": 1, "refresh": "30s",
            "timezone": "browser", "time": {"from": "now-1h", "to": "now"},
            "links": [{"type": "dashboards", "title": "NCCL", "tags": ["nccl-pulse"],
                       "asDropdown": False, "includeVars": True, "keepTime": True, "icon": "dashboard",
                       "targetBlank": False, "tooltip": "", "url": ""},
                      {"type": "link", "title": "Runbook", "url": RUNBOOK, "icon": "doc", "targetBlank": True,
                       "asDropdown": False, "includeVars": False, "keepTime": False, "tags": [], "tooltip": ""}],
            # Grafana 10 reads the query from expr, newer ones from target.
            "annotations": {"list": [{
                "name": "Alerts", "datasource": DATASOURCE, "enable": True, "iconColor": "red",
                "expr": alerts, "target": {"refId": "Anno", "expr": alerts},
                "titleFormat": "{{alertname}}", "textFormat": "{{workload}} {{comm}}"}]},
            "templating": {"list": [{
                "name": "datasource", "type": "datasource", "label": "Data source",
                "query": "prometheus", "hide": 0, "refresh": 1}] + list(variables)},
            "panels": []}
        self.y = self.ids = 0
        self.panels = self.document["panels"]  # to which the next one is added

    def _place(self, made, x, width, height):
        self.ids += 1
        self.panels.append(dict({"id": self.ids,
                                 "gridPos": {"x": x, "y": self.y, "w": width, "h": height}}, **made))

    def row(self, title, collapsed=False):
        """Grafana keeps the panels of a collapsed row within the row."""
        self.panels = self.document["panels"]
        self._place({"type": "row", "title": title, "collapsed": collapsed, "panels": []}, 0, 24, 1)
        if collapsed:
            self.panels = self.panels[-1]["panels"]
        self.y += 1

    def add(self, *panels, height=9):
        """Side by side, equally wide."""
        width = 24 // len(panels)
        for i, made in enumerate(panels):
            self._place(made, i * width, width, height)
        self.y += height
