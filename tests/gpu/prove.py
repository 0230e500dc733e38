#!/usr/bin/env python3
"""Proves on real GPUs what the plugin says of time: one part of it for each command.

    prove.py accuracy  --library ... --program proof_program --out FOLDER [--compare stream,kernel]
    prove.py straggler --library ... --program proof_program --out FOLDER
    prove.py coverage  --library ... --program proof_program --out FOLDER
    prove.py hang      --library ... --program proof_program --out FOLDER
    prove.py capture   --library ... --program proof_program --out FOLDER
    prove.py graph     --library ... --program torch_graph.py --out FOLDER

accuracy   The same AllReduces, once for each of two timings, in processes of their own because a
           process has one setting. All ranks' GPUs begin each operation together, behind another
           collective on the same stream, so launching and waiting for late ranks is in neither.
           Compared are mean and median of the durations on the page, all ranks together; the median
           is interpolated within its bucket (a factor of two), the mean is exact. `loop` is what an
           operation takes back to back by the host's clock: where it differs between the two runs,
           the timing itself changed the speed of NCCL. Timings: stream, kernel, network.
straggler  The last rank calls late by a known time: the others' durations grow by that time, its
           own do not.
coverage   Under load, all ranks time the same calls; every launch completes and every operation has
           a duration or a reason.
hang       The last rank never calls: on the others the oldest launch in flight stands still, pages
           are still served, and the plugin's thread goes on.
capture    Graphs captured in global mode while a collective is in flight and the plugin's thread
           looks at it: none may be invalidated, and what they compute must be right.
graph      CUDA graphs of PyTorch with collectives, captured in global mode; torch_graph.py.

Each prints lines "RESULT OK|WRONG <part>: <fact>", and ends all it started within --limit seconds.
Exit status: 0 all OK; 1 not. Python 3.9's standard library alone, and check.py.
"""

import argparse
import collections
import http.client
import os
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check  # noqa: E402  (beside this file)
import nccl_versions  # noqa: E402

DURATION = "nccl_operation_duration_seconds"

# What makes a process time operations in this way, with more samples than a job would take.
TIMINGS = {
    "stream": ("auto", {"NCCL_PULSE_TIMED_LAUNCHES_PER_SECOND": "1000000"}),
    "kernel": ("kernel", {}),
    "network": ("auto", {"NCCL_PULSE_NETWORK_WINDOW": "100", "NCCL_PULSE_HISTOGRAMS": "both"}),
}

HANG_WATCH_S = 5.0
HANG_AGE_S = 3.0
HANG_SETTLED_S = 0.5
ANSWER_S = 1.0


class Results:
    """The facts of a part."""

    def __init__(self, part):
        self.part = part
        self.wrong = 0

    def fact(self, holds, text):
        self.wrong += not holds
        print("RESULT %s %s: %s" % ("OK" if holds else "WRONG", self.part, text), flush=True)


