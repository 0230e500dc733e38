"""Scrapes that could have been, for `promtool test rules`: jobs whose ranks do what a test says.

Times are in scrapes from the start; values are lists, one for each scrape, None where there was none. A value
that is a text is a native histogram in promtool's notation.
"""

import json
import math
import os
import re
import subprocess
import tempfile

RULES = os.path.join(os.getcwd(), "deploy/prometheus")

# What the exporters' clock says at the first scrape. Prometheus' own begins at 0.
CLOCK = 1.7e9

# How durations are stored: classic histograms; native ones; both; classic ones that the scrape converts to
# native ones with the same bounds.
FORMS = ("classic", "native", "both", "converted")

BUCKETS = (0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)


def constant(value, scrapes):
    return [value] * scrapes


def growing(per_second, scrapes, step):
    """A counter; `per_second`: a number, or one for each scrape."""
    rates = per_second if isinstance(per_second, list) else [per_second] * scrapes
    values, total = [], 0
    for rate in rates:
        values.append(total)
        total += rate * step
    return values


def notation(counts, total, cell_of, more):
    """A native histogram as promtool reads it. counts: {seconds: observations}; cell_of: the index of the bucket of
    so many seconds."""
    cells = {}
    for seconds, count in counts.items():
        cells[cell_of(seconds)] = cells.get(cell_of(seconds), 0) + count
    text = "{{%s sum:%r count:%r" % (more, total, sum(counts.values()))
    if cells:
        text += " offset:%d buckets:[%s]" % (
            min(cells), " ".join(repr(cells.get(i, 0)) for i in range(min(cells), max(cells) + 1)))
    return text + "}}"


def native_histogram(counts, total):
    return notation(counts, total, lambda seconds: math.ceil(8 * math.log2(seconds)), "schema:3")


def converted_histogram(counts, total):
    return notation(counts, total, lambda seconds: sum(seconds > bound for bound in BUCKETS),
                    "schema:-53 custom_values:[%s]" % " ".join(map(repr, BUCKETS)))


