"""One hang of a job of 10 nodes with 4 GPUs each: one page, and it names who is to blame."""

from tests.deploy import scenario
from tests.deploy.rules_case import NEWEST, RUNBOOK, RulesTest
from tests.deploy.scenario import CLOCK, Job

NODES, GPUS = 10, 4
TARGET = {"namespace": "ml", "pod": "train-%d", "node": "worker-%d", "team": "llm"}
START = 4  # minute from which on nothing goes on
BY = ("alertname", "severity", "global_rank", "Hostname")


class Layout:
    """Tensor parallel in the node (tp0 ... tp9), data parallel across (dp0 ... dp3): 40 processes. Each waits
    in one communicator, from START on."""

    def __init__(self, scrapes, missing_nodes=()):
        self.scrapes = scrapes
        self.jobs = {}
        for gpu in range(GPUS):
            self.jobs["dp%d" % gpu] = Job(
                scrapes, comm="dp%d" % gpu, index=1, target_labels=TARGET, missing=missing_nodes,
                places=[(node, gpu, node * GPUS + gpu) for node in range(NODES)])
        for node in range(NODES):
            if node not in missing_nodes:
                self.jobs["tp%d" % node] = Job(
                    scrapes, comm="tp%d" % node, target_labels=TARGET,
                    places=[(node, gpu, node * GPUS + gpu) for gpu in range(GPUS)])
        self.nodes = [node for node in range(NODES) if node not in missing_nodes]

    def wait(self, where, since=START):
        """where: {(node, gpu): communicator}, or None for one that waits nowhere; the others wait in that of
        the data."""
        for node in self.nodes:
            for gpu in range(GPUS):
                place = where.get((node, gpu), "dp%d" % gpu)
                for comm, rank in (("dp%d" % gpu, node), ("tp%d" % node, gpu)):
                    if comm == place:
                        self.jobs[comm].launches(rank, until=since)
                    else:
                        self.jobs[comm].idle(rank, since=since)

    def hang(self, culprits):
        """These wait nowhere. Who shares a node with one waits for it there; endpoints say what they see."""
        where = {culprit: None for culprit in culprits}
        for node, _ in culprits:
            for gpu in range(GPUS):
                where.setdefault((node, gpu), "tp%d" % node)
        self.wait(where)
        self.victims({node for node, _ in culprits})

    def stand(self, node, gpu, since=START):
        """Its background thread does: what it has in flight is not known."""
        scrapes = self.scrapes
        for comm, rank in (("dp%d" % gpu, node), ("tp%d" % node, gpu)):
            job = self.jobs[comm]
            job.set(rank, "nccl_activity_unknown", scrapes.change(since, None, 1), reason="poller_stands")
            values = scrapes.series["nccl_oldest_inflight_launch_timestamp_seconds",
                                    tuple(sorted(job.labels[rank].items()))]
            values[scrapes.at(since):] = [None] * (scrapes.scrapes - scrapes.at(since))
            job.process(rank, "nccl_pulse_last_poll_timestamp_seconds", scrapes.clock(stopped_at=since))

    def victims(self, but=()):
        """The endpoints of the other nodes accuse nobody of theirs, or one that waits itself."""
        for node in self.nodes:
            if node not in but:
                self.verdict(node, "dp0", "no_progress")
                self.verdict(node, "dp1", "blocked_elsewhere", str((node + 1) % NODES))

    def verdict(self, node, comm, verdict, suspect="", op="AllReduce", since=START + 0.25):
        self.scrapes.set("nccl_hang_start_timestamp_seconds",
                         self.scrapes.change(since, None, CLOCK + since * 60), job="nccl-pulse",
                         instance="node%d:9410" % node, comm=comm, verdict=verdict, suspect_rank=suspect,
                         op=op, **{name: text % node if "%" in text else text
                                   for name, text in TARGET.items()})


