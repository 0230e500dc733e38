"""Waiting, latency, bandwidth and the network, now and against the past."""

import functools
import os
import re

from tests.deploy import scenario
from tests.deploy.rules_case import COMM, RulesTest
from tests.deploy.scenario import Job, constant


class Waiting(RulesTest):

    STEP_S = 60

    def waits(self, grouped=0):
        """100 calls a second that three ranks of four wait 3 ms in, so many of them in groups."""
        scrapes = self.scrapes(25)
        job = Job(scrapes)
        for rank, seconds in enumerate([0.004, 0.004, 0.001, 0.004]):
            job.collective(rank, 100, seconds)
            if grouped:
                job.count(rank, "nccl_operations_without_duration_total", grouped, op="AllReduce", reason="grouped")
        return scrapes

    def test_of_all_ranks(self):
        self.gives(self.waits(), "round(1000 * comm:nccl_waiting:avg)", 20, {'{comm="c0ffee", job="nccl-pulse"}': 225})

    def test_calls_within_groups_have_no_duration(self):
        self.gives(self.waits(90), "round(10000 * comm:nccl_waiting:avg)", 20,
                   {'{comm="c0ffee", job="nccl-pulse"}': 225})


class Latency(RulesTest):

    STEP_S = 60

    def test_quantiles_bandwidth_and_coverage(self):
        """Two ranks; 110 and 90 calls a second of 64 MiB, one in ten timed, 1 and 3 ms."""
        scrapes = self.scrapes(12)
        job = Job(scrapes, ranks=2)
        job.collective(0, 110, 0.001, buckets=True)
        job.collective(1, 90, 0.003, buckets=True)
        kind = 'comm="c0ffee", job="nccl-pulse", op="AllReduce"'
        timed = "{%s, size=\"le_64MiB\", timing=\"stream\"}" % kind
        for quantile, truth, classic in (("p50", 0.001, 0.00095), ("p99", 0.003, 0.00396)):
            self.quantile(scrapes, "comm:nccl_operation_duration_seconds:" + quantile, 11, timed, truth, classic)
        for expression, labels, value in (
                ("comm:nccl_bus_bandwidth:bytes_per_second", timed,
                 round(2**26 * 1.5 * 20 / 0.038)),
                ("comm:nccl_bus_bandwidth:best_rank", timed, 2**26 * 1.5 / 0.001),
                ("1000 * comm:nccl_timed_operations:ratio", "{%s}" % kind, 100),
                ("1000 * comm:nccl_visible_operations:ratio", "{%s}" % kind, 1000),
                ("1000 * comm:nccl_ranks:ratio", '{comm="c0ffee", job="nccl-pulse"}', 1000)):
            self.gives(scrapes, "round(%s)" % expression, 11, {labels: value})


