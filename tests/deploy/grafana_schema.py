"""The JSON model of Grafana's dashboards, and a check against it.

From the types of @grafana/schema 11.6.9 (dashboards, panels' options and fields) and @grafana/data
11.6.9 (units, reducers, colors, variables, the ids of matchers and transformations), and of queries in
grafana-prometheus' dataquery.ts: the panels that we use, with all of their fields that make sense
there. What is not here is refused: add it, after a look into the types.
"""

import re

from tests.deploy.schema import (check, either, fail, mapping, matching, number, one_of, text, yes_no)

# What valueFormats of @grafana/data has.
UNITS = frozenset("""
none string short sishort percent percentunit humidity dB candela hex0x hex sci locale pixel
accMS2 accFS2 accG degree radian grad arcmin arcsec areaM2 areaF2 areaMI2 acres hectares flops
mflops gflops tflops pflops eflops zflops yflops ppm conppb conngm3 conngNm3 conμgm3 conμgNm3
conmgm3 conmgNm3 congm3 congNm3 conmgdL conmmolL currencyUSD currencyGBP currencyEUR currencyJPY
currencyRUB currencyUAH currencyBRL currencyDKK currencyISK currencyNOK currencySEK currencyCZK
currencyCHF currencyPLN currencyBTC currencymBTC currencyμBTC currencyZAR currencyINR
currencyKRW currencyIDR currencyPHP currencyVND currencyTRY currencyMYR currencyXPF currencyBGN
currencyPYG currencyUYU currencyILS bytes decbytes bits decbits kbytes deckbytes mbytes
decmbytes gbytes decgbytes tbytes dectbytes pbytes decpbytes pps binBps Bps binbps bps KiBs
Kibits KBs Kbits MiBs Mibits MBs Mbits GiBs Gibits GBs Gbits TiBs Tibits TBs Tbits PiBs Pibits
PBs Pbits dateTimeAsIso dateTimeAsIsoNoDateIfToday dateTimeAsUS dateTimeAsUSNoDateIfToday
dateTimeAsLocal dateTimeAsLocalNoDateIfToday dateTimeAsSystem dateTimeFromNow watt kwatt megwatt
gwatt mwatt Wm2 voltamp kvoltamp voltampreact kvoltampreact watth watthperkg kwatth kwattm
mwatth amph kamph mamph joule ev amp kamp mamp volt kvolt mvolt dBm mohm ohm kohm Mohm farad
µfarad nfarad pfarad ffarad henry mhenry µhenry lumens flowgpm flowcms flowcfs flowcfm litreh
flowlpm flowmlpm lux forceNm forcekNm forceN forcekN Hs KHs MHs GHs THs PHs EHs massmg massg
masslb masskg masst lengthmm lengthin lengthft lengthm lengthkm lengthmi pressurembar
pressurebar pressurekbar pressurepa pressurehpa pressurekpa pressurehg pressurepsi radbq radci
radgy radrad radsv radmsv radusv radrem radexpckg radr radsvh radmsvh radusvh rotrpm rothz
rotkhz rotmhz rotghz rotrads rotdegs celsius fahrenheit kelvin hertz ns µs ms s m h d
dtdurationms dtdurations dthms dtdhms timeticks clockms clocks cps ops reqps rps wps iops eps
mps recps rowsps cpm opm reqpm rpm wpm epm mpm recpm rowspm velocityms velocitykmh velocitymph
velocityknot mlitre litre m3 Nm3 dm3 gallons bool bool_yes_no bool_on_off
""".split())


def string(value):
    if not isinstance(value, str):
        fail("%r is no string" % (value,))