class Scrapes:
    """The series, every `step` seconds, `scrapes` times. form: of FORMS."""

    def __init__(self, minutes, step, form="classic"):
        self.step, self.form = step, form
        self.scrapes = minutes * 60 // step + 1
        self.series = {}

    def at(self, minutes):
        return int(minutes * 60 // self.step)

    def set(self, name, values, **labels):
        if not isinstance(values, list):
            values = constant(values, self.scrapes)
        self.series[name, tuple(sorted(labels.items()))] = values

    def count(self, name, per_second, **labels):
        self.set(name, growing(per_second, self.scrapes, self.step), **labels)

    def change(self, minutes, before, after):
        """One value, from some minute on another."""
        return [before if i < self.at(minutes) else after for i in range(self.scrapes)]

    def end(self, minutes, **labels):
        """The series with these labels are not scraped from then on."""
        for (name, pairs), values in self.series.items():
            if labels.items() <= dict(pairs).items() and name != "up":
                values[self.at(minutes):] = [None] * (self.scrapes - self.at(minutes))

    def clock(self, stopped_at=None):
        last = self.at(stopped_at) if stopped_at is not None else self.scrapes
        return [CLOCK + min(i, last) * self.step for i in range(self.scrapes)]

    def input(self):
        """As promtool takes it."""
        def text(values):
            words, before = [], None
            for value in values:
                words.append(value if isinstance(value, str) else
                             repr(float(value)) if value is not None else
                             "_" if before is None else "stale")
                before = value
            return " ".join(words)
        return [{"series": name + labels_text(labels), "values": text(values)}
                for (name, labels), values in self.series.items()]


def labels_text(pairs):
    return "{%s}" % ",".join("%s=%s" % (name, json.dumps(value)) for name, value in pairs if value)


class Job:
    """A communicator of `ranks` ranks, `per_node` of them on each node, each in a process of its own.

    places: instead, of each rank: (number of the node, number of the GPU, rank in the job).
    target_labels: what the scrape adds to the series of a host, {label: format of its value}.
    """

    def __init__(self, scrapes, comm="c0ffee", ranks=4, per_node=2, job_id="7", index=0, missing=(),
                 node="node", start_rank=0, places=None, target_labels=None, **static):
        places = places or [(rank // per_node, rank % per_node, start_rank + rank) for rank in range(ranks)]
        nodes = len({place[0] for place in places})
        self.scrapes, self.comm, self.static = scrapes, comm, static
        self.labels = {}
        for rank, (number, gpu, global_rank) in enumerate(places):
            if rank in missing:
                continue
            host = "%s%d" % (node, number)
            target = {"job": "nccl-pulse", "instance": host + ":9410", **static,
                      **{label: text % number if "%" in text else text
                         for label, text in (target_labels or {}).items()}}
            self.labels[rank] = {**target, "comm": comm, "rank": str(rank)}
            process = {"pid": str(100 + global_rank), "global_rank": str(global_rank)}
            scrapes.set("nccl_communicator_info", 1, **self.labels[rank], **process,
                        comm_name="dp", nranks=str(len(places)), nnodes=str(nodes),
                        index=str(index), Hostname=host, gpu=str(gpu), job_id=job_id,
                        UUID="GPU-%s-%d" % (host, gpu), pci_bus_id="00000000:%02X:00.0" % global_rank)
            of_process = {**target, **process}
            self.labels[rank, "process"] = of_process
            scrapes.set("nccl_pulse_process_up", 1, **of_process)
            scrapes.set("nccl_pulse_last_poll_timestamp_seconds", scrapes.clock(), **of_process)
            scrapes.set("up", 1, job="nccl-pulse", instance=host + ":9410")
            self.launches(rank)

    def ranks(self):
        return [rank for rank in self.labels if isinstance(rank, int)]

    def set(self, rank, name, values, **labels):
        self.scrapes.set(name, values, **self.labels[rank], **labels)

    def count(self, rank, name, per_second, **labels):
        self.scrapes.count(name, per_second, **self.labels[rank], **labels)

    def process(self, rank, name, values, **labels):
        self.scrapes.set(name, values, **self.labels[rank, "process"], **labels)

    def launches(self, rank, until=None):
        """100 launches a second, nothing in flight for long; from minute `until` on the last one is."""
        scrapes = self.scrapes
        last = scrapes.scrapes if until is None else scrapes.at(until)
        rates = [100 if i < last else 0 for i in range(scrapes.scrapes)]
        self.count(rank, "nccl_launches_total", rates)
        self.count(rank, "nccl_launches_completed_total", rates)
        times = scrapes.clock()
        self.set(rank, "nccl_oldest_inflight_launch_timestamp_seconds",
                 [times[min(i, last)] - 0.01 for i in range(scrapes.scrapes)])
        self.set(rank, "nccl_last_completion_timestamp_seconds",
                 [times[min(i, last)] - 0.02 for i in range(scrapes.scrapes)])

    def idle(self, rank, since=0):
        """Nothing launched, nothing in flight."""
        self.launches(rank, until=since)
        name = "nccl_oldest_inflight_launch_timestamp_seconds"
        values = self.scrapes.series[name, tuple(sorted(self.labels[rank].items()))]
        values[self.scrapes.at(since):] = [0] * (self.scrapes.scrapes - self.scrapes.at(since))

    def collective(self, rank, per_second, seconds, bytes=2**26, op="AllReduce", size="le_64MiB",
                   timing="stream", buckets=False):
        """Calls of one kind, one in ten timed. `seconds`, `bytes`: of each, a number or a list."""
        scrapes = self.scrapes
        kind = {"op": op, "size": size}
        each = seconds if isinstance(seconds, list) else [seconds] * scrapes.scrapes
        sizes = bytes if isinstance(bytes, list) else [bytes] * scrapes.scrapes
        timed = per_second / 10
        self.count(rank, "nccl_operations_total", per_second, **kind, datatype="ncclFloat32", captured="false")
        self.count(rank, "nccl_algorithm_operations_total", per_second, op=op, algo="RING", proto="SIMPLE")
        kind["timing"] = timing
        self.count(rank, "nccl_timed_bus_bytes_total", [timed * b * 1.5 for b in sizes], **kind)
        self.histogram(rank, timed, each, buckets, kind)

    def histogram(self, rank, per_second, each, buckets, kind):
        """Durations `each`, in the form of the scrapes. buckets: of classic ones, their buckets as well."""
        scrapes, name = self.scrapes, "nccl_operation_duration_seconds"
        if scrapes.form in ("classic", "both"):
            self.count(rank, name + "_count", per_second, **kind)
            self.count(rank, name + "_sum", [per_second * s for s in each], **kind)
            for bound in BUCKETS if buckets else ():
                self.count(rank, name + "_bucket", [per_second if s <= bound else 0 for s in each],
                           **kind, le=repr(bound))
            if buckets:
                self.count(rank, name + "_bucket", per_second, **kind, le="+Inf")
        if scrapes.form == "classic":
            return
        text = converted_histogram if scrapes.form == "converted" else native_histogram
        values, counts, total = [], {}, 0
        for seconds in each:
            values.append(text(counts, total))
            counts[seconds] = counts.get(seconds, 0) + per_second * scrapes.step
            total += seconds * per_second * scrapes.step
        self.set(rank, name, values, **kind)


def groups(paths):
    """Of these rule files, in their order."""
    found = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            found += re.findall(r"^  - name: (\S+)$", file.read(), flags=re.MULTILINE)
    return found


def run(tests, files, interval_s, promtool="promtool"):
    """What promtool says of these tests over these rule files; "" when they pass."""
    paths = [os.path.join(RULES, name + ".yaml") for name in files]
    document = {"rule_files": paths, "evaluation_interval": "%ds" % interval_s,
                "group_eval_order": groups(paths), "tests": tests}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=os.environ.get("TEST_TMPDIR")) as file:
        json.dump(document, file)  # JSON is YAML
        file.flush()
        # Short runs, little memory: collecting garbage would be a quarter of the time.
        result = subprocess.run([promtool, "test", "rules", file.name], text=True,
                                env=dict(os.environ, GOGC="800"), stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)
    return "" if result.returncode == 0 else result.stdout


def simulation(scrapes, values, alerts):
    """A test of promtool's over these scrapes. values, alerts: of the functions below."""
    return {"interval": "%ds" % scrapes.step, "input_series": scrapes.input(),
            "promql_expr_test": values, "alert_rule_test": alerts}


def at(minutes):
    return "%ds" % round(minutes * 60)


def samples(expression, minutes, expected):
    """The expression's samples at that time: {labels as promtool writes them: value}."""
    return {"expr": expression, "eval_time": at(minutes),
            "exp_samples": [{"labels": labels, "value": value} for labels, value in expected.items()]}


def firing(alert, minutes, by, expected):
    """At that time the alert (a regular expression) fires for these values of the labels `by`."""
    expression = 'group by (%s) (ALERTS{alertname=~"%s", alertstate="firing"})' % (",".join(by), alert)
    return samples(expression, minutes, {labels_text(zip(by, values)): 1 for values in expected})


def annotated(alert, minutes, labels, annotations):
    """The alert fires once, with these labels and annotations and no others."""
    return {"alertname": alert, "eval_time": at(minutes),
            "exp_alerts": [{"exp_labels": labels, "exp_annotations": annotations}]}
