#!/usr/bin/env python3
"""Injects hangs and stragglers into jobs on real GPUs, and checks whom the product names, and when.

    inject.py --library libnccl-profiler-pulse.so --program inject_program --pulse pulse
              --libraries FOLDERS --gpus 4 --out FOLDER [--parts hangs,stragglers,replays]

hangs       inject_cases.py says which, and what is expected. Each in a job of its own with one process
            a GPU, twice: with the page served by one of the job's processes, and by `pulse agent`.
            Jobs that hang share the GPUs, --parallel at a time. A job runs for 3 s, then one rank
            gets the fault, and the endpoint is read every 5 s from a random moment on, as Prometheus
            does, until it shows a verdict. `pulse status` is kept.
stragglers  One job, PyTorch DDP (inject_ddp.py) or, without PyTorch, AllReduces with pauses
            (inject_program --control). First 30 s in which nobody is late and nobody may be named;
            on the same communicator then the last rank is late, as in a job that has run for a
            while. Then each rank in turn, by each delay, on a communicator of its own each time;
            time counts from its fifth step. It is read like a hang until a rank is named.
replays     Both within the replays of CUDA graphs: inject_graphs.py says which, and what is expected.

Prints "RESULT OK|WRONG|LEFT OUT|NOT RUN ..." lines and a table, writes OUT/results.jsonl, a line for each
case, and one folder of logs and pages for each job. Exit status: 0 when all cases were run and right;
1 else. It ends all it started within --budget seconds. Python 3.9's standard library alone.
"""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# Beside this file.
import inject_cases  # noqa: E402
import inject_evidence  # noqa: E402
import inject_graphs  # noqa: E402
import inject_options  # noqa: E402
import inject_watch  # noqa: E402
from inject_job import Failure, Job, wait_until  # noqa: E402
from inject_results import Results, table  # noqa: E402
from inject_stragglers import stragglers  # noqa: E402


def inject(job, case, rank):
    another = next((i for i in range(len(job.ranks)) if i not in (rank, job.server())), None)
    if case.name in inject_cases.SIGNALS:
        os.kill(job.ranks[rank].pid, signal.SIGSTOP if case.name == "stopped" else signal.SIGKILL)
    elif case.fault != "none":
        job.ranks[rank].tell(case.fault or case.name)
    if case.name == "killed-node":
        job.options.limit.sleep(0.4)
        os.kill(job.ranks[another].pid, signal.SIGKILL)
    if case.name == "watchdog":
        job.options.limit.sleep(6)  # an end within 5 s of the wait's begin may be its cause
        job.ranks[another].tell("abort")


def warm_up(options, job):
    """The communicators "train" and "other" of a job that runs and has no hang."""
    job.wait_running("running")
    wait_until(lambda: len((inject_watch.communicator(job, "train") or {"ranks": ()})["ranks"])
               == options.gpus, 20, "all ranks are on the page")
    options.limit.sleep(options.run_in)
    comms = [wait_until(lambda name=name: inject_watch.communicator(job, name), 20, name + " is on the page")
             for name in ("train", "other")]
    for comm in comms:
        if comm["hang"]:
            raise Failure("a hang before there is one: %s" % comm["hang"])
    return comms


def notes_of(job, case, rank, scrapes):
    notes = []
    if case.verdict and job.ranks[rank].event("went_on"):
        notes.append("the call of rank %d ended" % rank)
    for i, process in enumerate(job.ranks):
        error = process.event("error")
        if error:
            notes.append("rank %d: %s" % (i, error["text"]))
        elif not process.is_alive() and not (case.name.startswith("killed") and i == rank):
            notes.append("rank %d ended: %s" % (i, process.tail()))
    if scrapes.silent:
        notes.append("%d scrapes were not answered" % scrapes.silent)
    return notes


def run_hang(options, results, case, variant, wanted):
    record = {"kind": "hang", "case": case.name, "variant": variant, "gpus": options.gpus,
              "expected": {"verdict": case.verdict, "named": case.named}}
    what = "hang %s, %s" % (case.name, variant)
    if options.gpus < case.gpus:
        results.add("NOT RUN", "%s: it needs %d GPUs" % (what, case.gpus), **record)
        return
    if options.limit.left() < options.hang_after + 2 * options.scrape + 10:
        results.add("LEFT OUT", what + ": no time", **record)
        return
    started = time.monotonic()
    with results.of(what, record):
        with Job(options, "%s-%s" % (case.name, variant), os.path.abspath(options.program),
                 variant == "agent", case.arguments, environment=case.environment) as job:
            train, other = warm_up(options, job)
            if case.name in inject_graphs.CASES:
                inject_graphs.await_replays(options, job, train["comm"])
            rank = inject_cases.victim(case, wanted, job.server(), options.gpus)
            record.update(rank=rank, serves=job.server(), pid=job.ranks[rank].pid,
                          nccl=job.ranks[0].event("running")["nccl"],
                          start_s=round(time.monotonic() - started, 1))
            inject(job, case, rank)
            scrapes = inject_watch.Scrapes(options, job, time.monotonic())
            if case.name in inject_graphs.CASES and case.fault != "none":
                record["set_s"] = inject_graphs.await_fault(job, job.ranks[rank], case.fault, scrapes)
            if not case.verdict and case.name in inject_graphs.CASES:
                wrong, seconds = inject_graphs.stay_silent(options, scrapes)
                said, status = "watched for %.1f s" % seconds, job.status()[1]
                record.update(seconds=round(seconds, 2), verdict="", suspects=[])
            elif case.named == inject_cases.NOBODY and not case.verdict:
                wrong, said, status = stay_silent(options, job, case, scrapes, train, record)
            else:
                # A signal may come while it calls on the other one.
                signalled = case.name in inject_cases.SIGNALS
                comm_ids = [train["comm"]] + ([other["comm"]] if signalled else [])
                wrong, said, status = await_hang(options, job, scrapes, case, comm_ids, record)
                if options.captures and variant == "agent":
                    wrong = "; ".join(filter(None, [
                        wrong, inject_evidence.check_capture(options, job, case, rank, record),
                        inject_evidence.flight_recorder(options, job, record)]))
            notes = notes_of(job, case, rank, scrapes)
        record.update(scrapes=scrapes.number, notes=notes, wrong=wrong)
        results.add("WRONG" if wrong else "OK", "%s, rank %d of %d: %s, scrape %d%s" % (
            what, rank, options.gpus, said, scrapes.number,
            "; ".join([""] + notes + list(filter(None, [wrong])))), status, **record)


