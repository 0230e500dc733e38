"""Measurements and what follows from them, as tables in Markdown."""

from bench.fleet import rule_cost
from bench.fleet.extrapolation import SAMPLES_OF_A_CHUNK, USABLE

_DEAREST = 12


def _number(value):
    """Three digits that count, and no more than one wants to read."""
    if value == 0:
        return "0"
    for limit, unit in ((1e9, " billion"), (1e6, " million")):
        if value >= limit:
            return "%.3g%s" % (value / limit, unit)
    if value >= 1000:
        return "{:,.0f}".format(value)
    return "%.3g" % value


def _bytes(value):
    for limit, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= limit:
            return "%.3g %s" % (value / limit, unit)
    return "%.3g B" % value


def _time(seconds):
    return "%.2g s" % seconds if seconds >= 1 else "%.3g ms" % (1000 * seconds)


def _table(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def measured(runs):
    def row(name, text):
        return [name, *(text(run) for run in runs)]

    return _table(["", *("%s, %s ranks" % (run.format, _number(run.ranks)) for run in runs)], [
        row("endpoints; every", lambda r: "%d; %g s" % (r.nodes, r.interval_s)),
        row("series of the pages; of a rank", lambda r: "%s; %s" % (
            _number(r.scraped_series), _number(r.scraped_series / r.ranks))),
        row("series that rules record", lambda r: _number(r.recorded_series)),
        row("of them rank:, comm:, workload:, job:", lambda r: ", ".join(
            _number(r.recorded.get(level, 0)) for level in ("rank", "comm", "workload", "job"))),
        row("series in the head", lambda r: _number(r.head_series)),
        row("samples/s", lambda r: _number(r.samples_per_s)),
        row("a node's page; gzip", lambda r: "%s; %s" % (
            _bytes(r.page_bytes), _bytes(r.page_gzip_bytes))),
        row("processor time of an endpoint, a scrape", lambda r: _time(r.page_cpu_s)),
        row("a scrape: mean; slowest; failed", lambda r: "%s; %s; %.2g %%" % (
            _time(r.scrape_mean_s), _time(r.scrape_slowest_s), 100 * r.failed_scrapes)),
        row("Prometheus: memory, mean; peak", lambda r: "%s; %s" % (
            _bytes(r.memory_mean), _bytes(r.memory_peak))),
        row("Prometheus: processors that it had", lambda r: "%.2g" % r.cores),
        row("that it needs: scraping and storing + recording + rules", lambda r: "%.2g + %.2g + %.2g = %.2g" % (
            r.scraping_cores(), r.recording_cores(), rule_cost.cores(r.rule_costs), r.needed_cores())),
        row("processor time of a sample, without rules", lambda r: "%.3g µs" % (1e6 * r.sample_cpu_s)),
        row("rules: on the clock, s/s", lambda r: "%.2g" % r.rules_share()),
        row("busiest group on the clock, of its interval", lambda r: "%s, %.2g %%" % (
            r.busiest_group()[0], 100 * r.busiest_group()[1])),
        row("evaluations left out", lambda r: "%d" % r.missed_evaluations),
        row("WAL, a sample", lambda r: _bytes(r.wal_bytes_per_sample)),
        row("block: chunks, a sample; index, a series", lambda r: "%s; %s" % (
            _bytes(r.chunk_bytes_per_sample), _bytes(r.index_bytes_per_series))),
        row("remote write: series; samples/s; bytes/s", lambda r: "%s; %s; %s" % (
            _number(r.remote_series), _number(r.remote_samples_per_s),
            _bytes(r.remote_bytes_per_s))),
    ])


def rules(runs):
    """What the groups of rules and the dearest rules take, of each run."""
    groups = [rule_cost.by_group(run.rule_costs) for run in runs]
    every = {cost.group: cost.interval_s for run in runs for cost in run.rule_costs}
    text = "Processor time of one evaluation, and its share in that of all rules:\n\n"
    text += _table(["group; every", *(run.format for run in runs)], [
        ["`%s`; %g s" % (name, interval_s), *("%s, %.2g %%" % (
            _time(of_run[name][0]), 100 * of_run[name][1] / sum(cores for _, cores in of_run.values()))
                                               for of_run in groups)]
        for name, interval_s in every.items()])
    for run in runs:
        whole = rule_cost.cores(run.rule_costs)
        text += "\n%s: the dearest of %d rules, that take %.2g processors:\n\n" % (run.format, len(run.rule_costs), whole)
        text += _table(["rule", "group", "series", "one evaluation", "of all rules"], [
            ["`%s`" % cost.name, cost.group, _number(cost.series), _time(cost.cpu_s),
             "%.2g %%" % (100 * cost.cores() / whole)]
            for cost in sorted(run.rule_costs, key=lambda cost: -cost.cores())[:_DEAREST]])
    return text


def extrapolated(fleets, server_bytes):
    def row(name, text):
        return [name, *(text(fleet) for fleet in fleets)]

    return _table(["", *("%s, %s GPUs" % (f.format, _number(f.ranks)) for f in fleets)], [
        row("series of the pages", lambda f: _number(f.scraped_series)),
        row("series that rules record", lambda f: _number(f.recorded_series)),
        row("samples/s", lambda f: _number(f.samples_per_s)),
        row("received, gzip", lambda f: _bytes(f.received_bytes_per_s) + "/s"),
        row("memory: constant; a series", lambda f: "%s; %s" % (
            _bytes(f.memory.constant), _bytes(f.memory.slope))),
        row("memory, all in one", lambda f: _bytes(f.memory_bytes)),
        row("processors; of these rules", lambda f: "%.2g; %.2g" % (f.cores, f.rules_cores)),
        row("busiest group of rules, processor time of its interval, all in one",
            lambda f: "%.3g %%" % (100 * f.rules_share)),
        row("servers of %s: by memory; by rules" % _bytes(server_bytes),
            lambda f: "%d; %d" % (f.servers_by_memory, f.servers_by_rules)),
        row("remote write: series; samples/s; bytes/s", lambda f: "%s; %s; %s" % (
            _number(f.remote_series), _number(f.remote_samples_per_s),
            _bytes(f.remote_bytes_per_s))),
    ]) + ("\nSeries, samples, bytes and processors: in proportion to the ranks. Memory: a constant and "
          "a part in proportion to the series, through the peaks of the two fleets, with %d "
          "samples for each series, a full chunk. A server is full at %g %% of its memory, or when its "
          "busiest group takes as much of its interval on one processor.\n" % (SAMPLES_OF_A_CHUNK, 100 * USABLE))
