"""How exact durations are, and that a late rank shows in those of the others."""

from prove_job import Job, TIMINGS
from prove_pages import difference, durations_by_name, human, mean_us, median_us, over_ranks


def measure_sizes(options, timing):
    """({size: (count, mean us, median us)}, {size: loop us}) of all ranks together."""
    setting, environment = TIMINGS[timing]
    arguments = ["--sizes=" + ",".join(map(str, options.sizes)), "--repeats=%d" % options.repeats]
    with Job(options, "accuracy-" + timing, setting, ("warm", "sizes", "loop"), environment, arguments) as job:
        job.report("warm")
        job.await_full_sampling()
        before = durations_by_name(job.settled_pages(timing), timing)
        job.go_on()
        job.report("sizes", 100)
        after = durations_by_name(job.settled_pages(timing), timing)
        job.go_on()
        loops = [report["loop_us"] for report in job.report("loop")]
    added = difference(after, before)
    result = {}
    for size in options.sizes:
        count, total, buckets = over_ranks(added.get("size-%d" % size, {}))
        result[size] = (count, mean_us(count, total), median_us(count, buckets))
    return result, {size: sum(loop[str(size)] for loop in loops) / len(loops) for size in options.sizes}


def accuracy(options, results):
    one, other = options.compare.split(",")
    first, first_loop = measure_sizes(options, one)
    second, second_loop = measure_sizes(options, other)
    print("%s against %s, %s, %d ranks, AllReduce; us" % (one, other, options.mode, options.ranks))
    print("%9s | %7s %7s | %11s %11s | %9s %7s | %11s %11s %9s | %9s %9s" % (
        "size", "n " + one[:5], "n " + other[:5], one + " mean", other + " mean", "diff us",
        "diff %", one + " p50", other + " p50", "diff us", "loop " + one[:4],
        "loop " + other[:4]))
    biggest = 0.0
    for size in options.sizes:
        n1, mean1, p1 = first[size]
        n2, mean2, p2 = second[size]
        print("%9s | %7d %7d | %11.1f %11.1f | %+9.1f %+7.1f | %11.1f %11.1f %+9.1f | "
              "%9.1f %9.1f" % (
                  human(size), n1, n2, mean1, mean2, mean1 - mean2,
                  (mean1 / mean2 - 1) * 100 if mean2 else float("nan"), p1, p2, p1 - p2,
                  first_loop[size], second_loop[size]))
        if mean2 and n1 and n2:
            biggest = max(biggest, abs(mean1 - mean2))
    counted = [size for size in options.sizes if first[size][0] > 0 and second[size][0] > 0]
    results.fact(counted == options.sizes,
                 "%s against %s, %s: %d of %d sizes have durations of both; the means differ by at "
                 "most %.1f us" % (one, other, options.mode, len(counted), len(options.sizes),
                                   biggest))
    if "kernel" in (one, other) and counted:
        rows = []
        for size in counted:
            a, b = first[size][1], second[size][1]
            if b > 0:
                rows.append("%s %+.1f us (%+.1f %%)" % (human(size), a - b, (a / b - 1) * 100))
        results.fact(True, "difference of the means: " + ", ".join(rows))


def straggler(options, results):
    delays = (0, 1, 5, 20)
    setting, environment = TIMINGS["stream"]
    arguments = ["--delays-ms=" + ",".join(map(str, delays)), "--repeats=%d" % options.repeats]
    with Job(options, "straggler", setting, ("warm", "straggler"), environment, arguments) as job:
        job.report("warm")
        job.await_full_sampling()
        before = durations_by_name(job.settled_pages("stream"), "stream")
        job.go_on()
        job.report("straggler", 60)
        after = durations_by_name(job.settled_pages("stream"), "stream")
    added = difference(after, before)
    last = options.ranks - 1
    print("mean duration of AllReduce 64 KiB in us (timed calls); rank %d calls late" % last)
    means = {}
    for delay in delays:
        row = []
        for rank in range(options.ranks):
            count, total, _ = added.get("delay-%d" % delay, {}).get(rank, (0, 0.0, {}))
            means[delay, rank] = mean_us(count, total)
            row.append("rank%d %9.1f (%3d)" % (rank, means[delay, rank], count))
        print("  late by %2d ms: %s" % (delay, "   ".join(row)))
    for delay in delays[1:]:
        growth = [(means[delay, rank] - means[0, rank]) / 1000 for rank in range(options.ranks)]
        # A sleep lasts a bit longer than it should, never shorter; what it is compared with is not
        # the same each time either.
        holds = all(0.9 * delay - 0.2 <= grown <= 1.5 * delay + 1 for grown in growth[:last])
        holds = holds and growth[last] < 0.2 * delay + 0.3
        results.fact(holds, "late by %d ms: the others' mean grows by %s ms, its own by %.3f ms" % (
            delay, ", ".join("%.3f" % grown for grown in growth[:last]), growth[last]))