class Job:
    """The ranks of one run, ended when the block ends."""

    def __init__(self, options, name, timing, phases, environment=None, arguments=()):
        self.options = argparse.Namespace(**vars(options))
        self.options.out = os.path.join(options.out, name)
        self.options.timing = timing
        self.options.phases = ",".join(phases)
        self.options.environment = environment or {}
        self.options.arguments = list(arguments)
        self.name = name
        self.ranks = []
        self.work = None

    def __enter__(self):
        shutil.rmtree(self.options.out, ignore_errors=True)
        os.makedirs(self.options.out)
        self.work = tempfile.TemporaryDirectory(prefix="pulse-prove-")
        try:
            for i in range(self.options.ranks):
                self.ranks.append(check.Rank(self.options, i, self.work.name))
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and issubclass(kind, check.Failure):
            for rank in self.ranks:
                print("rank%d: %s" % (rank.rank, "\n".join(rank.tails())), flush=True)
        for rank in self.ranks:
            rank.kill()
        self.work.cleanup()

    def remaining(self):
        return max(0.0, self.options.deadline - time.monotonic())

    def wait(self, what, seconds, done):
        deadline = time.monotonic() + min(seconds, self.remaining())
        while True:
            result = done()
            if result:
                return result
            for rank in self.ranks:
                status = rank.process.poll()
                if status is not None and not rank.reader.is_alive() and not done():
                    raise check.Failure("%s %s: rank %d ended with status %d" %
                                        (self.name, what, rank.rank, status))
            if time.monotonic() > deadline:
                raise check.Failure("%s %s: no answer in time" % (self.name, what))
            time.sleep(0.02)

    def report(self, phase, seconds=60):
        """All ranks' reports of this phase."""
        reports = [None] * len(self.ranks)

        def all_reported():
            for i, rank in enumerate(self.ranks):
                reports[i] = reports[i] or rank.report(phase)
            return all(reports)

        self.wait("phase " + phase, seconds, all_reported)
        return reports

    def go_on(self):
        for rank in self.ranks:
            rank.go_on()

    def pages(self):
        try:
            pages = [rank.scraper.scrape() for rank in self.ranks]
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise check.Failure("%s: scrape failed: %r" % (self.name, error)) from error
        for rank in self.ranks:
            path = os.path.join(self.options.out, "page-rank%d.txt" % rank.rank)
            with open(path, "w", encoding="utf-8") as file:
                file.write(rank.scraper.text)
        if not all(pages):
            raise check.Failure(self.name + ": a rank has no endpoint: " + " / ".join(
                line for rank in self.ranks for line in plugin_lines(rank.log)[-2:]))
        return pages

    def settled_pages(self, timing):
        """Pages on which the number of durations has stood still for a second and a half: kernel
        and network timing settle what they have a second late."""
        last, since = None, time.monotonic()
        deadline = time.monotonic() + min(10, self.remaining())
        while True:
            pages = self.pages()
            counts = [sum(page.sums(DURATION + "_count", (), timing=timing).values())
                      for page in pages]
            if counts != last:
                last, since = counts, time.monotonic()
            elif time.monotonic() > since + 1.5 or time.monotonic() > deadline:
                return pages
            time.sleep(0.2)

    def await_full_sampling(self):
        """Until every launch may be timed: the sampler adapts once a second."""

        def all_sampled():
            return all(value == 0 for page in self.pages()
                       for _, value in page.select("nccl_pulse_sampling_exponent"))

        self.wait("sampling", 60, all_sampled)


