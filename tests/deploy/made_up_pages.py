"""What no replay has, for the dashboards: a job that hangs, jobs with a late rank and a late node, GPUs beside it, two
hours ago."""

import json
import time

WORKLOAD = {"workload": "made-up", "nranks": "2", "nnodes": "1", "index": "0"}
ALLREDUCE = {"op": "AllReduce", "size": "le_64MiB", "timing": "stream"}
SEND = {"direction": "send", "reason": "wire"}


def sample(name, value, time_s=None, **labels):
    labels = ",".join("%s=%s" % (key, json.dumps(label)) for key, label in labels.items())
    return "%s{%s} %r%s\n" % (name, labels, float(value), "" if time_s is None else " %d" % time_s)


def history(now_s):
    """Two hours ago the made-up workload was quicker."""
    text = ""
    for name, value, labels in (
            ("workload:nccl_operation_duration_seconds:mean", 0.001, ALLREDUCE),
            ("workload:nccl_timed_bus_bytes:mean", 2**26, ALLREDUCE),
            ("workload:nccl_bus_bandwidth:best_rank", 1e11, ALLREDUCE),
            ("workload:nccl_network_wait:seconds_per_byte", 1e-9, SEND)):
        text += "# TYPE %s gauge\n" % name
        for minute in range(61):
            text += sample(name, value, now_s - 7800 + minute * 60, job="nccl-pulse", **WORKLOAD, **labels)
    return text + "# EOF\n"


def made_up_page():
    """A communicator that hangs with some bad luck besides."""
    now = time.time()
    text = ""
    for rank in ("0", "1"):
        of = {"comm": "00000000deadbeef", "rank": rank}
        process = {"pid": rank, "global_rank": rank}
        kind = dict(of, **ALLREDUCE)
        text += sample("nccl_communicator_info", 1, **of, **process, **WORKLOAD, Hostname="made-up",
                       gpu=rank, UUID="GPU-" + rank, pci_bus_id="00000000:01:00.0", job_id="9")
        for name, value, labels in (
                ("pulse_process_up", 1, process),
                ("pulse_last_poll_timestamp_seconds", now, process),
                ("oldest_inflight_launch_timestamp_seconds", now - 400, of),
                # Rank 1 arrives last.
                ("operation_duration_seconds_sum", now / (1 + int(rank)), kind),
                ("operations_total", now * 100, dict(of, op="AllReduce", size="le_64MiB",
                                                     captured="false")),
                ("operations_without_completion_total", now, dict(of, op="AllReduce")),
                ("operation_duration_seconds_count", now * 100, kind),
                ("timed_bus_bytes_total", now * 100 * 2**26, kind),
                ("network_bytes_total", now * 1e6, dict(of, direction="send")),
                ("network_wait_seconds_total", now, dict(of, **SEND)),
                ("straggler_seconds_total", now / 10, of),
                ("communicator_uses_cuda_graphs", 1, of),
                ("pulse_ignored_events_total", now, dict(process, reason="no_room")),
                ("pulse_overflowed_operations_total", now, of)):
            text += sample("nccl_" + name, value, **labels)
    text += sample("nccl_pulse_processes_rejected_total", now, reason="no_room")
    text += sample("nccl_pulse_process_up", 0, pid="2")
    text += sample("nccl_pulse_process_up", 1, pid="3")
    text += sample("nccl_pulse_last_poll_timestamp_seconds", 1e9, pid="3")
    text += sample("nccl_hang_start_timestamp_seconds", now - 400, comm="00000000deadbeef",
                   verdict="rank_not_called", suspect_rank="1", op="AllReduce")
    return text


def watch_page():
    """What `pulse watch` says of them: rank 1 of the job that hangs, a late rank, and a node all of whose ranks are late."""
    job = {"job_id": "9", "workload": "made-up"}
    process = {"Hostname": "made-up", "global_rank": "1", "gpu": "1", "UUID": "GPU-1", "pid": "1"}
    late = dict(process, job_id="late-rank", workload="late-rank", first_step="nvidia-smi")
    return (sample("nccl_job_hang_start_timestamp_seconds", time.time() - 400, **job, **process, comm="00000000deadbeef",
                   rank="1", verdict="rank_not_called", op="AllReduce") +
            sample("nccl_job_hang_info", 1, **job, comm="00000000deadbeef", rank="1", first_step="py-spy dump",
                   text="rank 1 (made-up, GPU 1) has not called AllReduce; 3 processes wait") +
            sample("nccl_job_straggler_ratio", 0.3, **late) +
            sample("nccl_job_straggler_ratio", 0.3, job_id="late-node", workload="late-node", Hostname="made-up",
                   first_step="nvidia-smi") +
            sample("nccl_watch_round_timestamp_seconds", time.time()))


def dcgm_page():
    return "".join(sample("DCGM_FI_DEV_" + name, value, UUID="GPU-" + gpu, gpu=gpu, Hostname="made-up")
                   for gpu in ("0", "1")
                   for name, value in (("GPU_UTIL", 100), ("POWER_USAGE", 700), ("SM_CLOCK", 1980),
                                       ("XID_ERRORS", 79)))
