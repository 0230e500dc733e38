"""Writes the dashboards: python3 deploy/grafana/generate.py. A test compares them with what is there.

Queries that need all ranks at once are recording rules of deploy/prometheus; what is behind a selected job,
node or rank comes from the metrics themselves.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
from exporter_board import exporter
from panels import (AGE, FEWER, NO_STEPS, RUNBOOK, Dashboard, bad_from, dashboard_url, graph, heatmap, largest, override,
                    query_variable, rate_of, stat, table, thresholds)

LIVE = "rank:nccl_communicator:live"
WAITING = bad_from(0.05, 0.2)
IN_FLIGHT = bad_from(60, 300)
STALLED = thresholds((None, "orange"), (240, "red"))  # as the alerts: a warning first
FIRING = 'ALERTS{alertname=~"Nccl.*", alertstate="firing", severity!="info"}'

JOB, NODE = "nccl-job", "nccl-node"

# The text of a panel without data.
COMPLETE = "Launches complete"
YOUNG = "Needs an hour of history"
NONE_LATE = "No rank is late, or no pulse watch is scraped"
NONE_HUNG = "No job hangs, or no pulse watch is scraped"
NO_DCGM = "Needs dcgm-exporter and dcgm.yaml"


def fleet():
    board = Dashboard(
        "nccl-fleet", "NCCL / Fleet", "Which jobs hang or slow down. Needs recording.yaml, fleet.yaml and pulse watch.",
        query_variable("cluster", "label_values(job:nccl_ranks:live, cluster)", "Cluster", ".*"),
        query_variable("workload", "label_values(job:nccl_ranks:live, workload)", "Workload", ".*"))
    of = '{cluster=~"$cluster", workload=~"$workload"}'
    board.add(
        stat("Jobs running", "Jobs with communicators in use.", "count(job:nccl_ranks:live%s)" % of),
        stat("Ranks", "Processes with communicators in use.", "sum(job:nccl_ranks:live%s)" % of),
        stat("Communicators", "Communicators in use.", "sum(job:nccl_communicators:live%s)" % of),
        stat("Hung jobs", "According to pulse watch; the same series as the alerts.",
             "count(count by (cluster, workload, job_id) (nccl_job_hang_start_timestamp_seconds%s))" % of,
             steps=bad_from(1)),
        stat("Waiting jobs", "Ranks of a communicator wait for each other more than 20 % of the time.",
             "count(job:nccl_waiting:max%s > 0.2)" % of, steps=thresholds((None, "green"), (1, "orange"))),
        stat("Alerts", "Firing alerts of severity warning or critical.", "count(%s)" % FIRING, steps=bad_from(1)),
        height=4)

    def of_job(how, name):
        return "%s by (cluster, workload, job_id) (%s%s)" % (how, name, of)

    board.add(table(
        "Jobs", "Longest stalled first, then longest waiting. The name opens the job.",
        ("cluster", "workload", "job_id"), (
            ("Ranks", of_job("sum", "job:nccl_ranks:live"), "short"),
            ("Communicators", of_job("sum", "job:nccl_communicators:live"), "short"),
            ("In flight for", of_job("max", "job:nccl_inflight_age:seconds"), AGE, IN_FLIGHT),
            ("Waiting", of_job("max", "job:nccl_waiting:max"), "percentunit", WAITING),
            ("Calls", of_job("sum", "job:nccl_operations:rate5m"), "ops"),
            ("Throughput", of_job("sum", "job:nccl_operation_bytes:rate5m"), "Bps")),
        links=[("workload", dashboard_url(JOB, workload="workload", job_id="job_id"))],
        sort=[("In flight for", True), ("Waiting", True)]))
    board.add(
        graph("Time lost to waiting", "Share of the time that the ranks of a job's worst communicator "
              "wait for each other, on average.",
              ("topk(10, max by (workload) (job:nccl_waiting:max%s))" % of, "{{workload}}"),
              unit="percentunit", steps=WAITING),
        graph("Oldest work in flight", "Empty while launches complete.",
              ("topk(10, max by (workload) (job:nccl_inflight_age:seconds%s))" % of, "{{workload}}"),
              unit=AGE, steps=IN_FLIGHT, none=COMPLETE))
    root = ("workload", "job_id", "Hostname", "global_rank", "gpu", "verdict")
    board.add(
        table("Blocking ranks", "The root of each hang, according to pulse watch. Empty while all jobs progress.", root, (
            ("Stalled for", "time() - max by (%s) (nccl_job_hang_start_timestamp_seconds%s)" % (
                ", ".join(root), of), AGE, STALLED),),
              links=[("workload", dashboard_url(JOB, workload="workload", job_id="job_id")),
                     ("Hostname", dashboard_url(NODE, Hostname="Hostname"))],
              sort=[("Stalled for", True)], none=NONE_HUNG),
        graph("Late nodes", "Seconds per second that jobs lose to late ranks of a node, according to pulse watch.",
              ("topk(10, max by (workload, Hostname) (nccl_job_straggler_ratio%s))" % of, "{{workload}} {{Hostname}}"),
              unit="percentunit", steps=bad_from(0.05), none=NONE_LATE))
    board.add(
        graph("Throughput", "Bytes that the application passed to NCCL.",
              ("topk(10, sum by (workload) (job:nccl_operation_bytes:rate5m%s))" % of, "{{workload}}"),
              unit="Bps"),
        graph("Slowdown", "Mean duration divided by its median of the last three days, of the worst operation.",
              ("""topk(10, max by (workload, op, size) (
                    workload:nccl_operation_duration_seconds:mean%s
                    / workload:nccl_operation_duration_seconds:mean_baseline))""" % of,
               "{{workload}} {{op}} {{size}}"), unit="suffix:x", steps=bad_from(1.5), none=YOUNG))
    board.add(
        graph("Bandwidth of the slowest communicator", "Bus bandwidth, divided by the median of communicators with the "
              "same index; of the rank that waits least.",
              ("""bottomk(10, clamp_max(min by (workload, op, size) (
                    workload:nccl_bus_bandwidth:worst_communicator%s
                    / workload:nccl_bus_bandwidth:best_rank), 1))""" % of,
               "{{workload}} {{op}} {{size}}"), unit="percentunit", max=1),
        graph("Network wait per byte", "Divided by the median of the last three days, for the cause that has grown most.",
              ("""topk(10, max by (workload, direction, reason) (
                    workload:nccl_network_wait:seconds_per_byte%s
                    / workload:nccl_network_wait:seconds_per_byte_baseline))""" % of,
               "{{workload}} {{direction}} {{reason}}"), unit="suffix:x", steps=bad_from(2),
              none=YOUNG))
    alert = ("severity", "alertname", "cluster", "workload", "comm", "rank", "Hostname", "instance")
    board.add(table(
        "Firing alerts", "Of severity warning or critical. The runbook has a section for each.", alert,
        ((None, "max by (%s) (%s)" % (", ".join(alert), FIRING), "short"),),
        links=[("alertname", RUNBOOK), ("workload", dashboard_url(JOB, workload="workload")),
               ("Hostname", dashboard_url(NODE, Hostname="Hostname"))],
        sort=[("severity", False)], none="No alert fires",
        overrides=[override("severity", custom__cellOptions={"type": "color-text"}, mappings=[
            {"type": "value", "options": {"critical": {"color": "red", "index": 0},
                                          "warning": {"color": "orange", "index": 1}}}])]))
    return board.document


def job():
    of = '{cluster=~"$cluster", workload=~"$workload", job_id=~"$job_id"}'
    live = LIVE + of
    board = Dashboard(
        JOB, "NCCL / Job", "Communicators of a job: latency, bandwidth, waiting, blocking and late ranks. Needs "
        "recording.yaml and pulse watch.",
        query_variable("cluster", "label_values(%s, cluster)" % LIVE, "Cluster", ".*"),
        query_variable("workload", "label_values(%s, workload)" % LIVE, "Workload", multi=False),
        query_variable("job_id", 'label_values(%s{workload=~"$workload"}, job_id)' % LIVE, "Job ID", ".*"),
        query_variable("comm", "label_values(%s, comm)" % live, "Communicator"),
        query_variable("op", 'label_values(comm:nccl_operation_duration_seconds:p50{comm=~"$comm"}, op)',
                       "Operation", ".*"),
        query_variable("size", 'label_values(comm:nccl_operation_duration_seconds:p50{comm=~"$comm"}, '
                       'size)', "Size", ".*"))
    comm = '{comm=~"$comm"}'
    timed = '{comm=~"$comm", op=~"$op", size=~"$size", timing=~"stream|kernel"}'
    board.add(
        stat("Ranks in communicators", "Scraped ranks of all selected communicators. A process has one rank in each.", "sum(comm:nccl_ranks:seen%s)" % comm),
        stat("Ranks scraped / expected", "Lowest share among the selected communicators.",
             "min(comm:nccl_ranks:ratio%s)" % comm, "percentunit", FEWER, none="?"),
        stat("In flight for", "Age of the oldest launch; empty while launches complete.",
             "max(rank:nccl_inflight_age:seconds%s)" % comm, AGE, IN_FLIGHT, none="-"),
        stat("Waiting", "Share of the time that ranks wait for each other, in the worst communicator.",
             "max(comm:nccl_waiting:avg%s)" % comm, "percentunit", WAITING, none="?"),
        stat("Timed calls", "Share of calls with a duration; a sample by design.",
             "clamp_max(avg(comm:nccl_timed_operations:ratio%s), 1)" % comm, "percentunit", none="?"),
        stat("With CUDA graphs",
             "Communicators with captured operations.",
             "sum(max by (comm) (nccl_communicator_uses_cuda_graphs%s))" % comm),
        height=4)
    used = "comm:nccl_communicator:live" + comm
    board.add(table(
        "Communicators", "Communicators in use.", ("comm", "comm_name", "nranks", "nnodes", "index"), (
            (None, "max by (comm, comm_name, nranks, nnodes, index) (%s)" % used, "short"),
            *((name, "%s and on (comm) %s" % (expression % comm, used), *more) for name, expression, *more in (
                ("Ranks", "max by (comm) (comm:nccl_ranks:seen%s)", "short"),
                ("In flight for", "max by (comm) (rank:nccl_inflight_age:seconds%s)", AGE, IN_FLIGHT),
                ("Waiting", "max by (comm) (comm:nccl_waiting:avg%s)", "percentunit", WAITING),
                ("Calls", "sum by (comm) (rate(nccl_operations_total%s[$__rate_interval]))", "ops"),
                ("Throughput", "sum by (comm) (rate(nccl_operation_bytes_total%s[$__rate_interval]))", "Bps")))),
        sort=[("In flight for", True), ("Waiting", True)],
        links=[("comm", "/d/%s?${datasource:queryparam}&var-workload=${workload}"
                "&var-job_id=${job_id}&var-comm=${__data.fields.comm}&${__url_time_range}" % JOB)]), height=8)

    process = "global_rank, Hostname, gpu, pid"
    board.add(table(
        "Blocking ranks", "The root of the hang, according to pulse watch. Empty while the job progresses.",
        (process + ", verdict, first_step").split(", "), (
            ("Stalled for", "time() - max by (%s, verdict, first_step) "
             "(nccl_job_hang_start_timestamp_seconds%s * on (job, instance, job_id, workload, comm, rank) "
             "group_left (first_step) nccl_job_hang_info)" % (process, of), AGE, STALLED),),
        links=[("Hostname", dashboard_url(NODE, Hostname="Hostname"))],
        sort=[("global_rank", False)], none=NONE_HUNG), height=6)

    board.row("Latency and bandwidth")
    board.add(
        graph("Median duration, slowest communicator", "Per operation and size.",
              ("max by (op, size) (comm:nccl_operation_duration_seconds:p50%s)" % timed,
               "{{op}} {{size}}"), unit="s"),
        graph("99th percentile, slowest communicator", "Per operation and size.",
              ("max by (op, size) (comm:nccl_operation_duration_seconds:p99%s)" % timed,
               "{{op}} {{size}}"), unit="s"))
    board.add(
        heatmap("Durations", "All selected timed operations, waiting for other ranks included.",
                "nccl_operation_duration_seconds", timed),
        heatmap("Enqueue to completion", "Measured on the host, earlier work of the GPU included: "
                "operations across the network; with kernel timing all.",
                "nccl_operation_completion_seconds", '{comm=~"$comm", op=~"$op", size=~"$size"}'))
    board.add(
        graph("Bus bandwidth", "By nccl-tests' convention. Waiting for other ranks lowers it.",
              ("min by (op, size) (comm:nccl_bus_bandwidth:bytes_per_second%s)" % timed,
               "{{op}} {{size}}"), unit="Bps"),
        graph("Bus bandwidth of the rank that waits least", "What the links deliver, on the "
              "slowest communicator.",
              ("min by (op, size) (comm:nccl_bus_bandwidth:best_rank%s)" % timed, "{{op}} {{size}}"),
              unit="Bps"))
    board.add(
        graph("Slowdown", "Mean duration divided by its median of the last three days.",
              ("""workload:nccl_operation_duration_seconds:mean{workload=~"$workload", op=~"$op", size=~"$size"}
                  / workload:nccl_operation_duration_seconds:mean_baseline""",
               "{{op}} {{size}} index {{index}} ({{nranks}})"), unit="suffix:x",
              steps=bad_from(1.5), none=YOUNG),
        graph("Calls", "Calls of the application.",
              ('sum by (op, size) (rate(nccl_operations_total{comm=~"$comm", op=~"$op", size=~"$size"}'
               '[$__rate_interval]))', "{{op}} {{size}}"), unit="ops", stack=True))

    waiting = "max by (comm, rank) (rank:nccl_waiting:ratio%s)" % comm
    board.row("Waiting")
    board.add(
        graph("Waiting per rank", "The ten ranks that wait most and the ten that wait least. The others wait "
              "for the rank at the bottom.",
              largest(waiting, "{{comm}} rank {{rank}}", 10),
              ("bottomk(10, %s)" % waiting, "{{comm}} rank {{rank}}"), unit="percentunit"),
        graph("Work in flight", "Age of the oldest launch, of the 20 oldest ranks. Empty while launches complete.",
              largest("max by (comm, rank) (rank:nccl_inflight_age:seconds%s)" % comm,
                      "{{comm}} rank {{rank}}"),
              unit=AGE, steps=IN_FLIGHT, none=COMPLETE))
    board.add(
        table("Ranks that wait least", "In communicators whose ranks wait: the others wait for these.",
              ("comm", "rank", "Hostname", "gpu"), (
                  ("Waits", "bottomk(10, max by (comm, rank, Hostname, gpu) (rank:nccl_waiting:ratio%s "
                   "* on (job, instance, comm, rank) group_left (Hostname, gpu) %s))" % (comm, LIVE),
                   "percentunit"),),
              links=[("Hostname", dashboard_url(NODE, Hostname="Hostname"))],
              sort=[("Waits", False)], none="No rank waits"),
        graph("Late within its node", "Share of time that the node's other ranks wait for a rank; the 20 latest.",
              largest("max by (comm, rank) (rate(nccl_straggler_seconds_total%s[5m]))" % comm,
                      "{{comm}} rank {{rank}}"), unit="percentunit", steps=bad_from(0.05)))
    board.add(table(
        "Late ranks", "Over all nodes, according to pulse watch. Without a rank: all ranks of the node.",
        (process + ", first_step").split(", "), (
            ("Lost", "max by (%s, first_step) (nccl_job_straggler_ratio%s)" % (process, of),
             "percentunit", bad_from(0.05)),),
        links=[("Hostname", dashboard_url(NODE, Hostname="Hostname"))],
        sort=[("Lost", True)], none=NONE_LATE), height=6)

    board.row("Network", collapsed=True)
    board.add(
        graph("Sends wait for", "Shares of watched steps. gpu: data; peer: the receiver's credit; wire: transfer.",
              ('avg by (reason) (comm:nccl_network_wait:share{comm=~"$comm", direction="send"})',
               "{{reason}}"), unit="percentunit", stack=True, max=1, none=NO_STEPS),
        graph("Receives wait for", "Shares of watched steps. wire: data, or a late sender; flush: visibility; gpu: "
              "the consumer.",
              ('avg by (reason) (comm:nccl_network_wait:share{comm=~"$comm", direction="recv"})',
               "{{reason}}"), unit="percentunit", stack=True, max=1, none=NO_STEPS))

    board.row("Algorithms and timing", collapsed=True)
    board.add(
        graph("Algorithms and protocols", "Operations by NCCL's choice.",
              ('sum by (op, algo, proto) (rate(nccl_algorithm_operations_total{comm=~"$comm", op=~"$op"}'
               '[$__rate_interval]))', "{{op}} {{algo}} {{proto}}"), unit="ops"),
        graph("Without a duration", "Untimed calls, by reason.",
              ('sum by (reason) (rate(nccl_operations_without_duration_total{comm=~"$comm", op=~"$op"}'
               '[$__rate_interval]))', "{{reason}}"), unit="ops", stack=True))
    return board.document


def node():
    here = '{cluster=~"$cluster", Hostname=~"$Hostname", comm=~"$comm"}'
    identity = "* on (job, instance, comm, rank) group_left (Hostname, gpu) %s%s" % (LIVE, here)
    board = Dashboard(
        NODE, "NCCL / Node and rank", "The ranks of a node. Needs recording.yaml; GPU panels "
        "need dcgm-exporter and dcgm.yaml.",
        query_variable("cluster", "label_values(%s, cluster)" % LIVE, "Cluster", ".*"),
        query_variable("Hostname", "label_values(%s, Hostname)" % LIVE, "Node", multi=False),
        query_variable("comm", 'label_values(%s{Hostname=~"$Hostname"}, comm)' % LIVE, "Communicator"))
    board.add(table(
        "Ranks", "Communicators in use on this node.",
        ("gpu", "rank", "comm", "comm_name", "nranks", "workload"), (
            (None, "max by (gpu, rank, comm, comm_name, nranks, workload, pid, UUID, instance) (%s%s)"
             % (LIVE, here), "short"),
            ("In flight for", "max by (comm, rank, instance) (rank:nccl_inflight_age:seconds%s)" % here,
             AGE, IN_FLIGHT),
            ("Waiting", "max by (comm, rank, instance) (rank:nccl_waiting:ratio %s)" % identity,
             "percentunit", WAITING)),
        links=[("workload", dashboard_url(JOB, workload="workload"))],
        details=("pid", "instance", "UUID")))
    legend = "{{comm}} rank {{rank}} gpu {{gpu}}"

    def of_rank(expression):
        return "max by (gpu, comm, rank) (%s %s)" % (expression, identity)

    board.row("Launches")
    board.add(
        graph("Launches", "Tracked launches, without replays of CUDA graphs.",
              (of_rank("rate(nccl_launches_total[$__rate_interval])"), legend), unit="ops"),
        graph("Launches in flight", "At the last poll of the background thread.",
              (of_rank("nccl_inflight_launches"), legend)))
    board.add(
        graph("Oldest launch in flight", "Empty while launches complete.",
              ("max by (gpu, comm, rank) (rank:nccl_inflight_age:seconds%s)" % here, legend), unit=AGE,
              steps=IN_FLIGHT, none=COMPLETE),
        graph("Calls so far", "Per operation. In a hang, the rank with fewer calls is behind.",
              ("max by (gpu, comm, rank, op) (sum by (job, instance, comm, rank, op) "
               "(nccl_operations_total) %s)" % identity, legend + " {{op}}"), unit="none"))

    board.row("Latency")
    board.add(
        graph("Mean duration", "Of all timed operations of a rank. The rank with the shortest arrives last.",
              ("""max by (gpu, comm, rank, op) (
                    sum by (job, instance, comm, rank, op) (%s)
                    / sum by (job, instance, comm, rank, op) (%s) %s)"""
               % (*(rate_of(part, "nccl_operation_duration_seconds", '{timing=~"stream|kernel"}')
                    for part in ("sum", "count")), identity), legend + " {{op}}"), unit="s"),
        graph("Waiting", "Share of time spent waiting for other ranks, at least.",
              (of_rank("rank:nccl_waiting:ratio"), legend), unit="percentunit", steps=WAITING),
        graph("Lost to this node", "Seconds per second that jobs lose to its late ranks, according to pulse watch.",
              ('max by (workload) (nccl_job_straggler_ratio{Hostname=~"$Hostname"})', "{{workload}}"),
              unit="percentunit", steps=bad_from(0.05), none=NONE_LATE))

    board.row("Network", collapsed=True)
    board.add(
        graph("Network throughput", "From watched steps, the protocol's bytes included.",
              ("""sum by (Hostname, direction) (
                    rate(nccl_network_bytes_total[$__rate_interval]) %s)
                  / on (Hostname) group_left () sum by (Hostname) (
                    rate(nccl_pulse_network_observed_seconds_total[$__rate_interval])
                    * on (job, instance, pid) group_left (Hostname)
                    max by (job, instance, pid, Hostname) (%s%s))"""
               % (identity, LIVE, here), "{{direction}}"), unit="Bps", none=NO_STEPS),
        graph("Waiting network steps", "Average number of steps that wait. Compare shares only.",
              ("""sum by (direction, reason) (
                    rate(nccl_network_wait_seconds_total[$__rate_interval]) %s)""" % identity,
               "{{direction}} {{reason}}"), unit="short", stack=True, none=NO_STEPS))

    board.row("GPU, from dcgm-exporter", collapsed=True)
    gpu = "gpu {{gpu}}"
    board.add(
        graph("GPU utilization", "", ("max by (gpu) (rank:nccl_gpu_utilization:percent%s)" % here, gpu),
              unit="percent", max=100, none=NO_DCGM),
        graph("Power", "", ("max by (gpu) (rank:nccl_gpu_power:watts%s)" % here, gpu), unit="watt",
              none=NO_DCGM),
        graph("SM clock", "", ("max by (gpu) (1e6 * rank:nccl_gpu_sm_clock:mhz%s)" % here, gpu),
              unit="hertz", none=NO_DCGM))
    board.add(
        graph("XID", "The last XID of each GPU in use; DCGM keeps it.",
              ("max by (gpu, UUID) (%s%s * on (UUID) group_left () max by (UUID) "
               "(DCGM_FI_DEV_XID_ERRORS))" % (LIVE, here), gpu + " {{UUID}}"), unit="none", none=NO_DCGM), height=7)
    return board.document


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "dashboards")
    for name, board in (("fleet", fleet), ("job", job), ("node", node), ("exporter", exporter)):
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(board(), file, indent=1, ensure_ascii=False)
            file.write("\n")


if __name__ == "__main__":
    main()