def plugin_lines(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as log:
            return [line.strip() for line in log if "NCCL Pulse: " in line]
    except FileNotFoundError:
        return ["(no log)"]


def durations_by_name(pages, timing):
    """{comm_name: {rank: (count, sum, {bound: cumulative})}} of AllReduce."""
    result = collections.defaultdict(dict)
    for rank, page in enumerate(pages):
        names = {labels["comm"]: labels.get("comm_name", "")
                 for labels, _ in page.select("nccl_communicator_info")}
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


# ---- accuracy ------------------------------------------------------------------------------------


def measure_sizes(options, timing):
    """({size: (count, mean us, median us)}, {size: loop us}) of all ranks together."""
    setting, environment = TIMINGS[timing]
    arguments = ["--sizes=" + ",".join(map(str, options.sizes)),
                 "--repeats=%d" % options.repeats]
    with Job(options, "accuracy-" + timing, setting, ("warm", "sizes", "loop"), environment,
             arguments) as job:
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
    return result, {size: sum(loop[str(size)] for loop in loops) / len(loops)
                    for size in options.sizes}


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


# ---- straggler -----------------------------------------------------------------------------------


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


# ---- coverage ------------------------------------------------------------------------------------


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
                    for _, value in page.select("nccl_pulse_sampling_exponent"):
                        exponents[i][int(value)] += 1
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
        untimed = page.sums("nccl_untimed_operations_total", ("op",), comm=comm)
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
    broadcasts = [sum(value for (op, _), value in each.items() if op == "Broadcast")
                  for each in timed]
    results.fact(accounted == calls_found and all(broadcasts),
                 "every call has a duration or a reason: %s; NCCL %s, Broadcasts with a duration: %s" % (
                     [int(a) for a in accounted], nccl_versions.text(reports[0]["nccl"]),
                     [int(b) for b in broadcasts]))
    results.fact(all(made == done > 0 for made, done in launches),
                 "launches made and completed by rank: %s" %
                 [tuple(map(int, each)) for each in launches])


def comm_named(page, name):
    return next((labels["comm"] for labels, _ in page.select("nccl_communicator_info")
                 if labels.get("comm_name", "") == name), None)


# ---- hang ----------------------------------------------------------------------------------------


def hang(options, results):
    waiting = range(options.ranks - 1)
    with Job(options, "hang", "auto", ("warm", "hang")) as job:
        job.report("warm")
        job.go_on()
        job.report("hang")
        for rank in job.ranks:
            rank.scraper.stop.set()  # only this thread reads from now on
        # Seen at the poller's next look, and on the next page.
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and not all(
                page.sums("nccl_oldest_inflight_launch_timestamp_seconds", (),
                          comm=comm_named(page, "hang")) for page in job.pages()[:-1]):
            time.sleep(0.1)
        begin = time.monotonic()
        oldest = [[] for _ in job.ranks]  # (seconds since, timestamp, age, in flight)
        polls = [[] for _ in job.ranks]
        slowest = [0.0] * options.ranks
        answers = [0] * options.ranks
        while time.monotonic() < begin + HANG_WATCH_S:
            for i, rank in enumerate(job.ranks):
                asked = time.monotonic()
                page = rank.scraper.scrape()
                slowest[i] = max(slowest[i], time.monotonic() - asked)
                answers[i] += 1
                comm = comm_named(page, "hang")

                def value(name, page=page, **labels):
                    return next((v for _, v in page.select(name, **labels)), None)

                stamp = value("nccl_oldest_inflight_launch_timestamp_seconds", comm=comm)
                flying = value("nccl_inflight_launches", comm=comm)
                oldest[i].append((asked - begin, stamp, time.time() - (stamp or 0), flying))
                polls[i].append(value("nccl_pulse_last_poll_timestamp_seconds"))
            time.sleep(0.2)
        job.pages()
    for i in waiting:
        # After a tenth of a second of standstill an estimate gives way to the exact time.
        stamps = {stamp for at, stamp, _, _ in oldest[i] if at > HANG_SETTLED_S}
        first = next((at for at, stamp, age, flying in oldest[i]
                      if stamp and age > HANG_AGE_S and flying), None)
        stands = len(stamps) == 1 and None not in stamps and 0 not in stamps
        # Two clocks are added up for a timestamp, so the last digits may move.
        numbers = [stamp for stamp in stamps if stamp]
        stands = stands or (len(numbers) == len(stamps) and max(numbers) - min(numbers) < 0.005)
        _, stamp, age, flying = oldest[i][-1]
        results.fact(stands and first is not None,
                     "rank %d waits: oldest launch in flight stands still (%s), %.1f s old at the "
                     "end, older than %g s after %s s of watching, %s in flight" % (
                         i, "unchanged" if stands else "CHANGED: %s" % sorted(stamps, key=str),
                         age, HANG_AGE_S, "no" if first is None else "%.1f" % first, flying))
    last = oldest[-1][-1]
    results.fact(last[3] == 0 and last[1] == 0,
                 "the rank that never called has %s launches in flight" % last[3])
    results.fact(max(slowest) < ANSWER_S, "every endpoint answered %s times, at most %.0f ms" %
                 ("/".join(map(str, answers)), max(slowest) * 1000))
    moves = [len(set(each)) for each in polls]
    results.fact(all(None not in each and each[-1] - each[0] > HANG_WATCH_S * 0.7 and
                     max(b - a for a, b in zip(each, each[1:])) < 1.5 for each in polls),
                 "last poll moves on: %s different values in %s pages" % (moves, answers))


# ---- capture -------------------------------------------------------------------------------------


def capture(options, results):
    with Job(options, "capture", "auto", ("warm", "capture"),
             arguments=["--repeats=%d" % options.rounds]) as job:
        job.report("warm")
        job.go_on()
        reports = job.report("capture", 60)
        pages = job.settled_pages("stream")
    right = [report["right"] for report in reports]
    results.fact(all(report["right"] == report["captures"] for report in reports),
                 "captured in global mode while a collective was in flight: right on each rank %s "
                 "of %d, invalidated %s" % (right, options.rounds,
                                            [report["invalidated"] for report in reports]))
    launches = [(sum(page.sums("nccl_launches_total", ()).values()),
                 sum(page.sums("nccl_launches_completed_total", ()).values())) for page in pages]
    results.fact(all(made == done > 0 for made, done in launches),
                 "launches made and completed by rank, those of graphs left out: %s" %
                 [tuple(map(int, each)) for each in launches])


# ---- graph ---------------------------------------------------------------------------------------


def shows_captured(job, communicators):
    """Whether so many communicators are said to be captured; those of earlier rounds stay on the
    page, and a page may be a quarter of a second old."""
    deadline = time.monotonic() + 1
    while True:
        counts = [sum(page.sums("nccl_communicator_captured", ()).values()) for page in job.pages()]
        if min(counts) >= communicators:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)


