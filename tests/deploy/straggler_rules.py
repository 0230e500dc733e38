"""Who comes late, call by call and over nodes: one alert for a rank, one for a node, and none without a reason."""

import random

from tests.deploy import scenario
from tests.deploy.rules_case import NEWEST, RUNBOOK, RulesTest
from tests.deploy.scenario import Job

ROUND_S = 30
BY = ("alertname", "Hostname", "global_rank")
CALLS = 10  # a second


class SlowRanks(RulesTest):

    STEP_S = 15
    FILES = ("recording", "alerts", "diagnosis", "stragglers")
    PROMTOOL = NEWEST

    def compare(self, job, late_of_round, missing=lambda round_, rank: False, timing=lambda rank: "stream",
                seconds=0.1):
        """Of each round late_of_round(round): {rank: how much later than the others it came}."""
        scrapes = job.scrapes
        for rank in job.ranks():
            job.count(rank, "nccl_operations_total", CALLS, op="AllReduce", size="le_64MiB",
                      datatype="ncclFloat32", captured="false")
            ids, durations = [], []
            for i in range(scrapes.scrapes):
                round_ = i * scrapes.step // ROUND_S
                late = late_of_round(round_)
                latest = max([0, *late.values()])
                ids.append(1e12 + 7 * round_ + (3 + rank if missing(round_, rank) else 0))
                durations.append(0.001 + latest - late.get(rank, 0))
            job.set(rank, "nccl_agreed_call_id", ids, timing=timing(rank))
            job.set(rank, "nccl_agreed_call_duration_seconds", durations, timing=timing(rank))

    def across(self, scrapes, ranks=4, per_node=1, **options):
        return Job(scrapes, ranks=ranks, per_node=per_node, **options)

    def only(self, scrapes, minutes, *expected):
        """All alerts that fire."""
        self.of(scrapes)[0].append(scenario.firing(".+", minutes, BY, list(expected)))
        named = {name for name, _, _ in expected}
        self.fired.update(named)
        self.silent.update({"NcclSlowRank", "NcclSlowNode"} - named)

    def test_one_rank(self):
        self.promtool = "promtool"  # this system's, once
        scrapes = self.scrapes(20)
        job = self.across(scrapes, target_labels={"node": "worker-%d"})
        self.compare(job, lambda round_: {2: 0.01})
        self.only(scrapes, 4)
        self.only(scrapes, 12, ("NcclSlowRank", "node2", "2"))
        self.annotates(
            scrapes, "NcclSlowRank", 18,
            dict(severity="warning", job="nccl-pulse", job_id="7", workload="7", instance="node2:9410",
                 node="worker-2", Hostname="node2", gpu="0", pid="102", global_rank="2", UUID="GPU-node2-0",
                 pci_bus_id="00000000:02:00.0"),
            dict(summary="Rank 2 on node2 gpu 0 is late and makes the others wait: job 7 loses 10% of its time",
                 description="First: nvidia-smi -q -d PERFORMANCE on node2 (is the GPU hot or throttled?), and top there "
                 "(what else runs?). Whether its host calls late or its GPU begins late is not known. "
                 "Compared: 4 of 4 ranks of communicator c0ffee.",
                 runbook_url=RUNBOOK + "#ncclslowrank"))

    def test_why(self):
        """A tenth of the time NCCL works for it. Of the rest its host has launched ahead in a third, or always, or never."""
        for pattern, gpu, host in (((1, 1, 0, 0, 0, 1, 0, 1, 0, 0), 0.035, 0.065), ((1,), 0.1, 0), ((0,), 0, 0.1)):
            scrapes = self.scrapes(25)
            job = self.across(scrapes)
            self.compare(job, lambda round_: {2: 0.01})
            job.collective(2, CALLS, 0.01)
            job.set(2, "nccl_inflight_launches", [pattern[i % len(pattern)] for i in range(scrapes.scrapes)])
            for cause, expected in (("gpu", gpu), ("host", host)):
                self.gives(scrapes, "round(sum(process:nccl_straggler_cause:ratio{cause=%r}), 0.005)" % cause, 20,
                           {"{}": expected})
            self.gives(scrapes, 'process:nccl_straggler_cause:ratio{cause="unknown"}', 20, {})
        self.gives(scrapes, "round(sum by (Hostname) (process:nccl_straggler_cause:ratio{cause='host'}), 0.001)", 20,
                   {'{Hostname="node2"}': 0.1})
        self.annotates(
            scrapes, "NcclSlowRank", 20,
            dict(severity="warning", job="nccl-pulse", job_id="7", workload="7", instance="node2:9410", Hostname="node2",
                 gpu="0", pid="102", global_rank="2", UUID="GPU-node2-0", pci_bus_id="00000000:02:00.0"),
            dict(summary="Rank 2 on node2 gpu 0 is late and makes the others wait: job 7 loses 10% of its time",
                 description="First: nvidia-smi -q -d PERFORMANCE on node2 (is the GPU hot or throttled?), and top there "
                 "(what else runs?). Of the job's time 0% is lost because its GPU begins late and 10% is lost because "
                 "its host calls late. Compared: 4 of 4 ranks of communicator c0ffee.",
                 runbook_url=RUNBOOK + "#ncclslowrank"))

    def test_what_costs_little(self):
        scrapes = self.scrapes(20)
        self.compare(self.across(scrapes), lambda round_: {2: 0.004})
        self.only(scrapes, 18)

    def test_one_long_wait(self):
        """Of 20 s, in one of 20 calls: a checkpoint."""
        scrapes = self.scrapes(30)
        self.compare(self.across(scrapes), lambda round_: {2: 20} if round_ == 14 else {})
        for minutes in (8, 12, 16, 20):
            self.only(scrapes, minutes)

    def layout(self, scrapes, nodes=4, gpus=4, **options):
        """Tensor parallel in the node, data parallel across."""
        for node in range(nodes):
            Job(scrapes, comm="tp%d" % node, places=[(node, gpu, node * gpus + gpu) for gpu in range(gpus)], **options)
        return [Job(scrapes, comm="dp%d" % gpu, index=1, **options,
                    places=[(node, gpu, node * gpus + gpu) for node in range(nodes)]) for gpu in range(gpus)]

    def test_one_node(self):
        """Each of its ranks comes last, to a communicator of its own: one alert."""
        scrapes = self.scrapes(20)
        for job in self.layout(scrapes, target_labels={"namespace": "ml", "pod": "train-%d"}):
            self.compare(job, lambda round_: {1: 0.01})
        self.only(scrapes, 12, ("NcclSlowNode", "node1", ""))
        self.fires(scrapes, "NcclSlowNode", 12, ("namespace", "pod", "workload"), [("ml", "", "7")])

    def test_a_rank_for_which_its_node_waits(self):
        """The same, and the endpoint knows why: rank 2 of the node comes last to the tensor-parallel calls."""
        scrapes = self.scrapes(20)
        for job in self.layout(scrapes):
            self.compare(job, lambda round_: {1: 0.01})
        for rank in range(4):
            scrapes.count("nccl_straggler_seconds_total", 0.09 if rank == 2 else 0.01, job="nccl-pulse",
                          instance="node1:9410", comm="tp1", rank=str(rank))
        self.fires(scrapes, "NcclSlowRank", 12, ("Hostname", "global_rank"), [("node1", "6")])
        self.is_silent(scrapes, 12, "NcclSlowNode")

    def test_a_node_whose_ranks_take_turns(self):
        scrapes = self.scrapes(20)
        self.compare(self.across(scrapes, ranks=8, per_node=4), lambda round_: {4 + round_ % 4: 0.01})
        self.only(scrapes, 12, ("NcclSlowNode", "node1", ""))

    def test_jobs_that_share_nodes(self):
        """The node that is late in one of them waits for another node in the other one."""
        scrapes = self.scrapes(20)
        for job_id, late in (("7", {1: 0.01}), ("8", {2: 0.02})):
            job = self.across(scrapes, comm="c" + job_id, job_id=job_id, start_rank=10 * int(job_id))
            self.compare(job, lambda round_, late=late: late)
        self.only(scrapes, 12, ("NcclSlowRank", "node1", "71"), ("NcclSlowRank", "node2", "82"))

    def test_a_node_that_waits_for_another(self):
        """Tensor parallel over nodes 0 and 1, data parallel over 0 and 2, and over 1 and 3; rank 0 is slow."""
        scrapes = self.scrapes(20)
        for comm, nodes, late in (("tp", (0, 1), {0: 0.012}), ("dp0", (0, 2), {0: 0.01}), ("dp1", (1, 3), {0: 0.01})):
            job = Job(scrapes, comm=comm, places=[(node, 0, node) for node in nodes])
            self.compare(job, lambda round_, late=late: late)
        self.only(scrapes, 12, ("NcclSlowRank", "node0", "0"))

    def test_another_timing_is_compared_with_nobody(self):
        """GPU timestamps begin later than events on the stream: a kernel duration is always the shortest."""
        scrapes = self.scrapes(20)
        job = self.across(scrapes)
        self.compare(job, lambda round_: {3: 0.01}, timing=lambda rank: "kernel" if rank == 3 else "stream")
        self.only(scrapes, 18)
        self.gives(scrapes, "comm:nccl_agreed_call:ranks", 18,
                   {'comm:nccl_agreed_call:ranks{job="nccl-pulse", comm="c0ffee", timing="stream"}': 3})
        # Nor by means.
        scrapes = self.scrapes(30)
        job = self.across(scrapes)
        for rank in job.ranks():
            job.collective(rank, 100, 0.001 if rank == 3 else 0.003, timing="kernel" if rank == 3 else "stream")
        self.is_silent(scrapes, 28, "NcclStraggler")

    def test_a_lone_rank_is_compared_with_nobody(self):
        scrapes = self.scrapes(20)
        self.compare(self.across(scrapes, missing=(0, 1, 2)), lambda round_: {3: 0.01})
        self.only(scrapes, 18, ("NcclPulseRanksNotScraped", "", ""))

    def test_another_call_is_compared_with_nobody(self):
        """Rank 3 has missed them all, and its own calls are short; rank 1 has missed some."""
        scrapes = self.scrapes(20)
        self.compare(self.across(scrapes), lambda round_: {3: 0.01},
                     missing=lambda round_, rank: rank == 3 or rank == 1 and round_ % 3 == 0)
        self.only(scrapes, 18)
        # Those that have them are compared all the same.
        scrapes = self.scrapes(20)
        self.compare(self.across(scrapes, ranks=8), lambda round_: {3: 0.01},
                     missing=lambda round_, rank: (round_ + rank) % 8 == 0)
        self.only(scrapes, 12, ("NcclSlowRank", "node3", "3"))

    def test_nobody_agrees(self):
        scrapes = self.scrapes(20)
        self.compare(self.across(scrapes), lambda round_: {3: 0.01}, missing=lambda round_, rank: True)
        self.only(scrapes, 18)

    def test_healthy(self):
        """By up to 20 ms, anybody: of 2, 4 and 16 ranks."""
        choice = random.Random(1)
        scrapes = self.scrapes(60)
        for ranks in (2, 4, 16):
            job = self.across(scrapes, comm="c%d" % ranks, ranks=ranks, node="of-%d-" % ranks, job_id=str(ranks))
            lates = [{rank: 0.02 * choice.random() for rank in range(ranks)} for _ in range(121)]
            self.compare(job, lambda round_, lates=lates: lates[round_])
        for minutes in (10, 20, 30, 40, 50, 59):
            self.only(scrapes, minutes)

    def test_who_comes_last_in_a_pipeline_may_wait_itself(self):
        scrapes = self.scrapes(25)
        job = Job(scrapes, per_node=4)
        for rank in job.ranks():
            job.collective(rank, 100, 0.001 if rank == 2 else 0.004)
            job.count(rank, "nccl_straggler_seconds_total", 0.2 if rank == 2 else 0)
            job.count(rank, "nccl_operations_total", 50, op="Send", size="le_16MiB", datatype="ncclFloat32",
                      captured="false")
        waits = "Its job uses Send and Recv: it may come last because it waits for another rank itself. pulse diagnose tells."
        labels = dict(severity="warning", job="nccl-pulse", job_id="7", workload="7", instance="node0:9410", comm="c0ffee",
                      comm_name="dp", rank="2", nranks="4", nnodes="1", index="0", Hostname="node0", gpu="2", pid="102",
                      global_rank="2", UUID="GPU-node0-2", pci_bus_id="00000000:02:00.0")
        self.annotates(scrapes, "NcclNodeStraggler", 20, labels, dict(
            summary="Ranks of communicator c0ffee on node0:9410 wait for rank 2",
            description="20% of the time. Rank 2: node0 gpu 2 pid 102. " + waits,
            runbook_url=RUNBOOK + "#ncclnodestraggler"))
        self.annotates(scrapes, "NcclStraggler", 20, labels, dict(
            summary="Rank 2 (node0 gpu 2) comes last to the collectives of 7",
            description="Half of the ranks of communicator c0ffee wait 30% of the time or more; this one waits 0%. " + waits,
            runbook_url=RUNBOOK + "#ncclstraggler"))

    def test_stages_of_a_pipeline(self):
        """Each stage comes later to the communicator of all than the one before, by right."""
        scrapes = self.scrapes(20)
        pipeline = self.across(scrapes, comm="pp")
        for rank in pipeline.ranks():
            pipeline.count(rank, "nccl_operations_total", 50, op="Send", size="le_16MiB", datatype="ncclFloat32",
                           captured="false")
        self.compare(self.across(scrapes, comm="all", index=1), lambda round_: {rank: 0.01 * rank for rank in range(4)})
        self.only(scrapes, 18)
