"""Every alert of deploy/prometheus fires when it should, and is silent when something else is the matter.

promtool evaluates the rules as they are; a test says what was scraped (scenario.py).
"""

import functools
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

from tests.deploy import scenario
from tests.deploy.scenario import CLOCK, Job, Scrapes, constant

COMM = ("comm",)
RUNBOOK = "docs/runbook.md"


def alerts():
    """{alert: its lines in the file}"""
    found = {}
    for path in glob.glob(os.path.join(scenario.RULES, "*.yaml")):
        with open(path, encoding="utf-8") as file:
            for part in re.split(r"^ *- alert: ", file.read(), flags=re.MULTILINE)[1:]:
                found[part.split("\n")[0]] = part
    return found


class RulesTest(unittest.TestCase):
    """What a test expects is collected, and checked at its end: one simulation for all expectations of
    the same scrapes, which must not change after the first."""

    maxDiff = None
    # Of all tests: what fired and what did not, and the tests.
    fired, silent, ran = set(), set(), set()
    # Seconds between scrapes, and between evaluations of the rules.
    STEP_S = 30
    # Rule files.
    FILES = ("recording", "alerts", "dcgm", "diagnosis")

    def setUp(self):
        self.expected = {}  # scrapes: (samples, alerts)
        self.ran.add(self.id())

    def tearDown(self):
        if self.expected:
            simulations = [scenario.simulation(scrapes, *expected)
                           for scrapes, expected in self.expected.items()]
            self.assertEqual(scenario.run(simulations, self.FILES, self.STEP_S), "")

    def scrapes(self, minutes):
        return Scrapes(minutes, self.STEP_S)

    def of(self, scrapes):
        return self.expected.setdefault(scrapes, ([], []))

    def gives(self, scrapes, expression, minutes, expected):
        self.of(scrapes)[0].append(scenario.samples(expression, minutes, expected))

    def annotates(self, scrapes, alert, minutes, labels, annotations):
        self.of(scrapes)[1].append(scenario.annotated(alert, minutes, labels, annotations))

    def fires(self, scrapes, alert, minutes, by, expected):
        self.of(scrapes)[0].append(scenario.firing(alert, minutes, by, expected))
        (self.fired if expected else self.silent).add(alert)

    def is_silent(self, scrapes, minutes, *alert_names):
        self.of(scrapes)[0].append(
            scenario.firing("|".join(alert_names), minutes, ("alertname",), []))
        self.silent.update(alert_names)


HANGS = ("NcclCollectiveHung", "NcclCollectiveHungLong", "NcclRankMissing")