def graph(options, results):
    right, captured, note = 0, 0, ""
    phases = ["round%d" % i for i in range(options.rounds)]
    begin = time.monotonic()
    try:
        with Job(options, "graph", "auto", phases, {}, ["--replays=%d" % options.replays]) as job:
            for done, phase in enumerate(phases):
                started = time.monotonic()
                reports = job.report(phase, 60 if phase == "round0" else 20)
                captured += shows_captured(job, done + 1)
                holds = all(report["wrong"] == 0 and not report["error"] for report in reports)
                right += holds
                if not holds or phase == "round0":
                    print("  %s, %.1f s: %s" % (phase, time.monotonic() - started, reports))
                if any(report["error"] for report in reports):
                    note = "; " + next(r["error"] for r in reports if r["error"])
                    break
                job.go_on()
    except check.Failure as failure:
        note = "; %s" % failure
    results.fact(right == options.rounds and not note,
                 "%d of %d runs right%s (%d replays each, in %.0f s)" % (
                     right, options.rounds,
                     note or ", no capture invalidated, no hang", options.replays,
                     time.monotonic() - begin))
    results.fact(captured == options.rounds, "nccl_communicator_captured is 1 on all ranks in %d of "
                 "%d runs" % (captured, options.rounds))


PARTS = {"accuracy": accuracy, "straggler": straggler, "coverage": coverage, "hang": hang,
         "capture": capture, "graph": graph}
SIZES = {"accuracy": [64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 128 << 20,
                      256 << 20],
         "coverage": [64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20]}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("--library", required=True, help="the plugin")
    parser.add_argument("--program", required=True, help="proof_program, or torch_graph.py")
    parser.add_argument("--libraries", default="",
                        help="folders of libnccl and libcudart, with colons between")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mode", choices=("nvlink", "network"), default="nvlink")
    parser.add_argument("--compare", default="stream,kernel", metavar="ONE,OTHER",
                        help="two of " + ", ".join(TIMINGS))
    parser.add_argument("--sizes", default="", help="bytes, with commas between")
    parser.add_argument("--repeats", type=int, default=0, help="calls of each size or delay")
    parser.add_argument("--seconds", type=float, default=5, help="of load, for coverage")
    parser.add_argument("--rounds", type=int, default=20, help="captures, for capture and graph")
    parser.add_argument("--replays", type=int, default=100, help="of each capture")
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--limit", type=float, default=100, help="seconds for all of it")
    parser.add_argument("--out", required=True, help="folder for logs and pages")
    options = parser.parse_args()
    options.sizes = ([int(size) for size in options.sizes.split(",")] if options.sizes
                     else SIZES.get(options.part, [64]))
    options.repeats = options.repeats or (200 if options.part == "accuracy" else 60)
    compared = options.compare.split(",")
    if len(compared) != 2 or not set(compared) <= set(TIMINGS):
        parser.error("--compare takes two of " + ", ".join(TIMINGS))
    options.deadline = time.monotonic() + options.limit
    return options


def main():
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("prove.py: terminated"))
    os.makedirs(options.out, exist_ok=True)
    results = Results(options.part)
    try:
        PARTS[options.part](options, results)
    except (check.Failure, OSError, http.client.HTTPException, ValueError) as failure:
        results.fact(False, "did not finish: %s" % failure)
    return 1 if results.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