def real(value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        fail("%r is no number" % (value,))


def null(value):
    if value is not None:
        fail("%r is not null" % (value,))


def unit(value):
    """One that Grafana knows, or a text of our own about the number."""
    string(value)
    if value not in UNITS and not re.fullmatch("(prefix|suffix|time|si|count|currency|bool):.+", value):
        fail("%r is no unit of Grafana" % value)


HUES = "(super-light-|light-|semi-dark-|dark-)?(red|orange|yellow|green|blue|purple)"
COLOR = matching(HUES + r"|text|transparent|panel-bg|#[0-9a-fA-F]{3,8}|rgba?\([0-9., %]+\)", "color")
REDUCER = matching("sum|max|min|logmin|mean|variance|stdDev|last|median|first|count|range|diff|diffperc|"
                   "delta|step|firstNotNull|lastNotNull|changeCount|distinctCount|allIsZero|allIsNull|"
                   "allValues|uniqueValues|p[1-9][0-9]?", "reducer")
DURATION = matching("[0-9]+(ms|[smhdwMy])", "duration")
TIME = matching(r"now(-[0-9]+[smhdwMy])?(/[smhdwMy])?|[0-9]{4}-[0-9]{2}-[0-9]{2}T.*Z", "time")

SOURCE = {"type": string, "uid": string}

# Fields of all panels.
COLOR_MODE = one_of("thresholds", "palette-classic", "palette-classic-by-name", "fixed", "shades",
                    "continuous-GrYlRd", "continuous-RdYlGr", "continuous-BlYlRd", "continuous-YlRd",
                    "continuous-BlPu", "continuous-YlBl", "continuous-blues", "continuous-reds",
                    "continuous-greens", "continuous-purples")
MAPPED = {"text": string, "color": COLOR, "icon": string, "index": number(0)}
LINK = {"title!": string, "url!": text, "targetBlank": yes_no, "oneClick": yes_no}


def value_mapping(value):
    options = {"value": mapping(text, lambda one: check(one, MAPPED, "mapped")),
               "range": {"from!": either(real, null), "to!": either(real, null), "result!": MAPPED},
               "regex": {"pattern!": text, "result!": MAPPED},
               "special": {"match!": one_of("true", "false", "null", "nan", "null+nan", "empty"),
                           "result!": MAPPED}}
    check(value.get("type"), one_of(*options), "type")
    check(value, {"type!": text, "options!": options[value["type"]]}, "mapping")


def thresholds(value):
    check(value, {"mode!": one_of("absolute", "percentage"),
                  "steps!": [{"value!": either(real, null), "color!": COLOR}]}, "thresholds")
    values = [step["value"] for step in value["steps"]]
    if not values or values[0] is not None or None in values[1:] or values[1:] != sorted(values[1:]):
        fail("steps %s: the first starts at null, and they ascend" % values)


FIELD = {
    "unit": unit, "min": real, "max": real, "decimals": number(0, 20), "displayName": string,
    "description": string, "noValue": string, "filterable": yes_no, "thresholds": thresholds,
    "color": {"mode!": COLOR_MODE, "fixedColor": COLOR, "seriesBy": one_of("min", "max", "last")},
    "mappings": [value_mapping], "links": [LINK],
}

# Parts of panels.
VISIBILITY = one_of("auto", "never", "always")
HIDE = {"legend!": yes_no, "tooltip!": yes_no, "viz!": yes_no}
SCALE = {"type!": one_of("linear", "log", "ordinal", "symlog"), "log": real, "linearThreshold": real}
AXIS = {
    "axisPlacement": one_of("auto", "top", "right", "bottom", "left", "hidden"), "axisLabel": string,
    "axisColorMode": one_of("text", "series"), "axisWidth": real, "axisSoftMin": real,
    "axisSoftMax": real, "axisGridShow": yes_no, "axisCenteredZero": yes_no, "axisBorderShow": yes_no,
    "scaleDistribution": SCALE,
}
LEGEND = {"showLegend!": yes_no, "displayMode!": one_of("list", "table", "hidden"),
          "placement!": one_of("bottom", "right"), "calcs!": [REDUCER], "sortBy": string,
          "sortDesc": yes_no, "width": real}
TOOLTIP = {"mode!": one_of("single", "multi", "none"), "sort!": one_of("asc", "desc", "none"),
           "maxWidth": real, "maxHeight": real, "hideZeros": yes_no}
CELL = {
    "type!": one_of("auto", "color-text", "color-background", "gauge", "sparkline", "json-view", "image",
                    "data-links", "actions"),
    "mode": one_of("basic", "gradient", "lcd"), "wrapText": yes_no, "applyToRow": yes_no,
    "valueDisplayMode": one_of("color", "text", "hidden"),
}

# palettes.ts of the heatmap panel.
SCHEME = matching("BrBG|PiYG|PRGn|PuOr|RdBu|RdGy|RdYlBu|RdYlGn|Spectral|Blues|Greens|Greys|Oranges|Purples|"
                  "Reds|Turbo|Cividis|Viridis|Magma|Inferno|Plasma|Warm|Cool|Cubehelix|BuGn|BuPu|GnBu|OrRd|"
                  "PuBuGn|PuBu|PuRd|RdPu|YlGnBu|YlGn|YlOrBr|YlOrRd|Rainbow|Sinebow", "color scheme")

# type: its options, and what it adds to fields.
PANELS = {
    "stat": ({
        "reduceOptions!": {"calcs!": [REDUCER], "fields": string, "values": yes_no, "limit": number(1)},
        "orientation!": one_of("auto", "vertical", "horizontal"),
        "colorMode!": one_of("value", "background", "background_solid", "none"),
        "graphMode!": one_of("none", "line", "area"), "justifyMode!": one_of("auto", "center"),
        "textMode!": one_of("auto", "value", "value_and_name", "name", "none"), "wideLayout!": yes_no,
        "showPercentChange!": yes_no,
        "percentChangeColorMode!": one_of("standard", "inverted", "same_as_value"),
        "text": {"titleSize": real, "valueSize": real, "percentSize": real},
    }, {}),
    "timeseries": ({
        "legend!": LEGEND, "tooltip!": TOOLTIP, "timezone": [text],
        "orientation": one_of("auto", "vertical", "horizontal"),
    }, {
        **AXIS, "drawStyle": one_of("line", "bars", "points"), "lineWidth": real, "lineColor": COLOR,
        "lineInterpolation": one_of("linear", "smooth", "stepBefore", "stepAfter"),
        "lineStyle": {"fill": one_of("solid", "dash", "dot", "square"), "dash": [real]},
        "fillOpacity": number(0, 100), "fillColor": COLOR, "fillBelowTo": string,
        "gradientMode": one_of("none", "opacity", "hue", "scheme"), "showPoints": VISIBILITY,
        "pointSize": real, "pointColor": COLOR, "pointSymbol": string,
        "spanNulls": either(yes_no, real), "insertNulls": either(yes_no, real),
        "stacking": {"mode": one_of("none", "normal", "percent"), "group": string},
        "thresholdsStyle": {"mode!": one_of("off", "line", "dashed", "area", "line+area", "dashed+area",
                                            "series")},
        "transform": one_of("constant", "negative-Y"), "hideFrom": HIDE, "barMaxWidth": real,
        "barAlignment": one_of(-1, 0, 1), "barWidthFactor": real,
    }),
    "heatmap": ({
        "calculate": yes_no, "cellGap": number(0), "cellRadius": real, "showValue!": VISIBILITY,
        "cellValues": {"unit": unit, "decimals": number(0, 20)},
        "color!": {"mode": one_of("scheme", "opacity"), "scheme!": SCHEME,
                   "fill!": COLOR, "scale": one_of("linear", "exponential"), "exponent!": real,
                   "steps!": number(2, 128), "reverse!": yes_no, "min": real, "max": real},
        "exemplars!": {"color!": COLOR}, "filterValues": {"le": real, "ge": real},
        "legend!": {"show!": yes_no}, "selectionMode": one_of("x", "y", "xy"),
        "rowsFrame": {"layout": one_of("auto", "le", "ge", "unknown"), "value": string},
        "tooltip!": {"mode!": one_of("single", "multi", "none"), "yHistogram": yes_no,
                     "showColorScale": yes_no, "maxWidth": real, "maxHeight": real},
        "yAxis!": {**AXIS, "unit": unit, "decimals": number(0, 20), "min": real, "max": real,
                   "reverse": yes_no},
    }, {"scaleDistribution": SCALE, "hideFrom": HIDE}),
    "table": ({
        "showHeader!": yes_no, "frameIndex!": number(0), "cellHeight": one_of("sm", "md", "lg", "auto"),
        "showTypeIcons": yes_no, "sortBy": [{"displayName!": text, "desc": yes_no}],
        "footer": {"show!": yes_no, "reducer!": [REDUCER], "fields": [text], "countRows": yes_no,
                   "enablePagination": yes_no},
    }, {
        "align": one_of("auto", "left", "center", "right"), "cellOptions": CELL, "inspect": yes_no,
        "filterable": yes_no, "hidden": yes_no, "hideHeader": yes_no, "width": number(1),
        "minWidth": number(1),
    }),
}

TRANSFORMATIONS = {
    "merge": {},
    "organize": {
        "excludeByName": mapping(text, yes_no), "includeByName": mapping(text, yes_no),
        "indexByName": mapping(text, number(0)), "renameByName": mapping(text, string)},
}
QUERY = {
    "refId!": matching("[A-Za-z0-9_]+", "refId"), "expr!": text, "datasource": SOURCE, "hide": yes_no,
    "legendFormat": string, "format": one_of("time_series", "table", "heatmap"), "instant": yes_no,
    "range": yes_no, "exemplar": yes_no, "interval": string, "editorMode": one_of("code", "builder"),
}
GRID = {"x!": number(0, 23), "y!": number(0), "w!": number(1, 24), "h!": number(1), "static": yes_no}
PLACE = {"id!": number(1), "type!": text, "title": string, "gridPos!": GRID}
ROW = {**PLACE, "collapsed!": yes_no, "panels!": [{}], "repeat": text}


def overrides(custom):
    """The schema of a field config's overrides: each property has the schema of the field that it sets."""
    fields = {**FIELD, **{"custom." + name: schema for name, schema in custom.items()}}

    def one(value):
        check(value.get("id"), one_of(*fields), "id")
        check(value, {"id!": text, "value": fields[value["id"]]}, value["id"])

    return [{"matcher!": {"id!": one_of("byName", "byNames", "byRegexp", "byType", "byFrameRefID", "byValue"),
                          "options": text}, "properties!": [one]}]


def panel(value):
    check(value.get("type"), one_of("row", *PANELS), "type")
    where = "panel %r" % value.get("title")
    if value["type"] == "row":
        return check(value, ROW, where)
    options, custom = PANELS[value["type"]]
    check(value, {
        **PLACE, "description": string, "datasource": SOURCE, "targets!": [QUERY], "options!": options,
        "fieldConfig!": {"defaults!": {**FIELD, "custom": custom}, "overrides!": overrides(custom)},
        "transformations": [transformation], "transparent": yes_no, "repeat": text, "interval": string,
        "repeatDirection": one_of("h", "v"), "maxDataPoints": number(1), "timeFrom": string,
        "timeShift": string, "pluginVersion": text,
    }, where)
    return None


def transformation(value):
    check(value.get("id"), one_of(*TRANSFORMATIONS), "id")
    check(value, {"id!": text, "options!": TRANSFORMATIONS[value["id"]], "disabled": yes_no}, value["id"])


VARIABLE = {
    "name!": matching(r"\w+", "variable"), "type!": one_of("query", "datasource"), "label": string,
    "description": string, "hide": one_of(0, 1, 2), "skipUrlSync": yes_no, "multi": yes_no,
    "includeAll": yes_no, "allValue": string, "allowCustomValue": yes_no, "datasource": SOURCE,
    "query": either(text, lambda value: check(value, {"query!": text, "refId!": text}, "query")),
    "definition": text, "regex": string, "refresh": one_of(0, 1, 2), "sort": one_of(*range(9)),
    "current": {"text!": string, "value!": string, "selected": yes_no},
}
ANNOTATION = {
    "name!": text, "enable!": yes_no, "iconColor!": COLOR, "datasource!": SOURCE, "target": QUERY,
    "hide": yes_no, "builtIn": one_of(0, 1), "type": text,
    # Of the Prometheus data source.
    "expr": text, "step": string, "titleFormat": string, "textFormat": string, "tagKeys": string,
    "useValueForTime": yes_no,
}
DASHBOARD_LINK = {
    "type!": one_of("dashboards", "link"), "title!": string, "tags!": [text], "asDropdown!": yes_no,
    "includeVars!": yes_no, "keepTime!": yes_no, "targetBlank!": yes_no, "icon!": text, "tooltip!": string,
    "url": string,
}
DASHBOARD = {
    "uid!": matching("[-a-zA-Z0-9_]{1,40}", "uid"), "title!": text, "description": string, "tags": [text],
    "schemaVersion!": number(36, 41), "version": number(0), "editable": yes_no,
    "graphTooltip": one_of(0, 1, 2), "refresh": DURATION, "timezone": one_of("browser", "utc", ""),
    "time": {"from!": TIME, "to!": TIME}, "links": [DASHBOARD_LINK],
    "annotations": {"list": [ANNOTATION]}, "templating": {"list": [VARIABLE]}, "panels!": [panel],
}


def check_dashboard(value, where):
    check(value, DASHBOARD, where)
