"""A rank that never calls: what the others say while they wait."""

import time

from prove_job import Job
from prove_pages import comm_named

HANG_WATCH_S = 5.0
HANG_AGE_S = 3.0
HANG_SETTLED_S = 0.5
ANSWER_S = 1.0


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
