"""The dashboard of the exporter's own health: whether to trust the others."""

from panels import FEWER, NO_STEPS, Dashboard, bad_from, graph, largest, override, query_variable, stat, table


def exporter():
    at = '{instance=~"$instance"}'
    board = Dashboard(
        "nccl-pulse-exporter", "NCCL / Exporter health", "Whether the other boards can be trusted, and the overhead.",
        query_variable("instance", "label_values(nccl_pulse_processes, instance)", "Endpoint", ".*"))

    def rate(name, by, more=""):
        return "sum by (%s) (rate(%s{instance=~\"$instance\"%s}[$__rate_interval]))" % (by, name, more)

    board.add(
        stat("Endpoints up", "Share of scraped endpoints that answer.",
             'avg(up{job=~"nccl-pulse.*", instance=~"$instance"})', "percentunit", FEWER, none="?"),
        stat("Processes", "Live processes.", "sum(nccl_pulse_process_up%s)" % at),
        stat("Ended processes", "Processes whose last state an agent keeps.",
             "count(nccl_pulse_process_up%s == 0)" % at),
        stat("Stuck pollers", "Processes whose background thread does not run.",
             "count((time() - nccl_pulse_last_poll_timestamp_seconds%s > 120) "
             "and (changes(nccl_pulse_last_poll_timestamp_seconds[2m]) == 0) "
             "and (nccl_pulse_process_up == 1))" % at, steps=bad_from(1)),
        stat("Overflowed", "Ranks without a free series.",
             "count(sum by (instance, comm, rank) (nccl_pulse_overflowed_operations_total%s) > 0)" % at,
             steps=bad_from(1)),
        stat("Series limit used", "In the process that uses most.",
             "max(nccl_pulse_series_used%s / nccl_pulse_series_limit)" % at, "percentunit",
             bad_from(0.8, 1), none="?"),
        height=4)
    board.add(table(
        "Endpoints down", "Scraped endpoints without an answer.", ("job", "instance"),
        ((None, 'max by (job, instance) (up{job=~"nccl-pulse.*", instance=~"$instance"} == 0)', "short"),),
        overrides=[override("job", custom__width=180)], none="All endpoints answer"), table(
        "Versions and modes", "Sources of durations and completions, per number of processes.",
        ("version", "nccl_api_version", "timing", "durations", "completions", "memory"),
        (("Processes", "count by (version, nccl_api_version, timing, durations, completions, memory) "
          "(nccl_pulse_build_info%s)" % at, "short"),)), height=6)

    board.row("Loss")
    board.add(
        graph("Ignored events", "Unusable callbacks, by reason. unfollowed_step and foreign_process belong "
              "to other processes (PXN).",
              (rate("nccl_pulse_ignored_events_total", "reason"), "{{reason}}"), unit="ops", none="None"),
        graph("Operations without a duration", "By reason. not_sampled is expected.",
              (rate("nccl_operations_without_duration_total", "reason"), "{{reason}}"), unit="ops", stack=True))
    board.add(
        graph("Reported below the call", "Share of calls for which NCCL reported algorithm and protocol.",
              ("avg by (op) (comm:nccl_visible_operations:ratio)", "{{op}}"), unit="percentunit"),
        graph("Refused and uncompleted",
              "Processes that endpoints refused; operations without a reported end.",
              (rate("nccl_pulse_processes_rejected_total", "reason"), "refused: {{reason}}"),
              (rate("nccl_operations_without_completion_total", "op"), "uncompleted: {{op}}"), unit="ops", none="None"))
    board.add(
        graph("Untrusted kernel timing", "Communicators whose GPU timestamps are not used.",
              ("count by (reason) (max by (comm, reason) (nccl_pulse_kernel_timing_untrusted%s) == 1)"
               % at, "{{reason}}"), none="None"),
        graph("Overflowed operations", "Operations beyond the series limit, of ten endpoints.",
              largest(rate("nccl_pulse_overflowed_operations_total", "instance"), "{{instance}}", 10), unit="ops",
              none="None"))

    board.row("Overhead")
    board.add(
        graph("Callback", "Mean time of a callback, on the ten slowest endpoints.",
              largest("%s / %s" % (rate("nccl_pulse_callback_duration_seconds_sum", "instance"),
                                   rate("nccl_pulse_callback_duration_seconds_count", "instance")),
                      "{{instance}}", 10), unit="s"),
        graph("Callbacks", "Callbacks by kind.",
              (rate("nccl_pulse_callbacks_total", "callback"), "{{callback}}"),
              unit="ops", stack=True))
    board.add(
        graph("Response", "Mean time to render a response, and the time of a scrape, on the ten slowest endpoints.",
              largest("%s / %s" % (rate("nccl_pulse_scrape_duration_seconds_sum", "instance"),
                                   rate("nccl_pulse_scrape_duration_seconds_count", "instance")),
                      "render: {{instance}}", 10),
              largest('scrape_duration_seconds{job=~"nccl-pulse.*", instance=~"$instance"}',
                      "scrape: {{instance}}", 10), unit="s"),
        graph("Samples", "Samples per scrape, of the ten largest endpoints.",
              largest('scrape_samples_scraped{job=~"nccl-pulse.*", instance=~"$instance"}', "{{instance}}", 10)))
    serving = '{job=~"nccl-pulse.*", instance=~"$instance"}'
    board.add(
        graph("CPU of the serving process", "Cores, of the ten busiest. An agent may use 0.25; a process of a job "
              "counts with all that it does.",
              largest("rate(process_cpu_seconds_total%s[$__rate_interval])" % serving, "{{instance}}", 10)),
        graph("Memory of the serving process", "Resident, of the ten largest agents and processes of jobs.",
              largest("process_resident_memory_bytes%s" % serving, "{{instance}}", 10), unit="bytes"))
    board.add(
        graph("Series used", "Of the largest process of each of ten endpoints.",
              largest("max by (instance) (nccl_pulse_series_used%s)" % at, "{{instance}}", 10),
              ("min(nccl_pulse_series_limit%s)" % at, "limit")),
        graph("Sampling", "n: one call in n is timed. The ten highest endpoints.",
              largest("max by (instance) (1 / nccl_pulse_sampling_ratio%s)" % at, "{{instance}}", 10)),
        graph("Network watched", "Share of time in which network steps are watched, of ten endpoints.",
              largest("max by (instance) (rate(nccl_pulse_network_observed_seconds_total%s[$__rate_interval]))"
                      % at, "{{instance}}", 10), unit="percentunit", none=NO_STEPS))
    return board.document
