"""CUDA graphs: captures beside the plugin, and replays."""

import time

import check_rank
from prove_job import Job


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


def shows_captured(job, communicators):
    """Whether so many communicators are said to be captured; those of earlier rounds stay on the
    page, and a page may be a quarter of a second old."""
    deadline = time.monotonic() + 1
    while True:
        counts = [sum(page.sums("nccl_communicator_uses_cuda_graphs", ()).values()) for page in job.pages()]
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
    except check_rank.Failure as failure:
        note = "; %s" % failure
    results.fact(right == options.rounds and not note,
                 "%d of %d runs right%s (%d replays each, in %.0f s)" % (
                     right, options.rounds,
                     note or ", no capture invalidated, no hang", options.replays,
                     time.monotonic() - begin))
    results.fact(captured == options.rounds, "nccl_communicator_uses_cuda_graphs is 1 on all ranks in %d of "
                 "%d runs" % (captured, options.rounds))