class Hang(RulesTest):

    def hung(self, minutes=12, **options):
        """Ranks 0, 1 and 3 wait from minute 4 on; rank 2 does not come."""
        scrapes = self.scrapes(minutes)
        job = Job(scrapes, **options)
        for rank in (0, 1, 3):
            job.launches(rank, until=4)
        job.idle(2, since=4)
        return scrapes, job

    def test_hung(self):
        scrapes, _ = self.hung()
        by = ("comm", "nranks", "workload", "severity")
        self.is_silent(scrapes, 5, *HANGS)
        self.fires(scrapes, "NcclCollectiveHung", 6.5, by, [("c0ffee", "4", "7", "warning")])
        self.fires(scrapes, "NcclCollectiveHungLong", 10.5, by, [("c0ffee", "4", "7", "critical")])
        self.is_silent(scrapes, 11, "NcclRankMissing")
        self.is_silent(scrapes, 8, "NcclCollectiveHungLong")

    def test_annotations_name_the_ranks_that_do_not_wait(self):
        scrapes, _ = self.hung()
        self.annotates(
            scrapes, "NcclCollectiveHung", 7,
            dict(severity="warning", job="nccl-pulse", job_id="7", workload="7", comm="c0ffee",
                 comm_name="dp", nranks="4", nnodes="2"),
            dict(summary="Communicator c0ffee dp (4 ranks) of 7 has had work in flight for 3m 0s",
                 description="A launch on the GPU has not ended, and none has completed since. A rank "
                 "that is not waiting is the one that others wait for. Ranks in use that do not wait, "
                 "or cannot be seen to: 2 (node1 gpu 0 pid 102). Look at those first (py-spy dump), "
                 "then at ranks that are missing.",
                 runbook_url=RUNBOOK + "#ncclcollectivehung"))

    def test_clock_of_the_scraper_does_not_matter(self):
        # The scenario's clocks are 53 years apart.
        self.assertGreater(CLOCK, 1e9)
        scrapes, _ = self.hung()
        self.gives(scrapes, "count(round(rank:nccl_inflight_age:seconds) == 180)", 7, {"{}": 3})

    def test_without_events_behind_the_launches(self):
        scrapes, job = self.hung()
        for rank in job.ranks():
            for name in ("nccl_oldest_inflight_launch_timestamp_seconds",
                         "nccl_launches_completed_total"):
                key = name, tuple(sorted(job.labels[rank].items()))
                times = scrapes.series.pop(key)
                if name.startswith("nccl_oldest"):
                    job.set(rank, "nccl_oldest_inflight_operation_timestamp_seconds", times,
                            source="proxy")
        self.fires(scrapes, "NcclCollectiveHung", 7, COMM, [("c0ffee",)])

    def test_idle_job(self):
        scrapes = self.scrapes(30)
        job = Job(scrapes)
        for rank in job.ranks():
            job.idle(rank, since=2)
        self.is_silent(scrapes, 29, *HANGS)

    def test_busy_job_and_no_job(self):
        scrapes = self.scrapes(12)
        Job(scrapes)
        self.is_silent(scrapes, 11, *HANGS)
        self.is_silent(self.scrapes(12), 11, *HANGS)

    def test_long_queue_that_moves(self):
        """The oldest launch in flight is two minutes old all the time, and launches complete."""
        scrapes = self.scrapes(12)
        job = Job(scrapes)
        for rank in job.ranks():
            job.set(rank, "nccl_oldest_inflight_launch_timestamp_seconds",
                    [time - 120 for time in scrapes.clock()])
        self.is_silent(scrapes, 11, *HANGS)

    def test_captured_graphs(self):
        """Replays are not seen: nothing completes, and idle is absent instead of 0."""
        scrapes = self.scrapes(12)
        job = Job(scrapes)
        for rank in job.ranks():
            job.launches(rank, until=0)
            for name in ("inflight_launches", "oldest_inflight_launch_timestamp_seconds"):
                scrapes.series.pop(("nccl_" + name, tuple(sorted(job.labels[rank].items()))), None)
            job.set(rank, "nccl_communicator_captured", 1)
        self.is_silent(scrapes, 11, *HANGS)

    def test_finalized_or_ended_in_flight(self):
        scrapes, job = self.hung()
        for rank in job.ranks():
            job.set(rank, "nccl_communicator_active", scrapes.change(4.5, 1, 0))
        self.is_silent(scrapes, 11, *HANGS)
        # An agent shows the last state of processes that were killed.
        scrapes, job = self.hung()
        for rank in job.ranks():
            job.process(rank, "nccl_pulse_process_up", scrapes.change(4.5, 1, 0))
        self.is_silent(scrapes, 11, *HANGS)

    def test_stopped_poller_is_no_hang(self):
        scrapes, job = self.hung()
        for rank in job.ranks():
            job.process(rank, "nccl_pulse_last_poll_timestamp_seconds", scrapes.clock(stopped_at=4))
        self.is_silent(scrapes, 11, *HANGS)

    def test_serving_is_left_out(self):
        scrapes, _ = self.hung(hang_alert="off")
        self.is_silent(scrapes, 11, *HANGS)

    def test_pipeline_parallel_bubble(self):
        """A stage waits 35 s for the one before, again and again."""
        scrapes = self.scrapes(12)
        job = Job(scrapes, ranks=2)
        waits = [time - 5 - 30 * (i % 2) for i, time in enumerate(scrapes.clock())]
        job.set(1, "nccl_oldest_inflight_launch_timestamp_seconds", waits)
        self.is_silent(scrapes, 11, *HANGS)


