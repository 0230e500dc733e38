"""Alerts on the exporter itself."""

from tests.deploy.rules_case import COMM, RulesTest
from tests.deploy.scenario import CLOCK, Job, constant


class Durations(RulesTest):
    """Whether Prometheus stores the histograms that an endpoint has."""

    STEP_S = 60
    ALERT = "NcclPulseHistogramsMissing"

    def timed(self, **options):
        scrapes = self.scrapes(30)
        job = Job(scrapes, target_labels={"pod": "p-%d"})
        for rank in job.ranks():
            job.collective(rank, 100, 0.001, **options)
        return scrapes, job

    def drop(self, scrapes, instance, parts=("", "_bucket", "_sum", "_count")):
        """As if these series had not been stored of the endpoint."""
        names = ["nccl_operation_duration_seconds" + part for part in parts]
        for key in [key for key in scrapes.series if key[0] in names and dict(key[1])["instance"] == instance]:
            del scrapes.series[key]

    def test_stored(self):
        scrapes, _ = self.timed(buckets=True)
        self.is_silent(scrapes, 29, self.ALERT)

    def test_one_endpoint_without(self):
        scrapes, _ = self.timed(buckets=True)
        self.drop(scrapes, "node1:9410")
        self.is_silent(scrapes, 9, self.ALERT)
        self.fires(scrapes, self.ALERT, 25, ("instance", "pod", "severity"), [("node1:9410", "p-1", "warning")])

    def test_no_quantile_follows_from_sum_and_count(self):
        scrapes, _ = self.timed(buckets=True)
        self.drop(scrapes, "node1:9410", ("", "_bucket"))
        self.fires(scrapes, self.ALERT, 25, ("instance",), [("node1:9410",)])

    def test_those_of_the_network_are_others(self):
        scrapes, job = self.timed(buckets=True)
        self.drop(scrapes, "node1:9410")
        for rank in job.ranks():
            job.histogram(rank, 1, [0.001] * scrapes.scrapes, True,
                          {"op": "AllReduce", "size": "le_64MiB", "timing": "network"})
        self.fires(scrapes, self.ALERT, 25, ("instance",), [("node1:9410",)])

    def test_nothing_is_timed(self):
        scrapes = self.scrapes(30)
        Job(scrapes)
        self.is_silent(scrapes, 29, self.ALERT)


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
        job.process(1, "nccl_pulse_last_poll_timestamp_seconds", [t - CLOCK for t in scrapes.clock(stopped_at=3)])
        self.fires(scrapes, "NcclPulsePluginStalled", 10, ("instance", "pid"), [("node0:9410", "101")])

    def test_event_mask_changed(self):
        scrapes = self.scrapes(10)
        job = Job(scrapes)
        job.process(1, "nccl_pulse_event_mask_changes_total", scrapes.change(4, None, 1))
        self.is_silent(scrapes, 4, "NcclPulseEventMaskChanged")
        self.fires(scrapes, "NcclPulseEventMaskChanged", 6, ("instance", "pid", "severity"),
                   [("node0:9410", "101", "warning")])
        # An agent shows what a process that ended has seen.
        scrapes = self.scrapes(10)
        job = Job(scrapes)
        job.process(1, "nccl_pulse_event_mask_changes_total", 1)
        job.process(1, "nccl_pulse_process_up", 0)
        self.is_silent(scrapes, 9, "NcclPulseEventMaskChanged")

    def test_poll_of_live_and_of_ended_processes(self):
        scrapes = self.scrapes(15)
        job = Job(scrapes)
        for rank in job.ranks():
            job.process(rank, "nccl_pulse_last_poll_timestamp_seconds",
                        [t - CLOCK for t in scrapes.clock(stopped_at=3 if rank == 1 else None)])
        job.process(1, "nccl_pulse_process_up", scrapes.change(3, 1, 0))
        self.is_silent(scrapes, 14, "NcclPulsePluginStalled")
        # A clock that is ten minutes behind.
        scrapes = self.scrapes(15)
        job = Job(scrapes)
        for rank in job.ranks():
            job.process(rank, "nccl_pulse_last_poll_timestamp_seconds", [t - CLOCK - 600 for t in scrapes.clock()])
        self.is_silent(scrapes, 14, "NcclPulsePluginStalled")

    def test_ranks_not_scraped(self):
        scrapes = self.scrapes(30)
        Job(scrapes, missing=(3,))
        Job(scrapes, comm="whole", node="other", start_rank=10)
        self.fires(scrapes, "NcclPulseRanksNotScraped", 25, COMM, [("c0ffee",)])
        self.is_silent(scrapes, 10, "NcclPulseRanksNotScraped")

    LOST = ("NcclPulseMeasurementsLost", ("pod", "lost"))

    def losing(self, **per_second):
        scrapes = self.scrapes(40)
        job = Job(scrapes, target_labels={"pod": "p-%d"})
        for rank in job.ranks():
            job.collective(rank, 100, 0.001)
            job.process(rank, "nccl_pulse_callbacks_total", 0, callback="api")
        process = job.labels[2, "process"]
        scrapes.count("nccl_pulse_callbacks_total", 1000, callback="operation", **process)
        for reason in ("stale_handle", "unfollowed_step"):
            scrapes.count("nccl_pulse_ignored_events_total", per_second.get(reason, 0), reason=reason, **process)
        job.count(2, "nccl_operations_without_duration_total", per_second.get("lost", 0), op="AllReduce", reason="lost")
        job.count(2, "nccl_operations_without_duration_total", 90, op="AllReduce", reason="not_sampled")
        job.count(2, "nccl_operations_without_completion_total", per_second.get("uncompleted", 0), op="AllReduce")
        return scrapes

    def test_measurements_lost(self):
        node = "p-1"  # two ranks, 200 operations a second
        self.fires(self.losing(lost=5), *self.LOST[:1], 35, self.LOST[1], [(node, "durations")])
        self.fires(self.losing(stale_handle=20), *self.LOST[:1], 35, self.LOST[1], [(node, "events")])
        self.fires(self.losing(uncompleted=5), *self.LOST[:1], 35, self.LOST[1], [(node, "completions")])

    def test_few_lost_or_others_steps(self):
        self.is_silent(self.losing(lost=0.5, stale_handle=2, uncompleted=1), 35, self.LOST[0])
        self.is_silent(self.losing(unfollowed_step=500), 35, self.LOST[0])

    def server(self, name, values_, **labels):
        scrapes = self.scrapes(30)
        scrapes.set(name, values_ if isinstance(values_, list) else constant(values_, scrapes.scrapes),
                    job="nccl-pulse", instance="node0:9410", **labels)
        return scrapes

    def test_processes_rejected(self):
        name = "nccl_pulse_processes_rejected_total"
        change = self.scrapes(30).change(10, 0, 3)
        scrapes = self.server(name, change, reason="no_room")
        self.fires(scrapes, "NcclPulseProcessesRejected", 15, ("instance", "reason"), [("node0:9410", "no_room")])
        # The first of its reason: there was no series before.
        self.fires(self.server(name, self.scrapes(30).change(10, None, 1), reason="no_room"),
                   "NcclPulseProcessesRejected", 15, ("instance", "reason"),
                   [("node0:9410", "no_room")])
        # Again after another process serves: it starts anew.
        self.is_silent(self.server(name, self.scrapes(30).change(10, 3, 0), reason="no_room"), 15,
                       "NcclPulseProcessesRejected")
        self.is_silent(scrapes, 29, "NcclPulseProcessesRejected")

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
        # The counter comes with its first operations, and they may be all.
        self.fires(self.server(name, self.scrapes(30).change(10, None, 3), **labels),
                   "NcclPulseSeriesOverflow", 20, ("instance",), [("node0:9410",)])
        # It has stopped long ago.
        self.is_silent(self.server(name, 500, **labels), 20, "NcclPulseSeriesOverflow")

    def test_communicators_full(self):
        for used, expected in ((64, [("100",)]), (63, [])):
            scrapes = self.server("nccl_pulse_communicators_used", used, pid="100")
            scrapes.set("nccl_pulse_communicators_limit", 64, job="nccl-pulse", instance="node0:9410", pid="100")
            self.fires(scrapes, "NcclPulseCommunicatorsFull", 15, ("pid",), expected)