def await_hang(options, job, scrapes, case, comm_ids, record):
    """(what is wrong, what was said, what `pulse status` prints)"""
    first = inject_watch.until_hang(options, scrapes, comm_ids, case.at_first)
    _, status = job.status()
    job.keep("status.txt", status)
    if first is None:
        return "no verdict", "nothing is said", status
    seconds, found, hang = first
    wrong = [inject_cases.judge(case, record["rank"], options.gpus, hang["verdict"],
                                hang["suspects"], found[0][1], found[0][2], hang["text"])]
    if len(found) != 1 or found[0][0] != hang["verdict"]:
        wrong.append("/metrics says %s" % found)
    goal = options.hang_after + options.scrape
    if seconds > goal + options.late:
        wrong.append("later than %g s" % goal)
    record.update(seconds=round(seconds, 2), verdict=hang["verdict"], suspects=hang["suspects"],
                  waiting=hang["waiting"], op=hang["op"], text=hang["text"])
    return "; ".join(filter(None, wrong)), "%s, names %s, op %s, after %.1f s" % (
        hang["verdict"], hang["suspects"] or "nobody", hang["op"], seconds), status


def stay_silent(options, job, case, scrapes, train, record):
    """As await_hang, of a job that is well; it is let go on, and must."""
    if case.name == "run-ahead":
        wrong, seconds = inject_watch.while_queued(options, scrapes, train["comm"])
    else:
        wrong, seconds = inject_graphs.stay_silent(options, scrapes)
    code, status = job.status()
    job.keep("status.txt", status)
    if not wrong and code not in (0, 4):  # 4: no hang, and not known to be well
        wrong = "`pulse status` ends with %d" % code
    for process in job.ranks:
        process.tell("release")
    job.wait("the job goes on", 30, lambda: all(rank.event("went_on") for rank in job.ranks))
    record.update(seconds=round(seconds, 2), verdict="", suspects=[])
    return wrong, "watched for %.1f s" % seconds, status


def hangs(options, results, cases):
    runs = [(cases[name], variant) for variant in options.variants
            for name in options.cases if name in cases and variant in cases[name].variants]
    inject_options.for_each(options, [(options, results, case, variant, i % options.gpus)
                                      for i, (case, variant) in enumerate(runs)], run_hang)


def parse_options():
    cases = dict(inject_cases.CASES, **inject_graphs.CASES)
    parser = inject_options.make_parser(__doc__.split("\n", 1)[0])
    parser.add_argument("--ddp", default="", help="inject_ddp.py, where there is PyTorch")
    parser.add_argument("--parts", default="hangs,stragglers")
    parser.add_argument("--cases", default=",".join(cases))
    parser.add_argument("--variants", default="server,agent", help="who serves the page")
    parser.add_argument("--delays", default="1,50,5,20", help="milliseconds")
    parser.add_argument("--scrape", type=float, default=5, help="seconds")
    parser.add_argument("--balanced", type=float, default=30, help="seconds without a straggler")
    parser.add_argument("--graph-delays", default="1,5,20", help="milliseconds, for replays")
    parser.add_argument("--silent", type=float, default=15, help="seconds to watch what nothing tells of, for replays")
    # A page may be a quarter of a second old, and its answer takes a moment.
    parser.add_argument("--late", type=float, default=0.5, help="seconds behind a goal allowed")
    options = inject_options.parse(parser, cases)
    options.variants = options.variants.split(",")
    options.graph_delays = [float(delay) for delay in options.graph_delays.split(",") if delay]
    options.delays = [float(delay) for delay in options.delays.split(",")]
    return options


def main():
    options = parse_options()
    results = Results(options)
    try:
        if "hangs" in options.parts.split(","):
            hangs(options, results, inject_cases.CASES)
        if "stragglers" in options.parts.split(","):
            stragglers(options, results)
        if "replays" in options.parts.split(","):
            hangs(options, results, inject_graphs.CASES)
            if options.graph_delays:
                inject_graphs.stragglers(options, results)
    finally:
        table(results)
    return results.status()


if __name__ == "__main__":
    sys.exit(main())
