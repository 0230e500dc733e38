"""What a real Prometheus stores of a recorded run, natively and classically, is what was recorded.

One Prometheus asks for protobuf (native histograms are switched on), another for OpenMetrics. Counts,
sums and native buckets must be those of an independent count over the trace; quantiles of both kinds
must lie in the bucket that holds the recorded quantile.
"""

import math
import os
import tempfile
import time
import unittest

from tests import running
from tests.kit import ServerProgram, free_port
from tests.reference import reference
from tests.replay.replayed_run import ReplayedRun, trace_files

RUN = "h200x2-net-mixed"
TIMING = "kernel"
API = 6
QUANTILES = (0.5, 0.9, 0.99)
FAMILIES = ("nccl_operation_duration_seconds", "nccl_operation_completion_seconds")
# Upper bounds of the classic buckets, as exponents of two.
CLASSIC = (*range(-18, -4), -3, 0, 4)
# Until what was replayed is settled, scraped and stored.
PATIENCE_S = 240

CONFIGURATION = """
global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: nccl
    static_configs:
      - targets: [%s]
"""


class Durations(reference.Histogram):
    """A histogram that also keeps what it counted."""

    def __init__(self):
        super().__init__()
        self.durations_ns = []

    def observe(self, duration_ns):
        super().observe(duration_ns)
        self.durations_ns.append(duration_ns)

    def quantile_ns(self, q):
        """The observation that histogram_quantile looks for."""
        return sorted(self.durations_ns)[max(math.ceil(q * len(self.durations_ns)) - 1, 0)]


def recorded():
    """{(family, labels): Durations}"""
    plain, reference.Histogram = reference.Histogram, Durations
    try:
        counted = reference.count_files(trace_files(RUN), TIMING, API, 1, network=True)
    finally:
        reference.Histogram = plain
    return {(name, frozenset(labels)): value for (name, labels), value in counted.items()
            if name in FAMILIES and value.count()}


class Prometheus(ServerProgram):
    """A Prometheus that scrapes `targets`."""

    def __init__(self, test, targets, *flags):
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        configuration = os.path.join(folder, "prometheus.yml")
        with open(configuration, "w") as file:
            file.write(CONFIGURATION % ", ".join('"%s"' % target for target in targets))
        port = free_port()
        super().__init__(["prometheus", "--config.file=" + configuration, "--storage.tsdb.path=" + os.path.join(folder, "data"),
                          "--web.listen-address=127.0.0.1:%d" % port, *flags], port, os.path.join(folder, "log"), "/-/ready")
        test.addClassCleanup(self.end)

    def query(self, expression):
        """{labels: sample}, `instance` and `job` left out."""
        result = self.data("/api/v1/query", query=expression)["result"]
        return {frozenset((name, value) for name, value in sample["metric"].items()
                          if name not in ("__name__", "instance", "job")): sample
                for sample in result}

    def values(self, expression):
        return {labels: float(sample["value"][1]) for labels, sample in self.query(expression).items()}


def native_bounds(duration_ns):
    cell = reference.cell_of(duration_ns)
    return (0 if cell == 0 else 2 ** ((cell - 161) / 8), 2 ** ((cell - 160) / 8))


def classic_bounds(duration_ns):
    bounds = [2.0 ** exponent for exponent in CLASSIC]
    for lower, upper in zip([0.0] + bounds, bounds):
        if reference.cell_of(duration_ns) <= 8 * (math.log2(upper) + 20):
            return lower, upper
    return bounds[-1], bounds[-1]  # all that histogram_quantile can say of the last bucket


class PrometheusTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.truth = recorded()
        replayed = ReplayedRun(RUN, TIMING, API, network="100")
        replayed.__enter__()
        cls.addClassCleanup(replayed.__exit__)
        targets = ["127.0.0.1:%d" % scraper.port for scraper in replayed.scrapers]
        for scraper in replayed.scrapers:
            scraper.stop()
        cls.native = Prometheus(cls, targets, "--enable-feature=native-histograms")
        cls.classic = Prometheus(cls, targets)
        cls.wait()

    @classmethod
    def wait(cls):
        """Until the counts are those of the recording; the tests say what is wrong if they never are."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if all(cls.counts(family, kind) == cls.true_counts(family)
                   for family in FAMILIES for kind in ("native", "classic")):
                return
            time.sleep(0.3)

    @classmethod
    def counts(cls, family, kind):
        if kind == "native":
            return cls.native.values("histogram_count(%s)" % family)
        return cls.classic.values(family + "_count")

    @classmethod
    def true_counts(cls, family):
        return {labels: value.count() for (name, labels), value in cls.truth.items() if name == family}

    def test_both_scrape_without_complaint(self):
        for prometheus in (self.native, self.classic):
            # A busy machine may be late now and then.
            deadline = time.monotonic() + PATIENCE_S
            while True:
                targets = prometheus.data("/api/v1/targets")["activeTargets"]
                self.assertEqual(len(targets), 2)
                errors = {target["lastError"] for target in targets}
                if not any("deadline exceeded" in error for error in errors):
                    break
                self.assertLess(time.monotonic(), deadline, errors)
                time.sleep(0.3)
            for target in targets:
                self.assertEqual((target["health"], target["lastError"]), ("up", ""))
            for line in prometheus.log().splitlines():
                self.assertNotRegex(line, "level=(warn|error).*scrape")

    def test_counts_and_sums(self):
        self.assertTrue(self.truth)
        for family in FAMILIES:
            self.assertTrue(self.true_counts(family))
            self.assertEqual(self.counts(family, "native"), self.true_counts(family))
            self.assertEqual(self.counts(family, "classic"), self.true_counts(family))
            for sums in (self.native.values("histogram_sum(%s)" % family), self.classic.values(family + "_sum")):
                for labels, value in sums.items():
                    self.assertEqual(round(value * 1e9), self.truth[family, labels].sum_ns)

    def test_native_histograms_are_stored_as_such(self):
        for family in FAMILIES:
            self.assertEqual(self.native.query(family + "_bucket"), {})
            self.assertEqual(self.native.query(family + "_count"), {})
            self.assertEqual(self.classic.query(family), {})

    def test_native_buckets_are_the_recorded_ones(self):
        for family in FAMILIES:
            samples = self.native.query(family)
            self.assertEqual(samples.keys(), self.true_counts(family).keys())
            for labels, sample in samples.items():
                found = {}
                for _, lower, upper, count in sample["histogram"][1]["buckets"]:
                    zero = float(lower) <= 0
                    cell = 0 if zero else round(8 * math.log2(float(upper))) + 160
                    found[cell] = int(count)
                self.assertEqual(found, dict(self.truth[family, labels].cells), (family, labels))

    def check_quantiles(self, found, family, q, bounds_of):
        self.assertEqual(found.keys(), self.true_counts(family).keys())
        for labels, value in found.items():
            true_ns = self.truth[family, labels].quantile_ns(q)
            lower, upper = bounds_of(true_ns)
            message = "%s%s: %g s; recorded %g s" % (family, sorted(labels), value, true_ns / 1e9)
            self.assertGreaterEqual(value, lower * (1 - 1e-9), message)
            self.assertLessEqual(value, upper * (1 + 1e-9), message)

    def test_quantiles_of_native_histograms(self):
        for family in FAMILIES:
            for q in QUANTILES:
                self.check_quantiles(self.native.values("histogram_quantile(%g, %s)" % (q, family)),
                                     family, q, native_bounds)

    def test_quantiles_of_classic_histograms(self):
        for family in FAMILIES:
            for q in QUANTILES:
                self.check_quantiles(
                    self.classic.values("histogram_quantile(%g, %s_bucket)" % (q, family)),
                    family, q, classic_bounds)

    def test_everything_else_is_the_same_in_both(self):
        """Names, labels and values of what stands still."""
        for family in ("nccl_operations_total", "nccl_operation_bytes_total",
                       "nccl_communicator_info", "nccl_pulse_build_info", "nccl_launches_total",
                       "nccl_timed_bus_bytes_total"):
            found = self.native.values(family)
            self.assertTrue(found, family)
            self.assertEqual(found, self.classic.values(family))

    def test_metadata_of_open_metrics(self):
        metadata = self.classic.data("/api/v1/metadata")
        for family, kind, unit in (("nccl_operation_bytes", "counter", "bytes"),
                                   ("nccl_communicator", "info", ""),
                                   ("nccl_operation_duration_seconds", "histogram", "seconds")):
            (entry,) = metadata[family]
            self.assertEqual((entry["type"], entry["unit"]), (kind, unit))


if __name__ == "__main__":
    running.main()