class Missing(RulesTest):

    def test_killed_rank(self):
        scrapes = self.scrapes(12)
        job = Job(scrapes)
        for rank in (0, 1, 3):
            job.launches(rank, until=4)
        scrapes.end(4, instance="node1:9410", pid="102")
        scrapes.end(4, comm="c0ffee", rank="2")
        self.fires(scrapes, "NcclRankMissing", 9, ("comm", "nranks"), [("c0ffee", "4")])
        self.is_silent(scrapes, 6, "NcclRankMissing")

    def test_killed_rank_that_an_agent_shows(self):
        scrapes = self.scrapes(12)
        job = Job(scrapes)
        for rank in (0, 1, 3):
            job.launches(rank, until=4)
        job.process(2, "nccl_pulse_process_up", scrapes.change(4, 1, 0))
        self.fires(scrapes, "NcclRankMissing", 9, COMM, [("c0ffee",)])

    def test_lost_node(self):
        scrapes = self.scrapes(12)
        job = Job(scrapes)
        for rank in (0, 1):
            job.launches(rank, until=4)
        scrapes.end(4, instance="node1:9410")
        scrapes.set("up", scrapes.change(4, 1, 0), job="nccl-pulse", instance="node1:9410")
        self.fires(scrapes, "NcclRankMissing", 9, COMM, [("c0ffee",)])

    def test_end_of_a_job(self):
        """Rank 0 alone lives on, to write its results; communicators are not finalized."""
        scrapes = self.scrapes(30)
        job = Job(scrapes)
        for rank in job.ranks():
            job.idle(rank, since=10)
        scrapes.end(11, instance="node1:9410")
        scrapes.end(11, comm="c0ffee", rank="1")
        scrapes.end(11, pid="101")
        self.is_silent(scrapes, 20, *HANGS, "NcclPulseRanksNotScraped")
        self.is_silent(scrapes, 29, *HANGS, "NcclPulseRanksNotScraped")

    def test_never_scraped(self):
        """It hangs, and rank 3 was never seen: hung, but not lost."""
        scrapes = self.scrapes(12)
        job = Job(scrapes, missing=(3,))
        for rank in job.ranks():
            job.launches(rank, until=4)
        self.is_silent(scrapes, 11, "NcclRankMissing")
        self.fires(scrapes, "NcclCollectiveHung", 11, COMM, [("c0ffee",)])

    def test_failed_scrapes_while_the_job_runs(self):
        scrapes = self.scrapes(20)
        Job(scrapes)
        scrapes.end(8, instance="node1:9410")
        scrapes.set("up", scrapes.change(8, 1, 0), job="nccl-pulse", instance="node1:9410")
        self.is_silent(scrapes, 19, "NcclRankMissing")


