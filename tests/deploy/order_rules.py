"""All ranks of a job wait, because one has called something else than the others, or in another order. Each rank is on a
node of its own, so no endpoint can compare two."""

from tests.deploy import scenario
from tests.deploy.rules_case import RUNBOOK, RulesTest
from tests.deploy.scenario import Job

START = 4  # minute from which on nothing goes on
BY = ("alertname", "Hostname", "global_rank")
SMALL, LARGE, AHEAD = "le_4KiB", "le_16MiB", "le_64MiB"


class CalledOtherwise(RulesTest):

    STEP_S = 15
    FILES = ("recording", "hang", "alerts", "diagnosis")

    def job(self, scrapes, ranks, comm="c0ffee"):
        return Job(scrapes, comm=comm, places=[(rank, 0, rank) for rank in range(ranks)])

    def calls(self, job, rank, before, **after):
        """So many of each size a minute, and from START on so many more, at once."""
        scrapes = job.scrapes
        for size in {*before, *after}:
            each = before.get(size, 0)
            counts = [each * min(i * self.STEP_S / 60, START) + (i >= scrapes.at(START)) * after.get(size, 0)
                      for i in range(scrapes.scrapes)]
            seen = [count or None for count in counts]  # a kind is absent until it is called
            job.set(rank, "nccl_operations_total", seen, op="AllReduce", size=size, datatype="ncclFloat32", captured="false")

    def waiting(self, ranks, minutes=10, comm="c0ffee"):
        scrapes = self.scrapes(minutes)
        job = self.job(scrapes, ranks, comm)
        for rank in job.ranks():
            job.launches(rank, until=START)
        return scrapes, job

    def sizes(self, ranks, wrong, before=None, **after):
        """At START all call LARGE, and `wrong` SMALL."""
        scrapes, job = self.waiting(ranks)
        for rank in job.ranks():
            self.calls(job, rank, {LARGE: 60} if before is None else before, **{**{SMALL if rank == wrong else LARGE: 1}, **after})
        return scrapes, job

    def named(self, scrapes, *ranks, minutes=START + 5):
        """Both alerts name the first of these; these alone hold up the job."""
        host = [("node%d" % ranks[0], str(ranks[0]))] if ranks else [("", "")]
        self.of(scrapes)[0].append(scenario.firing(
            ".+", minutes, BY, [(alert, *each) for alert in ("NcclJobHung", "NcclJobHungLong") for each in host]))
        self.of(scrapes)[0].append(scenario.samples(
            "group by (global_rank) (process:nccl_hang_root:rank)", minutes,
            {'{global_rank="%d"}' % rank: 1 for rank in ranks}))

    def blames_rank_2(self, scrapes, alert, severity, why):
        """In its annotations, of four processes that wait."""
        self.annotates(
            scrapes, alert, START + 5,
            dict(severity=severity, job="nccl-pulse", job_id="7", workload="7", instance="node2:9410", Hostname="node2",
                 gpu="0", pid="102", global_rank="2", UUID="GPU-node2-0", pci_bus_id="00000000:02:00.0"),
            dict(summary="Rank 2 on node2 gpu 0 holds up job 7",
                 description="Since 2023-11-14 22:17:19 +0000 UTC, for 5m 0s. 4 processes wait. " + why +
                 " First: py-spy dump --pid 102 on node2, and nvidia-smi there.",
                 runbook_url=RUNBOOK + "#" + alert.lower()))

    def test_one_size_of_four(self):
        for before in ({}, {LARGE: 60}, {LARGE: 60, SMALL: 60}):
            scrapes, _ = self.sizes(4, 2, before)
            self.named(scrapes, 2)
        self.blames_rank_2(
            scrapes, "NcclJobHungLong", "critical",
            "All wait, but have not called the same: more of one operation or size and less of another than others in "
            "communicator c0ffee. pulse diagnose has the calls.")

    def test_of_two_either_may_be_wrong(self):
        for before in ({LARGE: 60}, {LARGE: 60, SMALL: 60}):
            self.named(self.sizes(2, 1, before)[0], 0, 1)

    def test_one_that_lacks_what_most_call_for_the_first_time(self):
        """The others are the first to call SMALL, and it calls LARGE again."""
        scrapes, job = self.waiting(4)
        for rank in job.ranks():
            self.calls(job, rank, {LARGE: 60}, **{LARGE if rank == 1 else SMALL: 1})
        self.named(scrapes, 1)

    def test_who_is_ahead_or_behind_in_the_same_order_is_not(self):
        """LARGE and SMALL in one order, then AHEAD; the hosts have come to different places."""
        scrapes, job = self.waiting(6)
        done = [{LARGE: 1}, {LARGE: 5}, {LARGE: 6, SMALL: 1}, {LARGE: 7, SMALL: 2}, {LARGE: 8, SMALL: 4},
                {LARGE: 8, SMALL: 6, AHEAD: 1}]
        for rank, after in enumerate(done):
            self.calls(job, rank, {LARGE: 60}, **after)
        self.named(scrapes)
        self.gives(scrapes, "rank:nccl_hang_apart:timestamp_seconds", START + 5, {})

    def test_not_where_calls_may_be_missing(self):
        for of, name, labels in (
                (Job.set, "nccl_communicator_captured", {}),
                (Job.process, "nccl_pulse_event_mask_changes_total", {}),
                (Job.set, "nccl_operations_total", {"op": "other", "size": "overflow", "captured": "false"})):
            scrapes, job = self.sizes(4, 2)
            of(job, 0, name, scrapes.change(START - 1, None, 1), **labels)
            self.gives(scrapes, "rank:nccl_hang_apart:timestamp_seconds", START + 5, {})
            self.gives(scrapes, "group by (global_rank) (process:nccl_hang_root:rank)", START + 5, {})

    def test_who_has_not_called_comes_first(self):
        """Rank 3 has nothing in flight: it is named, and the calls are not compared."""
        scrapes, job = self.sizes(4, 2)
        job.idle(3, since=START)
        self.named(scrapes, 3)
        self.gives(scrapes, "rank:nccl_hang_apart:timestamp_seconds", START + 5, {})

    def crossed(self, ranks, wrong):
        """All call in `one` and then in `two`; the wrong one first in `two`."""
        scrapes = self.scrapes(10)
        one, two = self.job(scrapes, ranks, "one"), self.job(scrapes, ranks, "two")
        for rank in range(ranks):
            waits, idle = (two, one) if rank == wrong else (one, two)
            idle.idle(rank, since=START)
            waits.launches(rank, until=START)
            labels = tuple(sorted(waits.labels[rank].items()))
            launched = scrapes.series["nccl_launches_total", labels]
            waits.set(rank, "nccl_launches_total",
                      [each + (i >= scrapes.at(START)) for i, each in enumerate(launched)])
        return scrapes, one, two

    def test_circle_of_two_orders(self):
        scrapes, _, _ = self.crossed(4, 2)
        self.named(scrapes, 2)
        self.blames_rank_2(
            scrapes, "NcclJobHung", "warning",
            "All wait: the one named in another communicator than those that wait for it in one; ranks use the two in "
            "different orders. pulse diagnose has the circle.")
        self.named(self.crossed(2, 1)[0], 0, 1)

    def test_no_circle_where_launches_are_not_owed(self):
        """It has launched as much as those that wait there, and left first, as a Broadcast's root does."""
        scrapes, one, _ = self.crossed(4, 2)
        labels = tuple(sorted(one.labels[0].items()))
        one.set(2, "nccl_launches_total", list(scrapes.series["nccl_launches_total", labels]))
        self.named(scrapes)

    def test_no_circle_with_send_and_recv(self):
        """Ranks need not launch alike there."""
        scrapes, one, two = self.crossed(4, 2)
        for job in (one, two):
            job.set(0, "nccl_operations_total", 1, op="Send", size=SMALL, datatype="ncclFloat32", captured="false")
        self.gives(scrapes, "rank:nccl_hang_circle:timestamp_seconds", START + 5, {})
