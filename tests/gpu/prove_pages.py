"""Durations on the pages of a run, and their differences."""

import collections


DURATION = "nccl_operation_duration_seconds"


def durations_by_name(pages, timing):
    """{comm_name: {rank: (count, sum, {bound: cumulative})}} of AllReduce."""
    result = collections.defaultdict(dict)
    for rank, page in enumerate(pages):
        names = {labels["comm"]: labels.get("comm_name", "") for labels, _ in page.select("nccl_communicator_info")}
        found = collections.defaultdict(lambda: [0.0, 0.0, collections.Counter()])
        for (metric, label_set), value in page.samples.items():
            if not metric.startswith(DURATION):
                continue
            labels = dict(label_set)
            if labels.get("timing") != timing or labels.get("op") != "AllReduce":
                continue
            entry = found[names.get(labels["comm"], "")]
            if metric.endswith("_count"):
                entry[0] += value
            elif metric.endswith("_sum"):
                entry[1] += value
            elif metric.endswith("_bucket"):
                entry[2][float(labels["le"])] += value
        for name, entry in found.items():
            result[name][rank] = tuple(entry)
    return result


def difference(after, before):
    """What was added between two pages, by name and rank."""
    result = collections.defaultdict(dict)
    for name, ranks in after.items():
        for rank, (count, total, buckets) in ranks.items():
            old = before.get(name, {}).get(rank, (0, 0.0, {}))
            result[name][rank] = (count - old[0], total - old[1],
                                  {bound: value - old[2].get(bound, 0)
                                   for bound, value in buckets.items()})
    return result


def over_ranks(ranks):
    buckets = collections.Counter()
    for _, _, each in ranks.values():
        buckets.update(each)
    return sum(r[0] for r in ranks.values()), sum(r[1] for r in ranks.values()), buckets


def mean_us(count, total):
    return total / count * 1e6 if count else float("nan")


def median_us(count, buckets):
    """Interpolated within its bucket."""
    below, lower = 0.0, 0.0
    for bound in sorted(buckets):
        if buckets[bound] >= count / 2 and count:
            if bound == float("inf"):
                return lower * 1e6
            share = (count / 2 - below) / (buckets[bound] - below)
            return (lower + share * (bound - lower)) * 1e6
        below, lower = buckets[bound], bound
    return float("nan")


def human(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return "%g %s" % (size / unit, name)
    return "%d B" % size


def comm_named(page, name):
    return next((labels["comm"] for labels, _ in page.select("nccl_communicator_info")
                 if labels.get("comm_name", "") == name), None)
