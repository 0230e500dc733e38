"""One run: a made-up job of so many ranks, scraped by a real Prometheus for some time."""

import dataclasses
import json
import math
import os
import statistics
import sys
import tempfile
import time

from bench.fleet import configuration, pages, rule_cost
from bench.fleet.processes import (PATIENCE_S, Endpoints, Prometheus, Store, cpu_s, fine_cpu_s,
                                   resident_bytes)

GPUS_PER_NODE = 8
FORMATS = ("classic", "native")


@dataclasses.dataclass
class Measurement:
    """Times in seconds, memory in bytes; rates are per second of the measured time."""
    format: str
    ranks: int
    nodes: int
    interval_s: float
    measured_s: float
    # What there is.
    scraped_series: int = 0        # stored of all pages
    served_series: int = 0         # counted on the pages
    recorded_series: int = 0
    recorded: dict = dataclasses.field(default_factory=dict)  # level: how many of those
    head_series: int = 0
    remote_series: int = 0
    # What comes and goes.
    samples_per_s: float = 0
    remote_samples_per_s: float = 0
    remote_bytes_per_s: float = 0
    page_bytes: float = 0          # of a node, mean
    page_gzip_bytes: float = 0
    scrape_mean_s: float = 0
    scrape_slowest_s: float = 0
    failed_scrapes: float = 0      # share
    # What it costs.
    memory_mean: float = 0
    memory_peak: float = 0
    cores: float = 0               # processor seconds of Prometheus per second
    page_cpu_s: float = 0          # of an endpoint, for one scrape
    rule_groups: dict = dataclasses.field(default_factory=dict)  # name: (s, interval s)
    missed_evaluations: float = 0
    wal_bytes_per_sample: float = 0
    chunk_bytes_per_sample: float = 0
    index_bytes_per_series: float = 0
    # Processor time of a sample that is scraped, stored and remotely written, without any rules. With that and the
    # rules' costs there are figures of a machine that has not enough processors at the moment.
    sample_cpu_s: float = 0
    # Of each rule: rule_cost.RuleCost.
    rule_costs: list = dataclasses.field(default_factory=list)
    # What should not be.
    problems: list = dataclasses.field(default_factory=list)

    def busiest_group(self):
        """(name, share of its interval that its evaluation takes)"""
        return max(((name, evaluation_s / interval_s)
                    for name, (evaluation_s, interval_s) in self.rule_groups.items()),
                   key=lambda group: group[1])

    def scraping_cores(self):
        """Processors for scraping and storing, if no scrape is late."""
        return self.sample_cpu_s * self.scraped_series / self.interval_s

    def recording_cores(self):
        """Processors for storing what rules record, about."""
        return self.sample_cpu_s * sum(cost.series / cost.interval_s for cost in self.rule_costs if not cost.alert)

    def needed_cores(self):
        """Processors, if no scrape and no evaluation is late."""
        return self.scraping_cores() + self.recording_cores() + rule_cost.cores(self.rule_costs)

    def rules_share(self):
        """Seconds of rule evaluation per second."""
        return sum(evaluation_s / interval_s for evaluation_s, interval_s in self.rule_groups.values())


def _folder_bytes(folder):
    return sum(os.path.getsize(os.path.join(root, name))
               for root, _, names in os.walk(folder) for name in names)


def _total(metrics, name):
    return sum(value for (metric, _), value in metrics.items() if metric == name)


class _Window:
    """What is read at both ends of the measured time."""

    def __init__(self, prometheus, endpoints):
        self.time = time.monotonic()
        self.cpu = cpu_s(prometheus.pid)
        self.endpoints_cpu = endpoints.cpu_s()
        metrics = prometheus.own_metrics()
        self.samples = _total(metrics, "prometheus_tsdb_head_samples_appended_total")
        self.remote_samples = _total(metrics, "prometheus_remote_storage_samples_total")
        self.remote_bytes = _total(metrics, "prometheus_remote_storage_bytes_total")
        self.missed = _total(metrics, "prometheus_rule_group_iterations_missed_total")
        self.scrapes = _total(metrics, "prometheus_target_interval_length_seconds_count")
        self.wal_bytes = _folder_bytes(os.path.join(prometheus.data, "wal"))