class Straggler(RulesTest):

    STEP_S = 60
    BY = ("comm", "rank", "Hostname", "gpu")

    def collectives(self, durations, per_second=100, minutes=25, **options):
        """durations: of each rank."""
        scrapes = self.scrapes(minutes)
        job = Job(scrapes, ranks=len(durations), **options)
        for rank, each in enumerate(durations):
            if rank in job.labels:
                job.collective(rank, per_second, each)
        return scrapes, job

    def test_one_rank_comes_last(self):
        scrapes, _ = self.collectives([0.004, 0.004, 0.001, 0.004])
        self.fires(scrapes, "NcclStraggler", 20, self.BY, [("c0ffee", "2", "node1", "0")])
        self.is_silent(scrapes, 9, "NcclStraggler")
        # 100 calls a second that three ranks of four wait 3 ms in.
        self.gives(scrapes, "round(1000 * comm:nccl_waiting:avg)", 20,
                   {'{comm="c0ffee", job="nccl-pulse"}': 225})

    def test_a_slow_node(self):
        scrapes, _ = self.collectives([0.004, 0.004, 0.001, 0.001])
        self.fires(scrapes, "NcclStraggler", 20, ("rank",), [("2",), ("3",)])

    def test_even_ranks(self):
        scrapes, _ = self.collectives([0.004, 0.0041, 0.0039, 0.004])
        self.is_silent(scrapes, 20, "NcclStraggler")

    def test_one_rank_comes_first(self):
        """The others do not wait much: nobody holds them up."""
        scrapes, _ = self.collectives([0.004, 0.001, 0.001, 0.001])
        self.is_silent(scrapes, 20, "NcclStraggler")

    def test_little_time_is_lost(self):
        scrapes, _ = self.collectives([0.004, 0.004, 0.001, 0.004], per_second=10)
        self.is_silent(scrapes, 20, "NcclStraggler")

    def test_the_last_rank_changes(self):
        scrapes = self.scrapes(40)
        job = Job(scrapes)
        for rank in job.ranks():
            job.collective(rank, 100, [0.001 if (i // 6) % 4 == rank else 0.004
                                       for i in range(scrapes.scrapes)])
        self.is_silent(scrapes, 39, "NcclStraggler")

    def test_not_all_ranks_are_seen(self):
        scrapes, _ = self.collectives([0.004, 0.004, 0.001, 0.004], missing=(1,))
        self.is_silent(scrapes, 20, "NcclStraggler")

    def test_point_to_point(self):
        scrapes = self.scrapes(25)
        job = Job(scrapes)
        for rank, each in enumerate((0.004, 0.004, 0.001, 0.004)):
            job.collective(rank, 100, each, op="Recv")
        self.is_silent(scrapes, 20, "NcclStraggler")

    def test_calls_within_groups_have_no_duration(self):
        """Of 100 calls a second 90 are in groups: what the others wait is a tenth."""
        scrapes, job = self.collectives([0.004, 0.004, 0.001, 0.004])
        for rank in job.ranks():
            job.count(rank, "nccl_untimed_operations_total", 90, op="AllReduce", reason="grouped")
        self.gives(scrapes, "round(10000 * comm:nccl_waiting:avg)", 20,
                   {'{comm="c0ffee", job="nccl-pulse"}': 225})
        self.is_silent(scrapes, 20, "NcclStraggler")


class Latency(RulesTest):

    STEP_S = 60

    def test_quantiles_bandwidth_and_coverage(self):
        """Two ranks; 100 calls a second of 64 MiB, one in ten timed, 1 and 3 ms."""
        scrapes = self.scrapes(12)
        job = Job(scrapes, ranks=2)
        job.collective(0, 100, 0.001, buckets=True)
        job.collective(1, 100, 0.003, buckets=True)
        kind = 'comm="c0ffee", job="nccl-pulse", op="AllReduce"'
        timed = "{%s, size=\"le_64MiB\", timing=\"stream\"}" % kind
        for expression, labels, value in (
                ("1e5 * comm:nccl_operation_duration_seconds:p50", timed, 100),
                ("1e5 * comm:nccl_operation_duration_seconds:p99", timed, 396),
                ("comm:nccl_bus_bandwidth:bytes_per_second", timed, 2**26 * 1.5 / 0.002),
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
                      node="%s-" % comm, **static)
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
        by = ("workload", "nranks", "nnodes", "index", "op", "size")
        of = ("2", "2", "0", "AllReduce", "le_64MiB")
        self.fires(scrapes, "NcclLatencyRegression", 240, by,
                   [("slower",) + of, ("llama",) + of, ("straggler",) + of])
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
                        scrapes.count("nccl_network_wait_seconds_total", per_second, **labels,
                                      reason=reason)
            self.cut(scrapes, name)
        self.fires(scrapes, "NcclNetworkWaitDominated", 240, ("workload", "direction", "reason"),
                   [("wire", "send", "wire")])
        self.is_silent(scrapes, 180, "NcclNetworkWaitDominated")


class Exporter(RulesTest):

    STEP_S = 60

    def test_endpoint_down(self):
        scrapes = self.scrapes(15)
        Job(scrapes)
        Job(scrapes, comm="other", node="other", start_rank=10)
        scrapes.end(5, instance="node1:9410")
        scrapes.set("up", scrapes.change(5, 1, 0), job="nccl-pulse", instance="node1:9410")
        self.fires(scrapes, "NcclPulseEndpointDown", 10, ("instance",), [("node1:9410",)])

    def test_agent_down(self):
        scrapes = self.scrapes(15)
        scrapes.set("up", 0, job="nccl-pulse-agent", instance="node1:9410")
        self.fires(scrapes, "NcclPulseEndpointDown", 10, ("instance",), [("node1:9410",)])

    def test_endpoint_goes_with_its_job(self):
        scrapes = self.scrapes(15)
        Job(scrapes)
        Job(scrapes, comm="other", node="other", start_rank=10)
        for node in ("node0:9410", "node1:9410"):
            scrapes.end(5, instance=node)
            scrapes.set("up", scrapes.change(5, 1, 0), job="nccl-pulse", instance=node)
        scrapes.set("up", 0, job="nccl-pulse", instance="never:9410")
        scrapes.set("up", 0, job="something-else", instance="node0:80")
        self.is_silent(scrapes, 10, "NcclPulseEndpointDown")

    def test_endpoint_moves_to_another_port(self):
        scrapes = self.scrapes(15)
        Job(scrapes)
        moved = {}
        for (name, pairs), series in scrapes.series.items():
            labels = dict(pairs)
            if labels["instance"] == "node1:9410" and name != "up":
                labels["instance"] = "node1:9411"
                late = list(series)
                late[:scrapes.at(5)] = constant(None, scrapes.at(5))
                moved[name, tuple(sorted(labels.items()))] = late
        scrapes.end(5, instance="node1:9410")
        scrapes.series.update(moved)
        scrapes.set("up", scrapes.change(5, 1, 0), job="nccl-pulse", instance="node1:9410")
        self.is_silent(scrapes, 14, "NcclPulseEndpointDown")

    def test_poll_stuck(self):
        scrapes = self.scrapes(15)
        job = Job(scrapes)
        job.process(1, "nccl_pulse_last_poll_timestamp_seconds",
                    [t - CLOCK for t in scrapes.clock(stopped_at=3)])
        self.fires(scrapes, "NcclPulsePollStuck", 10, ("instance", "pid"), [("node0:9410", "101")])

    def test_poll_of_live_and_of_ended_processes(self):
        scrapes = self.scrapes(15)
        job = Job(scrapes)
        for rank in job.ranks():
            job.process(rank, "nccl_pulse_last_poll_timestamp_seconds",
                        [t - CLOCK for t in scrapes.clock(stopped_at=3 if rank == 1 else None)])
        job.process(1, "nccl_pulse_process_up", scrapes.change(3, 1, 0))
        self.is_silent(scrapes, 14, "NcclPulsePollStuck")
        # A clock that is ten minutes behind.
        scrapes = self.scrapes(15)
        job = Job(scrapes)
        for rank in job.ranks():
            job.process(rank, "nccl_pulse_last_poll_timestamp_seconds",
                        [t - CLOCK - 600 for t in scrapes.clock()])
        self.is_silent(scrapes, 14, "NcclPulsePollStuck")

    def test_ranks_not_scraped(self):
        scrapes = self.scrapes(30)
        Job(scrapes, missing=(3,))
        Job(scrapes, comm="whole", node="other", start_rank=10)
        self.fires(scrapes, "NcclPulseRanksNotScraped", 25, COMM, [("c0ffee",)])
        self.is_silent(scrapes, 10, "NcclPulseRanksNotScraped")

    LOST = ("NcclPulseMeasurementsLost", ("instance", "lost"))

    def losing(self, **per_second):
        scrapes = self.scrapes(40)
        job = Job(scrapes)
        for rank in job.ranks():
            job.collective(rank, 100, 0.001)
            job.process(rank, "nccl_pulse_callbacks_total", 0, callback="api")
        process = job.labels[2, "process"]
        scrapes.count("nccl_pulse_callbacks_total", 1000, callback="operation", **process)
        for reason in ("stale_handle", "unfollowed_step"):
            scrapes.count("nccl_pulse_ignored_events_total", per_second.get(reason, 0),
                          reason=reason, **process)
        job.count(2, "nccl_untimed_operations_total", per_second.get("lost", 0), op="AllReduce",
                  reason="lost")
        job.count(2, "nccl_untimed_operations_total", 90, op="AllReduce", reason="not_sampled")
        job.count(2, "nccl_uncompleted_operations_total", per_second.get("uncompleted", 0),
                  op="AllReduce")
        return scrapes

    def test_measurements_lost(self):
        node = "node1:9410"  # two ranks, 200 operations a second
        self.fires(self.losing(lost=5), *self.LOST[:1], 35, self.LOST[1], [(node, "durations")])
        self.fires(self.losing(stale_handle=20), *self.LOST[:1], 35, self.LOST[1],
                   [(node, "events")])
        self.fires(self.losing(uncompleted=5), *self.LOST[:1], 35, self.LOST[1],
                   [(node, "completions")])

    def test_few_lost_or_others_steps(self):
        self.is_silent(self.losing(lost=0.5, stale_handle=2, uncompleted=1), 35, self.LOST[0])
        self.is_silent(self.losing(unfollowed_step=500), 35, self.LOST[0])

    def server(self, name, values_, **labels):
        scrapes = self.scrapes(30)
        scrapes.set(name, values_ if isinstance(values_, list) else constant(values_, scrapes.scrapes),
                    job="nccl-pulse", instance="node0:9410", **labels)
        return scrapes

    def test_segments_rejected(self):
        name = "nccl_pulse_segments_rejected_total"
        change = self.scrapes(30).change(10, 0, 3)
        scrapes = self.server(name, change, reason="no_room")
        self.fires(scrapes, "NcclPulseSegmentsRejected", 15, ("instance", "reason"),
                   [("node0:9410", "no_room")])
        # Again after another process serves: it starts anew.
        self.is_silent(self.server(name, self.scrapes(30).change(10, 3, 0), reason="no_room"), 15,
                       "NcclPulseSegmentsRejected")
        self.is_silent(scrapes, 29, "NcclPulseSegmentsRejected")

    def test_kernel_timing_untrusted(self):
        name = "nccl_pulse_kernel_timing_untrusted"
        labels = {"comm": "c0ffee", "rank": "0", "reason": "self_send"}
        self.fires(self.server(name, 1, **labels), "NcclPulseKernelTimingUntrusted", 15,
                   ("comm", "reason"), [("c0ffee", "self_send")])
        self.is_silent(self.server(name, 0, **labels), 15, "NcclPulseKernelTimingUntrusted")

    def test_series_overflow(self):
        name = "nccl_pulse_overflowed_operations_total"
        labels = {"comm": "c0ffee", "rank": "0"}
        scrapes = self.server(name, [i * 10 for i in range(31)], **labels)
        self.fires(scrapes, "NcclPulseSeriesOverflow", 20, ("instance",), [("node0:9410",)])
        # It has stopped long ago.
        self.is_silent(self.server(name, 500, **labels), 20, "NcclPulseSeriesOverflow")

    def test_communicators_full(self):
        for used, expected in ((64, [("100",)]), (63, [])):
            scrapes = self.server("nccl_pulse_communicators_used", used, pid="100")
            scrapes.set("nccl_pulse_communicators_limit", 64, job="nccl-pulse",
                        instance="node0:9410", pid="100")
            self.fires(scrapes, "NcclPulseCommunicatorsFull", 15, ("pid",), expected)


class Dcgm(RulesTest):
    """dcgm-exporter beside it: another scrape job at another port, and the same UUIDs."""

    STEP_S = 60

    def gpus(self, name, values_, **more):
        scrapes = self.scrapes(30)
        Job(scrapes)
        Job(scrapes, comm="second", start_rank=0)  # two communicators on each GPU
        for node in (0, 1):
            for gpu in (0, 1):
                scrapes.set(name, values_[node * 2 + gpu], job="dcgm", instance="node%d:9400" % node,
                            Hostname="node%d" % node, gpu=str(gpu), device="nvidia%d" % gpu,
                            UUID="GPU-node%d-%d" % (node, gpu), modelName="NVIDIA H200",
                            pci_bus_id="00000000:0%d:00.0" % (node * 2 + gpu), **more)
        return scrapes

    def test_utilization_of_a_rank(self):
        scrapes = self.gpus("DCGM_FI_DEV_GPU_UTIL", [100, 100, 37, 100])
        self.gives(scrapes, 'max by (comm, rank, Hostname, gpu) (rank:nccl_gpu_utilization:percent'
                   '{comm="c0ffee"} < 50)', 5,
                   {'{comm="c0ffee", rank="2", Hostname="node1", gpu="0"}': 37})
        self.gives(scrapes, "count(rank:nccl_gpu_utilization:percent)", 5, {"{}": 8})

    def test_other_values(self):
        scrapes = self.gpus("DCGM_FI_DEV_POWER_USAGE", [700] * 4)
        self.gives(scrapes, "sum(rank:nccl_gpu_power:watts{comm='second'})", 5, {"{}": 2800})
        scrapes = self.gpus("DCGM_FI_DEV_SM_CLOCK", [1980] * 4)
        self.gives(scrapes, "min(rank:nccl_gpu_sm_clock:mhz)", 5, {"{}": 1980})

    def test_xid(self):
        scrapes = self.gpus("DCGM_FI_DEV_XID_ERRORS", [0, 0, self.scrapes(30).change(10, 0, 79), 43])
        by = ("Hostname", "gpu", "UUID", "pci_bus_id", "workload")
        self.fires(scrapes, "NcclGpuXid", 12, by,
                   [("node1", "0", "GPU-node1-0", "00000000:02:00.0", "7")])
        # GPU 1 of node 1 had its own long ago.
        self.is_silent(scrapes, 25, "NcclGpuXid")
        # A GPU that nobody here uses.
        scrapes = self.scrapes(30)
        scrapes.set("DCGM_FI_DEV_XID_ERRORS", scrapes.change(10, 0, 79), UUID="GPU-other")
        self.is_silent(scrapes, 12, "NcclGpuXid")


class Fleet(RulesTest):

    STEP_S = 60
    FILES = ("recording", "fleet")

    def test_series_of_jobs_and_workloads(self):
        """Two communicators of one job, of two ranks each."""
        scrapes = self.scrapes(15)
        for number, each in ((0, 0.001), (1, 0.003)):
            job = Job(scrapes, comm="tp%d" % number, ranks=2, node="n%d-" % number,
                      start_rank=2 * number)
            for rank in job.ranks():
                job.collective(rank, 100, each, buckets=True)
                job.count(rank, "nccl_operation_bytes_total", 5e9, op="AllReduce", size="le_64MiB")
        job = '{job="nccl-pulse", job_id="7", workload="7"}'
        of_job = '{job="nccl-pulse", job_id="7", workload="7", op="AllReduce"}'
        kind = '{job="nccl-pulse", workload="7", nranks="2", nnodes="1", index="0"}'
        timed = kind[:-1] + ', op="AllReduce", size="le_64MiB", timing="stream"}'
        for expression, labels, value in (
                ("job:nccl_ranks:live", job, 4),
                ("job:nccl_communicators:live", job, 2),
                ("job:nccl_operations:rate5m", of_job, 400),
                ("job:nccl_operation_bytes:rate5m", of_job, 2e10),
                ("job:nccl_waiting:max", job, 0),
                ("workload:nccl_communicators:live", kind, 2),
                ("workload:nccl_bus_bandwidth:worst_communicator", timed, 2**25 * 1e3),
                ("10 * workload:nccl_timed_operations:ratio", kind[:-1] + ', op="AllReduce"}', 1),
                ("1e5 * histogram_quantile(0.99, "
                 "workload:nccl_operation_duration_seconds_bucket:rate5m)", timed, 396)):
            self.gives(scrapes, "round(%s)" % expression, 12, {labels: value})
        self.gives(scrapes, "job:nccl_inflight_age:seconds", 12, {})

    def test_oldest_of_a_job(self):
        scrapes = self.scrapes(10)
        job = Job(scrapes)
        job.launches(1, until=4)
        self.gives(scrapes, "round(job:nccl_inflight_age:seconds)", 8,
                   {'{job="nccl-pulse", job_id="7", workload="7"}': 240})


class Diagnosis(RulesTest):

    STEP_S = 60

    def test_hang_suspected(self):
        by = ("comm", "verdict", "suspect_rank", "op")
        for static, expected in (({}, [("c0ffee", "rank_not_called", "2", "AllReduce")]),
                                 ({"hang_alert": "off"}, [])):
            scrapes = self.scrapes(10)
            Job(scrapes, **static)
            scrapes.set("nccl_hang_start_timestamp_seconds", scrapes.change(3, None, CLOCK),
                        job="nccl-pulse", instance="node0:9410", comm="c0ffee", op="AllReduce",
                        verdict="rank_not_called", suspect_rank="2")
            self.is_silent(scrapes, 3, "NcclHangSuspected")
            self.fires(scrapes, "NcclHangSuspected", 6, by, expected)

    def test_hang_suspected_annotations(self):
        scrapes = self.scrapes(10)
        Job(scrapes)
        labels = {"comm": "c0ffee", "op": "AllReduce", "verdict": "rank_not_called",
                  "suspect_rank": "2"}
        scrapes.set("nccl_hang_start_timestamp_seconds", CLOCK, job="nccl-pulse",
                    instance="node0:9410", **labels)
        self.annotates(
            scrapes, "NcclHangSuspected", 6, dict(labels, severity="critical", job="nccl-pulse"),
            dict(summary="Communicator c0ffee hangs in AllReduce: rank_not_called, rank 2 is suspected",
                 description="Since 2023-11-14 22:13:20 +0000 UTC. Rank 2: node1 gpu 0 pid 102.",
                 runbook_url=RUNBOOK + "#ncclhangsuspected"))

    def test_node_straggler(self):
        for late, expected in (((0.01, 0, 0.2, 0.01), [("2",)]),
                               ((0.01, 0, 0.03, 0.01), []),  # little
                               ((0.2, 0.2, 0.2, 0.2), [])):  # each in turn
            scrapes = self.scrapes(25)
            job = Job(scrapes, per_node=4)
            for rank, seconds in enumerate(late):
                job.count(rank, "nccl_straggler_seconds_total", seconds)
            self.fires(scrapes, "NcclNodeStraggler", 20, ("rank",), expected)


class Whole(RulesTest):

    def test_promtool_finds_nothing_wrong(self):
        paths = sorted(glob.glob(os.path.join(scenario.RULES, "*.yaml")))
        rules = [path for path in paths if not path.endswith("/prometheus.yaml")]
        result = subprocess.run(["promtool", "check", "rules", *rules], text=True,
                                capture_output=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        result = subprocess.run(
            ["promtool", "check", "config", os.path.join(scenario.RULES, "prometheus.yaml")],
            text=True, capture_output=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_every_alert_has_its_section_and_its_annotations(self):
        with open("docs/runbook.md", encoding="utf-8") as file:
            sections = re.split(r"^### ", file.read(), flags=re.MULTILINE)[1:]
        self.assertEqual(sorted(alerts()), sorted(section.split("\n")[0] for section in sections))
        for section in sections:
            for word in ("**Means**", "**Look at**", "**Do**"):
                self.assertIn(word, section)
        for alert, text in alerts().items():
            self.assertIn("runbook_url: %s#%s\n" % (RUNBOOK, alert.lower()), text)
            self.assertRegex(text, r"severity: (info|warning|critical)")
            if "<<:" not in text:
                self.assertIn("summary:", text)
                self.assertIn("description:", text)

    def promtool_check(self, what, text):
        """Of a file beside the rules."""
        with tempfile.TemporaryDirectory() as folder:
            for path in glob.glob(os.path.join(scenario.RULES, "*.yaml")):
                shutil.copy(path, folder)
            path = os.path.join(folder, "checked.yaml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            result = subprocess.run(["promtool", "check", what, path], text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_examples_of_the_fleet_page(self):
        with open("docs/fleet.md", encoding="utf-8") as file:
            blocks = re.findall(r"```(yaml|promql)\n(.*?)```", file.read(), re.DOTALL)
        cluster, at_scrape = [text for kind, text in blocks if kind == "yaml"]
        self.promtool_check("config", cluster)
        self.promtool_check("config", "scrape_configs:\n- job_name: nccl-pulse\n" +
                            textwrap.indent(at_scrape, "  "))
        queries = [query for kind, text in blocks if kind == "promql"
                   for query in re.split(r"^#.*\n", text, flags=re.MULTILINE) if query.strip()]
        self.assertGreater(len(queries), 3)
        self.promtool_check("rules", json.dumps({"groups": [{"name": "examples", "rules": [
            {"record": "example", "expr": query} for query in queries]}]}))

        # What the relabelling lets through.
        keep, drop = re.findall(r"regex: (.+)\n", cluster)
        recorded = set()
        for path in glob.glob(os.path.join(scenario.RULES, "*.yaml")):
            with open(path, encoding="utf-8") as file:
                recorded |= set(re.findall(r"record: (\S+)", file.read()))
        written = {name for name in recorded | {"nccl_operations_total", "ALERTS"}
                   if re.fullmatch(keep, name) and not re.fullmatch(drop, name)}
        self.assertIn("ALERTS", written)
        self.assertEqual({name for name in recorded if not name.startswith("rank:")} - written,
                         {"comm:nccl_operation_duration_seconds_bucket:rate5m"})
        self.assertFalse([name for name in written if name.startswith(("rank:", "nccl_"))])
        # Every other bucket.
        drop = re.search(r"le\], regex: '(.+)'", at_scrape).group(1)
        bounds = [2.0**i for i in range(-20, 11)]
        dropped = [bound for bound in bounds if re.fullmatch(drop, "x_bucket;%r" % bound if bound < 1
                                                             else "x_bucket;%d" % bound)]
        self.assertEqual(dropped, bounds[1::2])

    def test_zz_every_alert_was_seen_firing_and_silent(self):
        """Runs last: the others have noted what they have seen."""
        tests = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
        if len(self.ran) < tests.countTestCases():
            self.skipTest("not all tests ran")
        self.assertEqual(set(alerts()), self.fired)
        self.assertEqual(set(alerts()), self.silent)

    def test_the_test_can_fail(self):
        scrapes = self.scrapes(10)
        Job(scrapes)
        wrong = scenario.firing("NcclCollectiveHung", 9, COMM, [("c0ffee",)])
        test = scenario.simulation(scrapes, [wrong], [])
        self.assertIn("FAILED", scenario.run([test], self.FILES, self.STEP_S))


if __name__ == "__main__":
    unittest.main()
