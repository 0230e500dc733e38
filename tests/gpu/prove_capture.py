"""CUDA graphs: captures beside the plugin."""

from prove_job import Job


def capture(options, results):
    with Job(options, "capture", "auto", ("warm", "capture"), arguments=["--repeats=%d" % options.rounds]) as job:
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