def _is_warm(prometheus, nodes):
    """Whether every endpoint was scraped twice and every group of rules evaluated."""
    scrapes = prometheus.query('count_over_time(up{job="%s"}[1h]) >= 2' % configuration.JOB)
    return len(scrapes) == nodes and all(
        not group["lastEvaluation"].startswith("0001") for group in prometheus.rule_groups())


def _watch(prometheus, seconds):
    """Waits; returns the resident memory, sampled, and {rule group: (s, interval s)}.

    Of a group's evaluations in the second half, when ranges are full, that which took least: others use
    the processors, too.
    """
    memory, groups = [], {}
    start = asked = time.monotonic()
    while time.monotonic() < start + seconds:
        memory.append(resident_bytes(prometheus.pid))
        # Often enough to see every evaluation.
        if time.monotonic() > max(asked + min(5, seconds / 20), start + seconds / 2):
            asked = time.monotonic()
            for group in prometheus.rule_groups():
                evaluation = group["evaluationTime"], group["interval"]
                groups[group["name"]] = min(evaluation, groups.get(group["name"], evaluation))
        time.sleep(min(1, seconds / 50))
    return memory, groups


def _read_pages(endpoints, run):
    native = run.format == "native"
    accept = pages.PROTOBUF if native else pages.OPEN_METRICS
    sizes, packed = [], []
    run.served_series = 0
    for host in endpoints.addresses:
        sizes.append(len(endpoints.page(host, accept, "identity")))
        packed.append(len(endpoints.page(host, accept, "gzip")))
        text = endpoints.page(host, pages.OPEN_METRICS, "identity").decode()
        run.served_series += pages.series(text, native)
    run.page_bytes = statistics.mean(sizes)
    run.page_gzip_bytes = statistics.mean(packed)


def _count_series(prometheus, run):
    run.scraped_series = run.recorded_series = run.remote_series = 0
    run.recorded = {}
    for name in prometheus.names():
        # One after the other: all at once take gigabytes, and longer than a query may.
        count = int(sum(prometheus.query('count({__name__="%s"})' % name).values()))
        if configuration.is_remote_written(name):
            run.remote_series += count
        if name.startswith(("nccl_", "process_")):
            run.scraped_series += count
        elif name != "up" and not name.startswith("scrape_"):
            run.recorded_series += count
            level = name.partition(":")[0]  # rank, comm, workload, job, or ALERTS
            run.recorded[level] = run.recorded.get(level, 0) + count


def _problems(prometheus, run):
    problems = []
    down = [target["labels"]["instance"] + ": " + target["lastError"]
            for target in prometheus.targets() if target["health"] != "up"]
    if down:
        problems.append("%d endpoints are down: %s" % (len(down), down[0]))
    failing = [rule["name"] + ": " + rule["lastError"] for group in prometheus.rule_groups()
               for rule in group["rules"] if rule.get("lastError")]
    if failing:
        problems.append("%d rules fail: %s" % (len(failing), failing[0]))
    if run.scraped_series != run.served_series:
        problems.append("the pages hold %d series, Prometheus has %d" %
                        (run.served_series, run.scraped_series))
    return problems


