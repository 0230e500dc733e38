"""Under load every launch completes, and every operation has a duration or a reason."""

import collections
import math
import time

import nccl_versions
from prove_job import Job
from prove_pages import DURATION, comm_named


def coverage(options, results):
    arguments = ["--sizes=" + ",".join(map(str, options.sizes)), "--seconds=%g" % options.seconds]
    exponents = [collections.Counter() for _ in range(options.ranks)]
    with Job(options, "coverage", "auto", ("warm", "coverage"), {}, arguments) as job:
        job.report("warm")
        job.go_on()
        reports = [None] * options.ranks

        def all_reported():
            for i, rank in enumerate(job.ranks):
                reports[i] = reports[i] or rank.report("coverage")
                # Only while "coverage" is used; "before" brings the exponent to rest.
                page = rank.scraper.last
                comm = comm_named(page, "coverage") if page else None
                calls = page.sums("nccl_operations_total", (), comm=comm) if comm else {}
                if not reports[i] and sum(calls.values()) > 5:
                    for _, value in page.select("nccl_pulse_sampling_ratio"):
                        exponents[i][int(-math.log2(value))] += 1
            return all(reports)

        job.wait("phase coverage", 60, all_reported)
        time.sleep(3)  # calls that nothing tells of have a reason after two seconds
        pages = job.settled_pages("stream")
    timed, accounted, launches, calls_found = [], [], [], []
    for page in pages:
        comm = comm_named(page, "coverage")
        timed.append(page.sums(DURATION + "_count", ("op", "size"), comm=comm, timing="stream"))
        calls = page.sums("nccl_operations_total", ("op",), comm=comm)
        calls_found.append(sum(calls.values()))
        untimed = page.sums("nccl_operations_without_duration_total", ("op",), comm=comm)
        accounted.append(sum(untimed.values()) + sum(timed[-1].values()))
        launches.append((
            sum(page.sums("nccl_launches_total", ()).values()),
            sum(page.sums("nccl_launches_completed_total", ()).values())))
    keys = sorted(set().union(*timed))
    equal = [key for key in keys if len({each.get(key, 0) for each in timed}) == 1]
    for key in keys:
        counts = [int(each.get(key, 0)) for each in timed]
        if len(set(counts)) > 1:
            print("  %s: timed %s" % ("/".join(key), counts))
    totals = [int(sum(each.values())) for each in timed]
    seen = [sorted(each) for each in exponents]
    same_exponent = len({tuple(each) for each in seen}) == 1 and len(seen[0]) == 1
    print("  sampling exponents while it ran, by rank: %s; timed calls by rank: %s of %d" %
          (seen, totals, calls_found[0]))
    spread = max(totals) - min(totals)
    if same_exponent:
        # A rank misses calls that the others time when its allowance of the second is used up.
        results.fact(bool(keys) and (equal == keys or spread <= 0.1 * max(totals)),
                     "with the same exponent the ranks timed the same number of calls in %d of %d "
                     "(op, size); %s timed of %d" % (len(equal), len(keys), totals, calls_found[0]))
    else:
        # Nested: what a rank with a larger exponent times is a subset.
        results.fact(bool(keys) and all(totals) and spread <= 0.5 * max(totals),
                     "exponents differed or changed (%s): equal in %d of %d (op, size), %s timed "
                     "of %d" % (seen, len(equal), len(keys), totals, calls_found[0]))
    results.fact(calls_found == [report["calls"] for report in reports],
                 "calls by rank %s, made %s" % ([int(c) for c in calls_found],
                                                [report["calls"] for report in reports]))
    # Each is alone in its group: also those that NCCL does not report are followed.
    broadcasts = [sum(value for (op, _), value in each.items() if op == "Broadcast") for each in timed]
    results.fact(accounted == calls_found and all(broadcasts),
                 "every call has a duration or a reason: %s; NCCL %s, Broadcasts with a duration: %s" % (
                     [int(a) for a in accounted], nccl_versions.text(reports[0]["nccl"]),
                     [int(b) for b in broadcasts]))
    results.fact(all(made == done > 0 for made, done in launches),
                 "launches made and completed by rank: %s" %
                 [tuple(map(int, each)) for each in launches])
