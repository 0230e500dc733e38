"""What an endpoint says about a recorded run equals what an independent count over the trace gives.

Every trace, through API versions 4, 5 and 6, with timing auto and kernel, at full speed and at real
speed, with scrapers at 100 Hz beside it: counters and sums equal, histograms bucket for bucket; and no
counter or bucket ever steps back or vanishes between two scrapes.
"""

import functools
import math
import time
import unittest

from tests import running
from tests.reference import reference
from tests.replay.replayed_run import ReplayedRun, trace_files

RUNS = ("h200x2-graph", "h200x2-net-mixed", "h200x2-nvlink-group", "h200x2-threads", "h200x4-pytorch-ddp-fsdp")

# Families that are compared, sample for sample, in both directions. The sequence numbers are JSON's.
COUNTED = ("nccl_operations_total", "nccl_operation_bytes_total", "nccl_algorithm_operations_total",
           "nccl_launches_total", "sequence")
TIMED = ("nccl_operation_duration_seconds", "nccl_operation_completion_seconds",
         "nccl_timed_bus_bytes_total",
         "nccl_operations_without_duration_total", "nccl_operations_without_completion_total",
         "nccl_pulse_kernel_timing_untrusted", "nccl_network_bytes_total",
         "nccl_network_wait_seconds_total")

# So many pages at least are compared with the one before them.
PAGES = 3

# The longest wait for what is settled and rendered a little later than the last callback.
PATIENCE_S = 240

# The scrapes of many runs look at few trace files at a time.
reference.load = functools.lru_cache(maxsize=4)(reference.load)


def expected_samples(run, timing, api, repeat=1):
    """The reference's samples as they stand on a page; zeros left out."""
    flat = {}
    for (name, labels), value in reference.count_files(trace_files(run), timing, api, repeat, network=True).items():
        labels = frozenset(labels)
        if not isinstance(value, reference.Histogram):
            flat[name, labels] = value
            continue
        flat[name + "_count", labels] = value.count()
        flat[name + "_sum", labels] = value.sum_ns
        for exponent, count in value.classic_buckets().items():
            flat[name + "_bucket", labels | {("le", exponent)}] = count
        flat[name + "_bucket", labels | {("le", math.inf)}] = value.count()
    return {key: value for key, value in flat.items() if value}


def found_samples(page_samples, families):
    """The page's samples of these families in the same form; sums in whole nanoseconds."""
    found = {}
    for (name, labels), value in page_samples.items():
        family = name
        for suffix in ("_bucket", "_sum", "_count"):
            if name.endswith(suffix) and name[:-len(suffix)] in families:
                family = name[:-len(suffix)]
        if family not in families or not value:
            continue
        if name.endswith("_sum") or name == "nccl_network_wait_seconds_total":
            value = round(value * 1e9)
        if name.endswith("_bucket"):
            bound = float(dict(labels)["le"])
            labels = frozenset((n, v) for n, v in labels if n != "le")
            labels |= {("le", math.inf if math.isinf(bound) else round(math.log2(bound)))}
        found[name, labels] = value
    return found


def differences(expected, found):
    return ["%s %s: expected %s, found %s" %
            (key[0], sorted(key[1], key=str), expected.get(key), found.get(key))
            for key in sorted(expected.keys() | found.keys(), key=str)
            if expected.get(key) != found.get(key)]


def communicators_with_p2p(run):
    """`comm` labels of those."""
    ids = set()
    for path in trace_files(run):
        contexts = {}
        for event in reference.load(path):
            if event["cb"] == "init":
                contexts[event["ctx"]] = event["commId"]
            elif event["cb"] == "start" and event["type"] == "p2p":
                ids.add(contexts[event["ctx"]])
    return ids


class Exactness(unittest.TestCase):

    def check(self, run, timing, api, **options):
        families = COUNTED + TIMED
        expected = expected_samples(run, timing, api, options.get("repeat", 1))
        unknown = set()
        if api == 4 and timing == "kernel":
            # NCCL's adapter leaves a P2p's number of channels undefined: when the operation is over is
            # not known, so times on communicators with point-to-point traffic are not comparable.
            unknown = communicators_with_p2p(run)

        def comparable(samples):
            return {(name, labels): value for (name, labels), value in samples.items()
                    if dict(labels).get("comm") not in unknown or name.startswith(COUNTED)}

        expected = comparable(expected)
        # Steps are watched all the time: what a window sees is a matter of chance. Not before API 5.
        network = "100" if api >= 5 else "off"
        with ReplayedRun(run, timing, api, network=network, **options) as replayed:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                samples = {**replayed.samples(), **replayed.sequences()}
                wrong = differences(expected, comparable(found_samples(samples, families)))
                pages = min((scraper.pages for scraper in replayed.scrapers), default=0)
                # The scrapers go on while the run is held.
                if (not wrong and pages > PAGES) or time.monotonic() > deadline:
                    break
                time.sleep(0.3)
            problems = replayed.problems()
        self.assertTrue(expected)
        self.assertEqual(len(replayed.scrapers), len(trace_files(run)))
        self.assertFalse(wrong, "%d samples differ:\n%s" % (len(wrong), "\n".join(wrong[:40])))
        self.assertFalse(problems, "\n".join(problems[:20]))
        for (name, labels), value in samples.items():
            if name in ("nccl_pulse_overflowed_operations_total", "nccl_pulse_processes_rejected_total"):
                self.assertEqual(value, 0, name)
            # What the plugin could not use: nothing, in a recording of a sound run.
            if name == "nccl_pulse_ignored_events_total":
                self.assertEqual(value, 0, dict(labels))
        self.assertEqual(replayed.status, 130, "\n".join(replayed.output))
        self.assertGreater(pages, PAGES)

    def test_real_speed(self):
        for run in RUNS:
            with self.subTest(run=run):
                self.check(run, "kernel", 6, speed=1)

    def test_repeated(self):
        """New communicators come while the old ones' series stay; the scrapers see all of it."""
        for run, repeat in (("h200x2-threads", 10), ("h200x2-net-mixed", 5)):
            with self.subTest(run=run):
                self.check(run, "kernel", 6, repeat=repeat)


def add_test(run, timing, api):
    name = "test_%s_%s_v%d" % (run.replace("-", "_"), timing, api)
    setattr(Exactness, name, lambda self: self.check(run, timing, api))


for _run in RUNS:
    for _timing in ("auto", "kernel"):
        for _api in (4, 6, 7):
            add_test(_run, _timing, _api)

if __name__ == "__main__":
    running.main(at_once=3)