def _compare(prometheus, endpoints, run):
    """Counts what is served, and what Prometheus has of it. What the next scrapes mend, such as one that
    failed, is no problem."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        _read_pages(endpoints, run)
        _count_series(prometheus, run)
        run.problems = _problems(prometheus, run)
        if not run.problems or time.monotonic() > deadline:
            return
        time.sleep(run.interval_s)


def _read_scrapes(prometheus, run):
    # A short test may end between two scrapes.
    times = '{job="%s"}[%ds]' % (configuration.JOB, math.ceil(max(run.measured_s, 4 * run.interval_s)))
    ((_, run.scrape_mean_s),) = prometheus.query(
        "avg(avg_over_time(scrape_duration_seconds%s))" % times).items()
    ((_, run.scrape_slowest_s),) = prometheus.query(
        "max(max_over_time(scrape_duration_seconds%s))" % times).items()
    ((_, up),) = prometheus.query("avg(avg_over_time(up%s))" % times).items()
    run.failed_scrapes = 1 - up


def _read_block(prometheus, run):
    block = prometheus.snapshot()
    with open(os.path.join(block, "meta.json"), encoding="utf-8") as file:
        stats = json.load(file)["stats"]
    run.chunk_bytes_per_sample = _folder_bytes(os.path.join(block, "chunks")) / stats["numSamples"]
    run.index_bytes_per_series = (os.path.getsize(os.path.join(block, "index")) /
                                  stats["numSeries"])


def _say(text):
    print("fleet_simulation: " + text, file=sys.stderr, flush=True)


def _measure_scraping(prometheus, path, run):
    """Without rules for some scrapes."""
    whole = configuration.load(path)
    prometheus.reload(dict(whole, rule_files=[]))
    time.sleep(run.interval_s)  # for what evaluations leave behind
    name = "prometheus_tsdb_head_samples_appended_total"
    start_s, start = fine_cpu_s(prometheus.pid), _total(prometheus.own_metrics(), name)
    time.sleep(4 * run.interval_s)
    run.sample_cpu_s = ((fine_cpu_s(prometheus.pid) - start_s) /
                        max(_total(prometheus.own_metrics(), name) - start, 1))
    prometheus.reload(whole)


def measure(format_, ranks, seconds, communicators, factor, program="prometheus", sharded=False):
    """Measures for `seconds` after all was scraped twice and every rule evaluated.

    format_: of FORMATS. ranks: a multiple of GPUS_PER_NODE. factor: see configuration.write. program: Prometheus.
    sharded: a job without Send and Recv.
    """
    nodes = ranks // GPUS_PER_NODE
    run = Measurement(format_, ranks, nodes, configuration.scrape_interval_s(factor), seconds)
    flags = ["--enable-feature=native-histograms"] if format_ == "native" else []
    with tempfile.TemporaryDirectory(prefix="fleet_simulation-") as folder, Store() as store, \
            Endpoints(nodes, GPUS_PER_NODE, communicators, seconds + 10 * PATIENCE_S,
                      sharded) as endpoints:
        path = configuration.write(folder, endpoints.addresses, store.url, factor)
        with Prometheus(program, folder, path, flags) as prometheus:
            _say("%s, %d ranks: warming up" % (format_, ranks))
            # Some groups are evaluated every two minutes.
            prometheus.wait_until(lambda: _is_warm(prometheus, nodes),
                                  "all is scraped twice, and all rules are evaluated",
                                  PATIENCE_S + 240 / factor)
            _say("%s, %d ranks: measuring for %g s" % (format_, ranks, seconds))
            start = _Window(prometheus, endpoints)
            memory, groups = _watch(prometheus, seconds)
            end = _Window(prometheus, endpoints)
            _read_scrapes(prometheus, run)
            _compare(prometheus, endpoints, run)
            run.head_series = int(_total(prometheus.own_metrics(), "prometheus_tsdb_head_series"))
            _read_block(prometheus, run)
            _measure_scraping(prometheus, path, run)
            _say("%s, %d ranks: asking for each rule" % (format_, ranks))
            enough_s = min(rule_cost.ENOUGH_S, seconds / 1000)
            run.rule_costs = rule_cost.measure(prometheus, path, enough_s)

    passed_s = end.time - start.time
    run.measured_s = passed_s
    run.samples_per_s = (end.samples - start.samples) / passed_s
    run.remote_samples_per_s = (end.remote_samples - start.remote_samples) / passed_s
    run.remote_bytes_per_s = (end.remote_bytes - start.remote_bytes) / passed_s
    run.wal_bytes_per_sample = ((end.wal_bytes - start.wal_bytes) /
                                max(end.samples - start.samples, 1))
    run.memory_mean = statistics.mean(memory)
    run.memory_peak = max(memory)
    run.cores = (end.cpu - start.cpu) / passed_s
    run.page_cpu_s = (end.endpoints_cpu - start.endpoints_cpu) / max(end.scrapes - start.scrapes, 1)
    run.rule_groups = groups
    run.missed_evaluations = end.missed - start.missed
    return run