class ManyNodes(RulesTest):

    STEP_S = 15
    FILES = ("recording", "hang", "alerts", "diagnosis")
    PROMTOOL = NEWEST

    def layout(self, minutes=11, **options):
        scrapes = self.scrapes(minutes)
        return scrapes, Layout(scrapes, **options)

    def only(self, scrapes, minutes, *expected):
        """All alerts that fire."""
        self.of(scrapes)[0].append(scenario.firing(".+", minutes, BY, list(expected)))

    def one_page(self, scrapes, rank, host):
        """A warning soon, a page five minutes before the job would be ended, nothing else."""
        self.only(scrapes, START + 1)
        self.only(scrapes, START + 2, ("NcclJobHung", "warning", rank, host))
        self.only(scrapes, START + 4, ("NcclJobHung", "warning", rank, host))
        for minutes in (START + 5, START + 6.5):
            self.only(scrapes, minutes, ("NcclJobHung", "warning", rank, host),
                      ("NcclJobHungLong", "critical", rank, host))

    def test_one_host_stands(self):
        self.promtool = "promtool"  # this system's, once
        scrapes, layout = self.layout()
        layout.hang([(5, 2)])
        layout.verdict(5, "tp5", "rank_not_called", "2")
        self.one_page(scrapes, "22", "node5")
        self.gives(scrapes, "count(rank:nccl_hang_root:timestamp_seconds)", START + 3, {"{}": 2})
        self.annotates(
            scrapes, "NcclJobHungLong", START + 5,
            dict(TARGET, severity="critical", job="nccl-pulse", job_id="7", workload="7", pod="train-5",
                 node="worker-5", instance="node5:9410", Hostname="node5", gpu="2", pid="122",
                 global_rank="22", UUID="GPU-node5-2", pci_bus_id="00000000:16:00.0"),
            dict(summary="Rank 22 on node5 gpu 2 holds up job 7",
                 description="Since 2023-11-14 22:17:19 +0000 UTC, for 5m 0s. 39 processes wait. The one named waits for "
                 "nobody. First: py-spy dump --pid 122 on node5, and nvidia-smi there. Its node's endpoint "
                 "says: rank_not_called.",
                 runbook_url=RUNBOOK + "#nccljobhunglong"))

    def long_running(self, scrapes, layout):
        """The processes have run for an hour."""
        for job in layout.jobs.values():
            for rank in job.ranks():
                job.process(rank, "nccl_pulse_start_timestamp_seconds", CLOCK - 3600)

    def test_soon_where_it_is_unusual(self):
        """A rank is known to wait for nobody, and no wait of that length was ever seen: within two scrapes of 15 s."""
        scrapes, layout = self.layout()
        layout.hang([(5, 2)])
        self.long_running(scrapes, layout)
        self.only(scrapes, START)
        for minutes in (START + 0.5, START + 1, START + 2):
            self.only(scrapes, minutes, ("NcclJobHung", "warning", "22", "node5"))
        # Ranks have waited as long before.
        scrapes, layout = self.layout()
        layout.hang([(5, 2)])
        self.long_running(scrapes, layout)
        for comm in layout.jobs.values():
            for node in range(NODES):
                scrapes.set("nccl_hang_usual", scrapes.change(START, None, 1), job="nccl-pulse",
                            instance="node%d:9410" % node, comm=comm.comm)
        self.only(scrapes, START + 1)
        self.only(scrapes, START + 2, ("NcclJobHung", "warning", "22", "node5"))

    def test_who_has_just_launched_is_not_to_blame(self):
        """What was scraped of it is older than the wait of the others: it had nothing in flight, by then."""
        scrapes, layout = self.layout()
        layout.hang([(5, 2), (9, 1)])
        self.long_running(scrapes, layout)
        for rank_of_node, comm in ((9, "dp1"), (1, "tp9")):
            job = layout.jobs[comm]
            poll = scrapes.series["nccl_pulse_last_poll_timestamp_seconds",
                                  tuple(sorted(job.labels[rank_of_node, "process"].items()))]
            job.set(rank_of_node, "nccl_last_launch_timestamp_seconds", [at - 2 for at in poll])
        self.gives(scrapes, "sum(process:nccl_hang_root:rank)", START + 1, {"{}": 22})

    def test_a_whole_node_stands(self):
        scrapes, layout = self.layout()
        layout.hang([(5, gpu) for gpu in range(GPUS)])
        self.one_page(scrapes, "20", "node5")

    def test_a_list_of_names_is_short(self):
        """Most of the job stands."""
        scrapes, layout = self.layout()
        layout.hang([(node, gpu) for node in range(8) for gpu in range(GPUS)])
        self.gives(scrapes, "count(process:nccl_hang_root:rank)", START + 5, {"{}": 32})
        self.annotates(
            scrapes, "NcclJobHungLong", START + 5,
            dict(TARGET, severity="critical", job="nccl-pulse", job_id="7", workload="7", pod="train-0",
                 node="worker-0", instance="node0:9410", Hostname="node0", gpu="0", pid="100",
                 global_rank="0", UUID="GPU-node0-0", pci_bus_id="00000000:00:00.0"),
            dict(summary="Rank 0 on node0 gpu 0 holds up job 7",
                 description="Since 2023-11-14 22:17:19 +0000 UTC, for 5m 0s. 8 processes wait. The one named waits for "
                 "nobody. First: py-spy dump --pid 100 on node0, and nvidia-smi there. 32 processes hold up "
                 "others. The first are " + ", ".join(
                     "%d (node%d gpu %d pid %d)" % (rank, rank // GPUS, rank % GPUS, 100 + rank)
                     for rank in range(10)) + ".",
                 runbook_url=RUNBOOK + "#nccljobhunglong"))

    def test_one_that_went_on_for_longer_is_not_to_blame(self):
        """It has had its work in flight for long, but has seen launches end within the minute."""
        scrapes, layout = self.layout()
        layout.hang([(5, 2)])
        layout.jobs["dp3"].launches(2, until=START + 0.75)
        self.one_page(scrapes, "22", "node5")
        for minutes in (START + 1.25, START + 1.5, START + 3):
            self.gives(scrapes, "sum(process:nccl_hang_root:rank)", minutes, {"{}": 22})

    def test_gpu_that_does_not_begin(self):
        """All have launched. One GPU is known to be busy with earlier work of its own."""
        scrapes, layout = self.layout()
        layout.wait({})
        layout.jobs["dp2"].set(5, "nccl_activity_queued", scrapes.change(START + 0.5, None, 1))
        self.one_page(scrapes, "22", "node5")

    def test_only_an_endpoint_knows(self):
        """All wait; what has begun is known within the node alone."""
        scrapes, layout = self.layout()
        layout.wait({(5, gpu): "tp5" for gpu in range(GPUS)})
        layout.verdict(5, "tp5", "rank_not_begun", "2")
        layout.victims([5])
        self.one_page(scrapes, "22", "node5")

    def test_what_the_culprit_does_is_not_known(self):
        """Its call may still be inside NCCL. That is said, and it is named: nobody else is."""
        scrapes, layout = self.layout()
        layout.hang([(5, 2)])
        for comm, rank in (("dp2", 5), ("tp5", 2)):
            layout.jobs[comm].set(rank, "nccl_activity_unknown", scrapes.change(START, None, 1),
                                  reason="launch_not_reported")
        self.one_page(scrapes, "22", "node5")
        self.annotates(
            scrapes, "NcclJobHung", START + 5,
            dict(TARGET, severity="warning", job="nccl-pulse", job_id="7", workload="7", pod="train-5",
                 node="worker-5", instance="node5:9410", Hostname="node5", gpu="2", pid="122",
                 global_rank="22", UUID="GPU-node5-2", pci_bus_id="00000000:16:00.0"),
            dict(summary="Rank 22 on node5 gpu 2 holds up job 7",
                 description="Since 2023-11-14 22:17:19 +0000 UTC, for 5m 0s. 39 processes wait. It is not known "
                 "whether the one named waits, too. First: py-spy dump --pid 122 on node5, and nvidia-smi "
                 "there.",
                 runbook_url=RUNBOOK + "#nccljobhung"))

    def test_a_rank_that_cannot_be_seen_is_not_blamed_for_another(self):
        scrapes, layout = self.layout()
        layout.hang([(5, 2)])
        layout.jobs["dp0"].idle(9, since=START)
        layout.jobs["dp0"].set(9, "nccl_activity_unknown", scrapes.change(START, None, 1), reason="captured")
        self.one_page(scrapes, "22", "node5")

    def circle(self):
        """5.2 waits in dp2 for 6.2, that in tp6 for 6.1, that in dp1 for 5.1, that in tp5 for 5.2."""
        scrapes, layout = self.layout()
        layout.wait({(5, 0): "tp5", (5, 1): "tp5", (5, 2): "dp2", (5, 3): "tp5",
                     (6, 0): "tp6", (6, 1): "dp1", (6, 2): "tp6", (6, 3): "tp6"})
        layout.victims()
        return scrapes

    def test_circle_over_nodes(self):
        scrapes = self.circle()
        self.one_page(scrapes, "", "")
        # Those of the two nodes: the circle, and who waits for it there.
        self.gives(scrapes, "count(process:nccl_hang_elsewhere:rank)", START + 5, {"{}": 8})
        self.gives(scrapes, "sum(process:nccl_hang_elsewhere:rank)", START + 5, {"{}": sum(range(20, 28))})

    def test_order_lost_over_nodes(self):
        """All wait, in the same communicators, in different calls."""
        scrapes, layout = self.layout()
        layout.wait({})
        layout.victims()
        self.one_page(scrapes, "", "")

    def certain(self, verdict, node, gpu):
        scrapes, layout = self.layout()
        layout.hang([(node, gpu)])
        layout.verdict(node, "tp%d" % node, verdict, str(gpu))
        return scrapes

    def test_a_stopped_process_may_go_on(self):
        """It is named, and pages when it lasts."""
        scrapes, layout = self.layout()
        layout.hang([(5, 2)])
        layout.stand(5, 2)
        layout.verdict(5, "tp5", "process_stopped", "2")
        self.one_page(scrapes, "22", "node5")

    def test_a_debugger_at_one_that_waits(self):
        """Nothing is known of it any longer: it is not the one that does not come."""
        scrapes, layout = self.layout()
        layout.hang([(5, 2)])
        layout.stand(3, 1, since=START + 0.5)
        layout.verdict(5, "tp5", "rank_not_called", "2")
        self.one_page(scrapes, "22", "node5")
        self.gives(scrapes, "count(process:nccl_hang_root:rank)", START + 4, {"{}": 1})
        scrapes, layout = self.layout()
        layout.wait({})
        layout.victims()
        layout.stand(3, 1, since=START + 0.5)
        self.one_page(scrapes, "", "")

    def test_what_is_certain_pages_within_a_minute(self):
        for verdict in ("driver_error", "mismatched_operations", "circular_wait"):
            scrapes = self.certain(verdict, 5, 2)
            page = ("NcclHangCertain", "critical", "22", "node5")
            self.only(scrapes, START)
            self.only(scrapes, START + 0.75, page)
            for minutes in (START + 3, START + 6):
                self.only(scrapes, minutes, page, ("NcclJobHung", "warning", "22", "node5"))

    def test_process_gone(self):
        """The endpoint of its node knows at once."""
        scrapes, layout = self.layout()
        layout.hang([(5, 2)])
        for comm in ("dp2", "tp5"):
            scrapes.end(START, comm=comm, pid="122")
        scrapes.end(START, instance="node5:9410", pid="122")
        layout.verdict(5, "tp5", "process_gone", "2")
        page = ("NcclRankMissing", "critical", "22", "node5")
        self.only(scrapes, START + 0.75, page)
        for minutes in (START + 3, START + 6):
            self.only(scrapes, minutes, page, ("NcclJobHung", "warning", "", ""))

    def test_node_gone(self):
        scrapes, layout = self.layout(minutes=14)
        layout.hang([(5, gpu) for gpu in range(GPUS)])
        scrapes.end(START, instance="node5:9410")
        scrapes.set("up", scrapes.change(START, 1, 0), job="nccl-pulse", instance="node5:9410")
        self.only(scrapes, START + 1)
        for minutes in (START + 2, START + 2.5):
            self.of(scrapes)[0].append(scenario.firing(
                ".+", minutes, ("alertname", "severity", "Hostname"),
                [("NcclRankMissing", "critical", "node5"), ("NcclJobHung", "warning", "")]))

    def test_node_that_was_never_scraped(self):
        scrapes, layout = self.layout(missing_nodes=(5,))
        layout.wait({})
        self.one_page(scrapes, "", "")
        scrapes, layout = self.layout(missing_nodes=(5,))
        layout.wait({})
        layout.jobs["dp0"].launches(0, until=START - 0.25)
        self.annotates(
            scrapes, "NcclJobHungLong", START + 5,
            dict(TARGET, severity="critical", job="nccl-pulse", job_id="7", workload="7", pod="train-0",
                 node="worker-0"),
            dict(summary="It is not known who holds up job 7",
                 description="Since 2023-11-14 22:17:04 +0000 UTC, for 5m 15s. 36 processes wait. All processes that are "
                 "scraped wait, or cannot be seen to. First pulse diagnose: it compares what all ranks have called. Then look at the "
                 "network. Of the 10 ranks of communicator dp0 these are missing: 5.",
                 runbook_url=RUNBOOK + "#nccljobhunglong"))

    def test_healthy(self):
        """Work, then a pause without work; a slow step of 50 seconds."""
        scrapes, layout = self.layout()
        self.only(scrapes, 10)
        scrapes, layout = self.layout()
        for comm in layout.jobs.values():
            for rank in comm.ranks():
                comm.idle(rank, since=3)
        self.only(scrapes, 10)
        scrapes, layout = self.layout()
        layout.hang([(5, 2)])
        for comm in layout.jobs.values():
            for rank in comm.ranks():
                name = "nccl_oldest_inflight_launch_timestamp_seconds"
                values = scrapes.series[name, tuple(sorted(comm.labels[rank].items()))]
                values[scrapes.at(START + 0.8):] = [0] * (scrapes.scrapes - scrapes.at(START + 0.8))
        for key in [key for key in scrapes.series if key[0] == "nccl_hang_start_timestamp_seconds"]:
            del scrapes.series[key]
        for minutes in (START + 1, START + 2, 10):
            self.only(scrapes, minutes)