class Past(RulesTest):
    """Three hours of one run, then another run of the same workload, with another commId."""

    STEP_S = 120
    FILES = ("recording", "alerts")
    START = 190  # minute of the second run

    def both_runs(self, scrapes, name, before, after, job_ids=None, workload=None,
                  before_options=None, after_options=None):
        """Adds a workload `name`, two ranks on two nodes; before, after: seconds of a collective, a number
        or of each rank. Its communicators are NAME-1 and NAME-2."""
        job_ids = job_ids or (name, name)
        static = {"workload": workload} if workload else {}
        for number, seconds, options in ((1, before, before_options), (2, after, after_options)):
            comm = "%s-%d" % (name, number)
            job = Job(scrapes, comm=comm, ranks=2, per_node=1, job_id=job_ids[number - 1],
                      node="%s-" % comm, target_labels={"namespace": "ml", "pod": "p-%d"}, **static)
            for rank in job.ranks():
                each = seconds[rank] if isinstance(seconds, tuple) else seconds
                job.collective(rank, 100, each, **(options or {}))
        self.cut(scrapes, name)

    def cut(self, scrapes, name):
        """Each of the runs in its time."""
        start = scrapes.at(self.START)
        for (_, pairs), series in scrapes.series.items():
            if dict(pairs)["instance"].startswith(name + "-1-"):
                series[start:] = constant(None, len(series) - start)
            elif dict(pairs)["instance"].startswith(name + "-2-"):
                series[:start] = constant(None, start)

    def test_no_rule_is_empty(self):
        """Of those that need no hang."""
        scrapes = self.scrapes(250)
        self.both_runs(scrapes, "some", 0.001, 0.004, None, None, {"buckets": True}, {"buckets": True})
        for run in (1, 2):
            for rank in (0, 1):
                labels = {"job": "nccl-pulse", "instance": "some-%d-%d:9410" % (run, rank),
                          "comm": "some-%d" % run, "rank": str(rank), "direction": "send"}
                scrapes.count("nccl_network_bytes_total", 1e6, **labels)
                scrapes.count("nccl_network_wait_seconds_total", 1, **labels, reason="wire")
        self.cut(scrapes, "some")
        with open(os.path.join(scenario.RULES, "recording.yaml"), encoding="utf-8") as file:
            records = re.findall(r"record: (\S+)", file.read())
        for record in records:
            # Without native histograms quantiles come from buckets.
            buckets = "comm:nccl_operation_duration_seconds_bucket:rate5m"
            if "inflight" not in record and (record != buckets or self.FORM == "classic"):
                self.gives(scrapes, "group({__name__=\"%s\"})" % record, 240, {"{}": 1})

    def test_durations(self):
        scrapes = self.scrapes(250)
        both_runs = functools.partial(self.both_runs, scrapes)
        both_runs("slower", 0.001, 0.004)
        both_runs("renamed", 0.001, 0.004, job_ids=("1", "2"), workload="llama")
        # All that is silent.
        both_runs("another", 0.001, 0.004, job_ids=("3", "4"))
        both_runs("unnamed", 0.001, 0.004, job_ids=("", ""))
        both_runs("none", 0.001, 0.004, job_ids=("none", "none"))
        both_runs("same", 0.001, 0.0011)
        both_runs("sizes", 0.001, 0.004, None, None, {"bytes": 2**24 + 1}, {"bytes": 2**26})
        small = {"size": "le_4KiB", "bytes": 8}
        both_runs("microseconds", 0.00001, 0.00003, None, None, small, small)
        both_runs("p2p", 0.001, 0.004, None, None, {"op": "Recv"}, {"op": "Recv"})
        # One rank comes late now. Durations say so; the links are as they were.
        both_runs("straggler", 0.001, (0.004, 0.001))
        by = ("workload", "nranks", "nnodes", "index", "op", "size", "namespace")
        of = ("2", "2", "0", "AllReduce", "le_64MiB", "ml")
        self.fires(scrapes, "NcclLatencyRegression", 240, by, [("slower",) + of, ("llama",) + of, ("straggler",) + of])
        self.fires(scrapes, "NcclBusBandwidthCollapse", 240, COMM + by,
                   [("slower-2", "slower") + of, ("renamed-2", "llama") + of])
        self.is_silent(scrapes, 180, "NcclLatencyRegression", "NcclBusBandwidthCollapse")

    def test_bandwidth_of_one_of_several_alike_without_a_past(self):
        scrapes = self.scrapes(40)
        for i, each in enumerate((0.001, 0.001, 0.004)):
            job = Job(scrapes, comm="tp%d" % i, ranks=2, node="n%d-" % i, start_rank=2 * i)
            for rank in job.ranks():
                job.collective(rank, 100, each)
        self.fires(scrapes, "NcclBusBandwidthCollapse", 30, COMM, [("tp2",)])
        self.is_silent(scrapes, 30, "NcclLatencyRegression")

    def test_network(self):
        """Seconds of waiting per second, by cause; before: gpu 2, wire 1."""
        scrapes = self.scrapes(250)
        for name, after in (("wire", {"gpu": 2, "wire": 9}),
                            ("same", {"gpu": 2, "wire": 1}),  # 67 % as always
                            ("all", {"gpu": 5, "wire": 5}),  # nothing dominates
                            ("idle", {"gpu": 0, "wire": 0})):
            self.both_runs(scrapes, name, 0.001, 0.001)
            for run, waits in ((1, {"gpu": 2, "wire": 1}), (2, after)):
                for rank in (0, 1):
                    labels = {"job": "nccl-pulse", "instance": "%s-%d-%d:9410" % (name, run, rank),
                              "comm": "%s-%d" % (name, run), "rank": str(rank), "direction": "send"}
                    scrapes.count("nccl_network_bytes_total", 0 if name == "idle" else 1e6, **labels)
                    for reason, per_second in waits.items():
                        scrapes.count("nccl_network_wait_seconds_total", per_second, **labels, reason=reason)
            self.cut(scrapes, name)
        self.fires(scrapes, "NcclNetworkWaitRegression", 240, ("workload", "direction", "reason"),
                   [("wire", "send", "wire")])
        self.is_silent(scrapes, 180, "NcclNetworkWaitRegression")
