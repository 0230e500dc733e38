"""What is there with dcgm-exporter and in a fleet."""

from tests.deploy.rules_case import RulesTest
from tests.deploy.scenario import Job


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
        self.fires(scrapes, "NcclGpuXid", 12, by, [("node1", "0", "GPU-node1-0", "00000000:02:00.0", "7")])
        # GPU 1 of node 1 had its own long ago.
        self.is_silent(scrapes, 25, "NcclGpuXid")
        # A GPU that nobody here uses.
        scrapes = self.scrapes(30)
        scrapes.set("DCGM_FI_DEV_XID_ERRORS", scrapes.change(10, 0, 79), UUID="GPU-other")
        self.is_silent(scrapes, 12, "NcclGpuXid")


class Fleet(RulesTest):

    STEP_S = 30  # from Prometheus 3 on, a minute's range holds one sample a minute, which gives no rate
    FILES = ("recording", "fleet")

    def test_series_of_jobs_and_workloads(self):
        """Two communicators of one job, of two ranks each."""
        scrapes = self.scrapes(15)
        for number, each in ((0, 0.001), (1, 0.003)):
            job = Job(scrapes, comm="tp%d" % number, ranks=2, node="n%d-" % number, start_rank=2 * number)
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
                ("10 * workload:nccl_timed_operations:ratio", kind[:-1] + ', op="AllReduce"}', 1)):
            self.gives(scrapes, "round(%s)" % expression, 12, {labels: value})
        self.quantile(scrapes, "histogram_quantile(0.99, sum by (job, workload, nranks, nnodes, index, op, size, "
                      "timing, le) (workload:nccl_operation_duration_seconds_bucket:rate5m))", 12, timed,
                      0.003, 0.00396)
        self.gives(scrapes, "job:nccl_inflight_age:seconds", 12, {})

    def test_oldest_of_a_job(self):
        scrapes = self.scrapes(10)
        job = Job(scrapes)
        job.launches(1, until=4)
        self.gives(scrapes, "round(job:nccl_inflight_age:seconds)", 8,
                   {'{job="nccl-pulse", job_id="7", workload="7"}': 240})
