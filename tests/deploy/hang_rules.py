"""Hung communicators and missing ranks."""

from tests.deploy.rules_case import RUNBOOK, RulesTest
from tests.deploy.scenario import CLOCK, Job


HANGS = ("NcclJobHung", "NcclJobHungLong", "NcclRankMissing", "NcclHangCertain")
JOB = ("workload",)
LONG = ("NcclJobHungLong", "NcclHangSuspectedLong")


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
        by = ("Hostname", "global_rank", "workload", "severity")
        self.is_silent(scrapes, 5, *HANGS)
        self.fires(scrapes, "NcclJobHung", 6.5, by, [("node1", "2", "7", "warning")])
        self.fires(scrapes, "NcclJobHungLong", 10.5, by, [("node1", "2", "7", "critical")])
        self.is_silent(scrapes, 11, "NcclRankMissing")
        self.is_silent(scrapes, 8, "NcclJobHungLong")

    def test_several_gpus_in_one_process(self):
        """Two processes of two ranks each; rank 2 does not come, its neighbour in the process waits."""
        scrapes, _ = self.hung(places=[(0, 0, 0), (0, 1, 0), (1, 0, 1), (1, 1, 1)])
        by = ("Hostname", "gpu", "global_rank", "severity")
        self.fires(scrapes, "NcclJobHung", 7, by, [("node1", "0", "1", "warning")])
        # Both ranks of a process are gone.
        scrapes, _ = self.hung(places=[(0, 0, 0), (0, 1, 0), (1, 0, 1), (1, 1, 1)])
        scrapes.end(4, instance="node1:9410")
        self.fires(scrapes, "NcclRankMissing", 7, ("Hostname", "global_rank"), [("node1", "1")])

    def suspected(self, usual_until=None, op="AllReduce", verdict="rank_not_called", nodes=(0, 1)):
        """As hung(); the ranks have waited for 10 minutes before. The endpoints say for what they wait, and
        for how long that is usual."""
        scrapes, job = self.hung(minutes=25)
        for rank in (0, 1, 3):
            job.set(rank, "nccl_longest_wait_seconds", 600, op="AllReduce")
        for node in nodes:
            of_node = dict(job="nccl-pulse", instance="node%d:9410" % node, comm="c0ffee")
            scrapes.set("nccl_hang_start_timestamp_seconds", scrapes.change(5, None, CLOCK),
                        op=op, verdict=verdict, suspect_rank="2", **of_node)
            if usual_until is not None:
                usual = scrapes.change(5, None, 1)
                usual[scrapes.at(usual_until):] = [None] * (len(usual) - scrapes.at(usual_until))
                scrapes.set("nccl_hang_usual", usual, **of_node)
        return scrapes

    def test_a_usual_wait_is_no_critical_one(self):
        # Of two operations that a rank owes, none is named.
        for op in ("AllReduce", ""):
            scrapes = self.suspected(usual_until=19, op=op)
            self.fires(scrapes, "NcclJobHung", 12, ("workload", "severity"),
                       [("7", "warning")])
            self.is_silent(scrapes, 12, *LONG)
            self.is_silent(scrapes, 18.5, *LONG)
            self.fires(scrapes, "NcclJobHungLong", 21, ("workload", "severity"),
                       [("7", "critical")])

    def test_annotations_say_how_long_it_has_waited_before(self):
        self.annotates(
            self.suspected(19), "NcclJobHung", 7,
            dict(severity="warning", job="nccl-pulse", job_id="7", workload="7", instance="node1:9410",
                 Hostname="node1", gpu="0", pid="102", global_rank="2", UUID="GPU-node1-0",
                 pci_bus_id="00000000:02:00.0"),
            dict(summary="Rank 2 on node1 gpu 0 holds up job 7",
                 description="Since 2023-11-14 22:17:19 +0000 UTC, for 3m 0s. 3 processes wait. The one named waits for "
                 "nobody. First: py-spy dump --pid 102 on node1, and nvidia-smi there. Its node's endpoint "
                 "says: rank_not_called. Ranks have waited up to 10m 0s in AllReduce here before, and gone "
                 "on.",
                 runbook_url=RUNBOOK + "#nccljobhung"))

    def test_what_the_endpoint_does_not_call_usual_pages(self):
        for scrapes in (self.suspected(nodes=()),                     # an exporter that says nothing
                        self.suspected(usual_until=19, nodes=(0,))):  # another node's ranks wait, too
            self.fires(scrapes, "NcclJobHungLong", 11, JOB, [("7",)])
            self.is_silent(scrapes, 11, "NcclHangCertain")
        for verdict in ("driver_error", "circular_wait", "mismatched_operations"):
            scrapes = self.suspected(verdict=verdict)
            self.fires(scrapes, "NcclHangCertain", 6, ("workload", "severity", "verdict"),
                       [("7", "critical", verdict)])
            self.is_silent(scrapes, 11, "NcclJobHungLong", "NcclRankMissing")

    def test_annotations_of_what_is_certain(self):
        self.annotates(
            self.suspected(verdict="mismatched_operations"), "NcclHangCertain", 7,
            dict(severity="critical", verdict="mismatched_operations", job="nccl-pulse", job_id="7", workload="7", instance="node1:9410",
                 Hostname="node1", gpu="0", pid="102", global_rank="2", UUID="GPU-node1-0",
                 pci_bus_id="00000000:02:00.0"),
            dict(summary="Rank 2 on node1 gpu 0 holds up job 7 and will not go on: ranks have called different operations",
                 description="Since 2023-11-14 22:13:20 +0000 UTC. First: py-spy dump --pid 102 on node1, and of a rank "
                 "that waits: they are at different places of the program. pulse status there has the whole sentence "
                 "(mismatched_operations).",
                 runbook_url=RUNBOOK + "#ncclhangcertain"))

    def mismatched(self, ranks):
        """Ranks 0 and 1 share a node, whose endpoint names both; rank 1 has called AllGather instead of an AllReduce."""
        scrapes = self.scrapes(12)
        job = Job(scrapes, ranks=ranks)
        last = scrapes.at(4)
        for rank in job.ranks():
            job.launches(rank, until=4)
            calls = [10 * min(i, last) + (i >= last and rank != 1) for i in range(scrapes.scrapes)]
            job.set(rank, "nccl_operations_total", calls, op="AllReduce", size="le_64MiB", datatype="ncclFloat32",
                    captured="false")
        job.set(1, "nccl_operations_total", scrapes.change(4, None, 1), op="AllGather", size="le_64MiB",
                datatype="ncclFloat32", captured="false")
        for rank, since in (("0", CLOCK), ("1", CLOCK + 0.1)):
            scrapes.set("nccl_hang_start_timestamp_seconds", scrapes.change(5, None, since), op="AllGather,AllReduce",
                        verdict="mismatched_operations", suspect_rank=rank, job="nccl-pulse",
                        instance="node0:9410", comm="c0ffee")
        return scrapes

    def test_of_two_that_called_different_things_the_one_unlike_other_nodes(self):
        for alert in ("NcclHangCertain", "NcclJobHung"):
            self.fires(self.mismatched(6), alert, 7, ("Hostname", "global_rank"), [("node0", "1")])
        # Nobody else is there to compare with.
        self.annotates(
            self.mismatched(2), "NcclHangCertain", 7,
            dict(severity="critical", verdict="mismatched_operations", job="nccl-pulse", job_id="7", workload="7",
                 instance="node0:9410", Hostname="node0", gpu="0", pid="100", global_rank="0", UUID="GPU-node0-0",
                 pci_bus_id="00000000:00:00.0"),
            dict(summary="Rank 0 on node0 gpu 0 holds up job 7 and will not go on: ranks have called different operations",
                 description="Since 2023-11-14 22:13:20 +0000 UTC. First: py-spy dump --pid 100 on node0, and of a rank "
                 "that waits: they are at different places of the program. Any of 2 ranks may be the one that is wrong. "
                 "pulse status there has the whole sentence (mismatched_operations).",
                 runbook_url=RUNBOOK + "#ncclhangcertain"))

    def pipeline(self, *idle):
        """A communicator with Send and Recv; from minute 4 on these ranks have nothing in flight, the others wait."""
        scrapes = self.scrapes(12)
        job = Job(scrapes)
        for rank in job.ranks():
            job.launches(rank, until=4)
            for op in ("Send", "Recv"):
                job.set(rank, "nccl_operations_total", 100, op=op, size="le_64MiB", datatype="ncclFloat32",
                        captured="false")
        for rank in idle:
            job.idle(rank, since=4)
        return scrapes

    def test_of_a_pipeline_one_that_does_not_wait_is_named(self):
        self.fires(self.pipeline(2), "NcclJobHung", 7, ("Hostname", "global_rank"), [("node1", "2")])
        # It is not known for which of two others wait.
        self.annotates(
            self.pipeline(2, 3), "NcclJobHung", 7,
            dict(severity="warning", job="nccl-pulse", job_id="7", workload="7"),
            dict(summary="It is not known who holds up job 7",
                 description="Since 2023-11-14 22:17:19 +0000 UTC, for 3m 0s. 2 processes wait. 2 ranks have nothing in "
                 "flight in communicators with Send and Recv, in which it is not known who waits for whom: "
                 "2 (node1 gpu 0 pid 102), 3 (node1 gpu 1 pid 103). First py-spy dump on these; pulse diagnose knows "
                 "more.",
                 runbook_url=RUNBOOK + "#nccljobhung"))

    def test_ranks_behind_earlier_work_of_their_gpus(self):
        scrapes, job = self.hung()
        for rank in (0, 1, 3):
            job.set(rank, "nccl_activity_queued", scrapes.change(4.5, None, 1))
        self.is_silent(scrapes, 11, *HANGS)
        # One GPU has begun it.
        scrapes, job = self.hung()
        for rank in (0, 1):
            job.set(rank, "nccl_activity_queued", scrapes.change(4.5, None, 1))
        self.fires(scrapes, "NcclJobHung", 7, JOB, [("7",)])
        self.fires(scrapes, "NcclJobHungLong", 11, JOB, [("7",)])

    def unreported(self, usual=False, **options):
        """Nothing is known to be in flight; ranks 0 and 1 have called what rank 2 has not."""
        scrapes = self.scrapes(15)
        job = Job(scrapes, **options)
        for rank in job.ranks():
            job.idle(rank, since=3)
        of_node = dict(job="nccl-pulse", instance="node0:9410", comm="c0ffee")
        scrapes.set("nccl_hang_start_timestamp_seconds", scrapes.change(4, None, CLOCK),
                    op="Broadcast", verdict="rank_not_called", suspect_rank="2", **of_node)
        if usual:
            scrapes.set("nccl_hang_usual", scrapes.change(4, None, 1), **of_node)
        return scrapes

    def test_a_hang_of_calls_that_are_not_reported_becomes_critical(self):
        scrapes = self.unreported()
        self.is_silent(scrapes, 7.5, *LONG)
        self.fires(scrapes, "NcclHangSuspectedLong", 10, ("comm", "severity"),
                   [("c0ffee", "critical")])
        self.annotates(
            scrapes, "NcclHangSuspectedLong", 10,
            dict(severity="critical", job="nccl-pulse", job_id="7", workload="7", comm="c0ffee", rank="2",
                 op="Broadcast", verdict="rank_not_called", instance="node1:9410", Hostname="node1", gpu="0",
                 pid="102", global_rank="2", UUID="GPU-node1-0", pci_bus_id="00000000:02:00.0"),
            dict(summary="Job 7 probably hangs in Broadcast: rank 2 on node1 gpu 0 is suspected",
                 description="Since 2023-11-14 22:13:20 +0000 UTC. First: py-spy dump --pid 102 on node1. The endpoint "
                 "says rank_not_called of communicator c0ffee. It is not known to have a launch in flight, so this is "
                 "less certain than other hangs.",
                 runbook_url=RUNBOOK + "#ncclhangsuspectedlong"))
        for silent in (self.unreported(usual=True), self.unreported(hang_alert="off")):
            self.is_silent(silent, 14, *LONG)

    def test_one_page_for_one_hang(self):
        scrapes = self.suspected()
        self.fires(scrapes, "NcclJobHungLong", 12, JOB, [("7",)])
        self.is_silent(scrapes, 12, "NcclHangSuspectedLong")

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
        self.fires(scrapes, "NcclJobHung", 7, JOB, [("7",)])

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
            job.set(rank, "nccl_communicator_finalized", scrapes.change(4.5, None, 1))
        self.is_silent(scrapes, 11, *HANGS)
        # An agent shows the last state of processes that were killed.
        scrapes, job = self.hung()
        for rank in job.ranks():
            job.process(rank, "nccl_pulse_process_up", scrapes.change(4.5, 1, 0))
        self.is_silent(scrapes, 11, *HANGS)

    def test_stopped_poller_is_no_hang(self):
        for stopped_at in (4, 6):
            scrapes, job = self.hung()
            for rank in job.ranks():
                job.process(rank, "nccl_pulse_last_poll_timestamp_seconds",
                            scrapes.clock(stopped_at=stopped_at))
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
        self.is_silent(scrapes, 4.5, "NcclRankMissing")
        self.fires(scrapes, "NcclRankMissing", 6.5, ("workload", "Hostname", "global_rank"), [("7", "node1", "2")])
        self.fires(scrapes, "NcclRankMissing", 11, ("workload", "Hostname", "global_rank"), [("7", "node1", "2")])
        self.is_silent(scrapes, 11, "NcclJobHungLong")

    def test_annotations_name_those_that_are_gone_and_those_that_never_came(self):
        scrapes = self.scrapes(12)
        job = Job(scrapes, ranks=16, missing=(0, 7, 8))
        for rank in job.ranks():
            job.launches(rank, until=4)
        for rank in (2, 9, 14, 15):
            scrapes.end(3.5 if rank == 9 else 4, pid=str(100 + rank))
            scrapes.end(4, comm="c0ffee", rank=str(rank))
        self.annotates(
            scrapes, "NcclRankMissing", 9,
            dict(severity="critical", job="nccl-pulse", job_id="7", workload="7", instance="node4:9410",
                 Hostname="node4", gpu="1", pid="109", global_rank="9", UUID="GPU-node4-1",
                 pci_bus_id="00000000:09:00.0"),
            dict(summary="Rank 9 on node4 gpu 1 is gone, and the other ranks of job 7 wait for it",
                 description="Missing since 1970-01-01 00:03:30 +0000 UTC. First: does node4 answer, and what does its "
                 "kernel log say? The process was killed or has crashed, or its node is gone. The others will not go "
                 "on: end the job. 4 processes are gone. The first are 2 "
                 "(node1 gpu 0 pid 102), 9 (node4 gpu 1 pid 109), 14 (node7 gpu 0 pid 114), 15 (node7 gpu 1 "
                 "pid 115). Of the 16 ranks of communicator c0ffee these are missing: 0, 2, 7 to 9, 14 to 15.",
                 runbook_url=RUNBOOK + "#ncclrankmissing"))

    def test_killed_rank_that_an_agent_shows(self):
        scrapes = self.scrapes(12)
        job = Job(scrapes)
        for rank in (0, 1, 3):
            job.launches(rank, until=4)
        job.process(2, "nccl_pulse_process_up", scrapes.change(4, 1, 0))
        self.fires(scrapes, "NcclRankMissing", 9, JOB, [("7",)])

    def test_lost_node(self):
        scrapes = self.scrapes(12)
        job = Job(scrapes)
        for rank in (0, 1):
            job.launches(rank, until=4)
        scrapes.end(4, instance="node1:9410")
        scrapes.set("up", scrapes.change(4, 1, 0), job="nccl-pulse", instance="node1:9410")
        self.fires(scrapes, "NcclRankMissing", 9, JOB, [("7",)])

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
        self.fires(scrapes, "NcclJobHung", 11, JOB, [("7",)])

    def test_failed_scrapes_while_the_job_runs(self):
        scrapes = self.scrapes(20)
        Job(scrapes)
        scrapes.end(8, instance="node1:9410")
        scrapes.set("up", scrapes.change(8, 1, 0), job="nccl-pulse", instance="node1:9410")
        self.is_silent(scrapes, 19, "NcclRankMissing")


class LateRules(RulesTest):
    """Groups are evaluated in the wrong order: each sees what the others made of the scrape before."""

    FILES = ("diagnosis", "hang", "recording", "alerts", "dcgm")

    def test_what_is_certain_is_never_suspected_too(self):
        for verdict in ("driver_error", "mismatched_operations", "circular_wait"):
            scrapes = self.scrapes(12)
            job = Job(scrapes)
            for rank in job.ranks():
                job.idle(rank, since=3)
            scrapes.set("nccl_hang_start_timestamp_seconds", scrapes.change(4, None, CLOCK), job="nccl-pulse",
                        instance="node0:9410", comm="c0ffee", op="AllReduce", verdict=verdict, suspect_rank="2")
            self.fires(scrapes, "NcclHangCertain", 11, JOB, [("7",)])
            # Not once: without its `for` the alert would have fired.
            self.gives(scrapes, "count_over_time(job:nccl_hang_suspected:timestamp_seconds[12m])", 11.5, {})
            self.is_silent(scrapes, 11, "NcclHangSuspected", *LONG)
