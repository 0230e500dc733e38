"""How many series Prometheus stores of a page, counted from the page."""

import re

OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
PROTOBUF = ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
            "encoding=delimited")


def series(page, native):
    """page: OpenMetrics text. native: a histogram is stored as one series, and not line by line."""
    histograms = set(re.findall(r"^# TYPE (\S+) histogram$", page, re.MULTILINE))
    count = 0
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        name = re.match(r"[a-z_]+", line).group()
        family, _, suffix = name.rpartition("_")
        of_histogram = family in histograms and suffix in ("bucket", "sum", "count")
        count += not (native and of_histogram and suffix != "count")
    return count
