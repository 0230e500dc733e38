"""The dashboard of the exporter's own health: whether to trust the others."""

from panels import Dashboard, bad_from, graph, query_variable, stat, table


def exporter():
    at = '{instance=~"$instance"}'
    board = Dashboard(
        "nccl-pulse-exporter", "NCCL / Exporter health", "Whether to trust the others, and what it costs.",
        query_variable("instance", "label_values(nccl_pulse_processes, instance)", "Endpoint", ".*"))

    def rate(name, by, more=""):
        return "sum by (%s) (rate(%s{instance=~\"$instance\"%s}[$__rate_interval]))" % (by, name, more)

    board.add(
        stat("Endpoints", "That answer.", 'sum(up{job=~"nccl-pulse.*", instance=~"$instance"})'),
        stat("Processes", "Alive.", "sum(nccl_pulse_process_up%s)" % at),
        stat("Ended processes", "Whose last state an agent shows.",
             "count(nccl_pulse_process_up%s == 0)" % at),
        stat("Stuck pollers", "Processes that do not look at their GPU.",
             "count((time() - nccl_pulse_last_poll_timestamp_seconds%s > 120) "
             "and (changes(nccl_pulse_last_poll_timestamp_seconds[2m]) == 0) "
             "and (nccl_pulse_process_up == 1))" % at, steps=bad_from(1)),
        stat("Overflowed", "Processes that are out of series.",
             "count(sum by (instance, comm, rank) (nccl_pulse_overflowed_operations_total%s) > 0)" % at,
             steps=bad_from(1)),
        stat("Fullest", "Series used of those that can be.",
             "max(nccl_pulse_series_used%s / nccl_pulse_series_limit)" % at, "percentunit",
             bad_from(0.8, 1), none="?"),
        height=4)
    board.add(table(
        "Versions and what was picked", "durations, completions: where they come from.",
        ("version", "nccl_api_version", "timing", "durations", "completions", "event_mask", "memory"),
        (("Processes", "count by (version, nccl_api_version, timing, durations, completions, event_mask, "
          "memory) (nccl_pulse_build_info%s)" % at, "short"),)), height=6)

    board.row("Loss")
    board.add(
        graph("Ignored events", "Callbacks that could not be used, by reason. unfollowed_step and "
              "foreign_process are other processes' (PXN).",
              (rate("nccl_pulse_ignored_events_total", "reason"), "{{reason}}"), unit="ops"),
        graph("Operations without a duration", "By reason; not_sampled is by design.",
              (rate("nccl_untimed_operations_total", "reason"), "{{reason}}"), unit="ops", stack=True))
    board.add(
        graph("Seen below the call", "Share of the calls, of each operation, for which NCCL reported "
              "algorithm and protocol.",
              ("avg by (op) (comm:nccl_visible_operations:ratio)", "{{op}}"), unit="percentunit"),
        graph("Refused and uncompleted",
              "Segments that endpoints refused; operations whose end was not seen.",
              (rate("nccl_pulse_segments_rejected_total", "reason"), "refused: {{reason}}"),
              (rate("nccl_uncompleted_operations_total", "op"), "uncompleted: {{op}}"), unit="ops"))
    board.add(
        graph("Without trust in kernel timing", "Communicators whose GPU timestamps are not believed.",
              ("count by (reason) (max by (comm, reason) (nccl_pulse_kernel_timing_untrusted%s) == 1)"
               % at, "{{reason}}")),
        graph("Overflowed operations", "Past the limit of series.",
              (rate("nccl_pulse_overflowed_operations_total", "instance"), "{{instance}}"), unit="ops"))

    board.row("Cost")
    board.add(
        graph("Callback", "What a sample of NCCL's callbacks cost their thread, on average.",
              ("%s / %s" % (rate("nccl_pulse_callback_duration_seconds_sum", "instance"),
                            rate("nccl_pulse_callback_duration_seconds_count", "instance")),
               "{{instance}}"), unit="s"),
        graph("Callbacks", "By kind.", (rate("nccl_pulse_callbacks_total", "callback"), "{{callback}}"),
              unit="ops", stack=True))
    board.add(
        graph("Page", "What an endpoint takes to make a page, on average, and Prometheus to get it.",
              ("%s / %s" % (rate("nccl_pulse_scrape_duration_seconds_sum", "instance"),
                            rate("nccl_pulse_scrape_duration_seconds_count", "instance")),
               "make: {{instance}}"),
              ('scrape_duration_seconds{job=~"nccl-pulse.*", instance=~"$instance"}',
               "get: {{instance}}"), unit="s"),
        graph("Samples", "That a scrape brings.",
              ('scrape_samples_scraped{job=~"nccl-pulse.*", instance=~"$instance"}', "{{instance}}")))
    board.add(
        graph("Series used", "Of the process with the most.",
              ("max by (instance) (nccl_pulse_series_used%s)" % at, "{{instance}}"),
              ("min(nccl_pulse_series_limit%s)" % at, "limit")),
        graph("Sampling", "n: one call in 2^n is timed. Highest of the endpoint's processes.",
              ("max by (instance) (nccl_pulse_sampling_exponent%s)" % at, "{{instance}}")),
        graph("Network watched", "Share of the time in which network steps are watched.",
              ("max by (instance) (rate(nccl_pulse_network_observed_seconds_total%s[$__rate_interval]))"
               % at, "{{instance}}"), unit="percentunit"))
    return board.document
