#!/usr/bin/env python3
"""Injects hangs and stragglers into jobs on real GPUs, and checks whom the product names, and when.

    inject.py --library libnccl-profiler-pulse.so --program inject_program --pulse pulse
              --libraries FOLDERS --gpus 4 --out FOLDER [--parts hangs,stragglers]

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

Prints "RESULT OK|WRONG|LEFT OUT|NOT RUN ..." lines and a table, writes OUT/results.jsonl, a line for each
case, and one folder of logs and pages for each job. Exit status: 0 when all cases were run and right;
1 else. It ends all it started within --budget seconds. Python 3.9's standard library alone.
"""

import argparse
import concurrent.futures
import json
import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_page  # noqa: E402  (beside this file)
import inject_cases  # noqa: E402
import inject_watch  # noqa: E402
from inject_job import Failure, Job, Limit, Ports, wait_until  # noqa: E402

STRAGGLER_GOAL_S = 30
LOSS = "nccl_straggler_seconds_total"


class Results:
    """The facts, for people and for programs."""

    def __init__(self, options):
        self.options = options
        self.lock = threading.Lock()
        self.path = os.path.join(options.out, "results.jsonl")
        self.rows = []
        self.wrong = 0

    def add(self, state, text, details="", /, **record):
        with self.lock:
            self.wrong += state not in ("OK", "NOT RUN")
            print("RESULT %s %s" % (state, text), flush=True)
            for line in details.splitlines():
                print("    | " + line)
            sys.stdout.flush()
            record = dict(record, state=state)
            self.rows.append(record)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


# ---- hangs ---------------------------------------------------------------------------------------


def inject(job, case, rank):
    if case.name in inject_cases.SIGNALS:
        os.kill(job.ranks[rank].pid,
                signal.SIGSTOP if case.name == "stopped" else signal.SIGKILL)
    else:
        job.ranks[rank].tell(case.fault or case.name)


def warm_up(options, job):
    """The communicators "train" and "other" of a job that runs and has no hang."""
    job.wait_running("running")
    wait_until(lambda: len((inject_watch.communicator(job, "train") or {"ranks": ()})["ranks"])
               == options.gpus, 20, "all ranks are on the page")
    options.limit.sleep(options.run_in)
    comms = [inject_watch.communicator(job, name) for name in ("train", "other")]
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
    try:
        with Job(options, "%s-%s" % (case.name, variant), os.path.abspath(options.program),
                 variant == "agent", case.arguments) as job:
            train, other = warm_up(options, job)
            rank = inject_cases.victim(case, wanted, job.server(), options.gpus)
            record.update(rank=rank, serves=job.server(), pid=job.ranks[rank].pid,
                          nccl=job.ranks[0].event("running")["nccl"],
                          start_s=round(time.monotonic() - started, 1))
            scrapes = inject_watch.Scrapes(options, job, time.monotonic())
            inject(job, case, rank)
            if case.named == inject_cases.NOBODY:
                wrong, said, status = stay_silent(options, job, scrapes, train, record)
            else:
                # A signal may come while it calls on the other one.
                signalled = case.name in inject_cases.SIGNALS
                comm_ids = [train["comm"]] + ([other["comm"]] if signalled else [])
                wrong, said, status = await_hang(options, job, scrapes, case, comm_ids, record)
            notes = notes_of(job, case, rank, scrapes)
    except (Failure, OSError, ValueError) as failure:
        results.add("WRONG", "%s: %s" % (what, failure), error=str(failure), **record)
        return
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


def stay_silent(options, job, scrapes, train, record):
    """As await_hang, of a job that is well; it is let go on, and must."""
    wrong, seconds = inject_watch.while_queued(options, scrapes, train["comm"])
    code, status = job.status()
    job.keep("status.txt", status)
    if not wrong and code != 0:
        wrong = "`pulse status` ends with %d" % code
    for process in job.ranks:
        process.tell("release")
    job.wait("the job goes on", 30, lambda: all(rank.event("went_on") for rank in job.ranks))
    record.update(seconds=round(seconds, 2), verdict="", suspects=[])
    return wrong, "watched for %.1f s" % seconds, status


def hangs(options, results):
    runs = [(inject_cases.CASES[name], variant) for variant in options.variants
            for name in options.cases if variant in inject_cases.CASES[name].variants]
    with concurrent.futures.ThreadPoolExecutor(max_workers=options.parallel) as pool:
        futures = [pool.submit(run_hang, options, results, case, variant, i % options.gpus)
                   for i, (case, variant) in enumerate(runs)]
        for future in futures:
            future.result()


# ---- stragglers ----------------------------------------------------------------------------------


class Control:
    """The file that tells the ranks who is late."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "control")

    def write(self, case, rank, delay_ms):
        with open(self.path + ".new", "w", encoding="ascii") as file:
            file.write("%d %d %g\n" % (case, rank, delay_ms))
        os.rename(self.path + ".new", self.path)


class Losses:
    """Who costs the others most, by the counter between two scrapes: the alert's expression."""

    def __init__(self):
        self.last = None

    def most(self, text, comm):
        """(rank, seconds per second) or None"""
        now = time.monotonic()
        values = {int(labels["rank"]): value
                  for labels, value in check_page.Page(text).select(LOSS, comm=comm)}
        last, self.last = self.last, (now, values)
        if last is None or not values:
            return None
        rates = {rank: (value - last[1].get(rank, 0)) / (now - last[0])
                 for rank, value in values.items()}
        rank = max(rates, key=rates.get)
        return rank, rates[rank]


def number_of_launches(comm):
    return sum(rank["launches"]["made"] for rank in comm["ranks"])


def case_communicator(options, comms, known):
    """Id of the communicator that was not there before the case; None: not on the page yet."""
    new = [comm for comm in comms if comm["comm"] not in known and comm["name"] != "control" and
           len(comm["ranks"]) == options.gpus]
    return max(new, key=number_of_launches)["comm"] if new else None


def watch_straggler(options, job, known, begin, seconds):
    """What the scrapes of the next `seconds` show of the communicator that is not in `known`, until
    they name one of its ranks."""
    losses = Losses()
    first = random.uniform(0, options.scrape)
    shown = {"seconds": None, "straggler": None, "by_counter": None, "scrapes": 0}
    while True:
        at = begin + first + shown["scrapes"] * options.scrape
        if at > begin + seconds or at > options.limit.end - 2:
            return shown
        options.limit.sleep(at - time.monotonic())
        shown["scrapes"] += 1
        page = job.endpoint.get("/metrics")
        comms = job.endpoint.communicators()
        now = time.monotonic() - begin
        comm_id = case_communicator(options, comms or (), known)
        if page is None or comm_id is None:
            continue
        job.keep("straggler-page.txt", page)
        most = losses.most(page, comm_id)
        if most and most[1] > 0.02 and shown["by_counter"] is None:
            shown["by_counter"] = {"rank": most[0], "seconds_per_second": round(most[1], 4),
                                   "after_s": round(now, 2)}
        straggler = next(comm["straggler"] for comm in comms if comm["comm"] == comm_id)
        if straggler:
            shown.update(seconds=round(now, 2), straggler=straggler)
            return shown


def begin_case(job, control, number, rank, delay_ms):
    """Ids of the communicators that were there before it."""
    known = {comm["comm"] for comm in job.endpoint.communicators() or ()}
    control.write(number, rank, delay_ms)
    job.wait("case %d" % number, 60,
             lambda: all(process.event("case", case=number) for process in job.ranks))
    return known


def report_straggler(results, record, what, rank, shown, late):
    straggler = shown["straggler"]
    counter = shown["by_counter"]
    record.update(shown)
    said = "nobody is named" if straggler is None else "names rank %d after %.1f s, %s a call" % (
        straggler["rank"], shown["seconds"], "%.3g ms" % (straggler["mean_seconds"] * 1e3))
    said += ", scrape %d" % shown["scrapes"]
    if counter:
        said += "; by the counter rank %(rank)d (%(seconds_per_second).3f s/s, %(after_s).1f s)" % \
            counter
    right = straggler is not None and straggler["rank"] == rank and shown["seconds"] <= STRAGGLER_GOAL_S + late
    results.add("OK" if right else "WRONG", "%s: %s" % (what, said), **record)


def stragglers(options, results):
    uses_torch = bool(options.ddp)
    program = os.path.abspath(options.ddp or options.program)
    plan = [(rank, delay) for delay in options.delays for rank in range(options.gpus)]
    kind = "DDP" if uses_torch else "AllReduce"
    base = {"kind": "straggler", "job": kind, "gpus": options.gpus}
    with_control = os.path.join(options.out, "control")
    os.makedirs(with_control, exist_ok=True)
    control = Control(with_control)
    control.write(0, -1, 0)
    try:
        with Job(options, "stragglers", program, False, ["--control=" + control.path]) as job:
            job.wait("start", 90, lambda: all(process.event("case", case=0)
                                              for process in job.ranks))
            first = job.ranks[0].event("case", case=0)
            print("%s, %s" % (kind, {key: first[key] for key in ("torch", "step_ms")
                                     if key in first}), flush=True)
            known = begin_case(job, control, 1, -1, 0)
            shown = watch_straggler(options, job, known, time.monotonic(), options.balanced)
            record = dict(base, case="balanced", rank=None, delay_ms=0, **shown)
            results.add("OK" if shown["straggler"] is None else "WRONG",
                        "straggler %s, nobody late for %g s: %s" % (
                            kind, options.balanced,
                            (shown["straggler"] or {"text": "nobody is named"})["text"]), **record)
            # On the same communicator: what came before counts, too.
            rank, delay = options.gpus - 1, options.delays[-1]
            control.write(1, rank, delay)
            shown = watch_straggler(options, job, known, time.monotonic(),
                                    STRAGGLER_GOAL_S + options.late)
            report_straggler(results, dict(base, case="after balance", rank=rank, delay_ms=delay),
                             "straggler %s, rank %d late by %g ms after %g s without" % (
                                 kind, rank, delay, options.balanced),
                             rank, shown, options.late)
            job.keep("status.txt", job.status()[1])
            for number, (rank, delay) in enumerate(plan, 2):
                what = "straggler %s, rank %d late by %g ms" % (kind, rank, delay)
                record = dict(base, case="turn", rank=rank, delay_ms=delay)
                if options.limit.left() < 2 * options.scrape + 6:
                    results.add("LEFT OUT", what + ": no time", **record)
                    continue
                known = begin_case(job, control, number, rank, delay)
                shown = watch_straggler(options, job, known, time.monotonic(),
                                    STRAGGLER_GOAL_S + options.late)
                report_straggler(results, record, what, rank, shown, options.late)
                if number == 2:
                    print(job.status()[1], flush=True)
    except (Failure, OSError, ValueError) as failure:
        results.add("WRONG", "stragglers: did not finish: %s" % failure, error=str(failure), **base)


# ---- the run -------------------------------------------------------------------------------------


def table(results):
    print("\n%-14s %-7s %4s  %-22s %-12s %7s  %s" % (
        "hang", "page by", "rank", "verdict", "names", "after s", ""))
    for row in results.rows:
        if row["kind"] == "hang":
            print("%-14s %-7s %4s  %-22s %-12s %7s  %s" % (
                row["case"], row["variant"], row.get("rank", ""), row.get("verdict") or "none",
                ",".join(map(str, row.get("suspects", ()))) or "nobody",
                row.get("seconds", ""), row["state"]))
    print("\n%-14s %4s %8s  %-12s %7s %7s  %s" % (
        "straggler", "rank", "late ms", "names", "after s", "ms", ""))
    for row in results.rows:
        if row["kind"] == "straggler" and "case" in row:
            straggler = row.get("straggler")
            print("%-14s %4s %8s  %-12s %7s %7s  %s" % (
                row["case"], "" if row["rank"] is None else row["rank"], row["delay_ms"],
                straggler["rank"] if straggler else "nobody", row.get("seconds") or "",
                "%.2f" % (straggler["mean_seconds"] * 1e3) if straggler else "", row["state"]))
    sys.stdout.flush()


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--library", required=True, help="the plugin")
    parser.add_argument("--program", required=True, help="inject_program")
    parser.add_argument("--pulse", required=True, help="the program pulse")
    parser.add_argument("--ddp", default="", help="inject_ddp.py, where there is PyTorch")
    parser.add_argument("--libraries", default="",
                        help="folders of libnccl and libcudart, with colons between")
    parser.add_argument("--gpus", type=int, default=2, help="one rank each")
    parser.add_argument("--parts", default="hangs,stragglers")
    parser.add_argument("--cases", default=",".join(inject_cases.CASES))
    parser.add_argument("--variants", default="server,agent", help="who serves the page")
    parser.add_argument("--delays", default="1,50,5,20", help="milliseconds")
    parser.add_argument("--parallel", type=int, default=4, help="jobs that hang at a time")
    parser.add_argument("--scrape", type=float, default=5, help="seconds")
    parser.add_argument("--hang-after", type=float, default=10, help="seconds")
    parser.add_argument("--run-in", type=float, default=3, help="seconds before a fault")
    parser.add_argument("--balanced", type=float, default=30, help="seconds without a straggler")
    # A page may be a quarter of a second old, and its answer takes a moment.
    parser.add_argument("--late", type=float, default=0.5, help="seconds behind a goal allowed")
    parser.add_argument("--budget", type=float, default=280, help="seconds for all of it")
    parser.add_argument("--out", required=True, help="folder for results, logs and pages")
    options = parser.parse_args()
    options.cases = [name for name in options.cases.split(",") if name]
    unknown = set(options.cases) - set(inject_cases.CASES)
    if unknown:
        parser.error("no case " + ", ".join(sorted(unknown)))
    options.variants = options.variants.split(",")
    options.delays = [float(delay) for delay in options.delays.split(",")]
    options.pulse = os.path.abspath(options.pulse)
    options.limit = Limit(options.budget)
    options.ports = Ports()
    return options


def main():
    options = parse_options()

    def end(*_):
        # In the main thread; the jobs' blocks end what they started.
        options.limit.over.set()
        raise SystemExit("inject.py: terminated")
    signal.signal(signal.SIGTERM, end)
    os.makedirs(options.out, exist_ok=True)
    begin = time.monotonic()
    results = Results(options)
    try:
        if "hangs" in options.parts.split(","):
            hangs(options, results)
        if "stragglers" in options.parts.split(","):
            stragglers(options, results)
    finally:
        table(results)
    print("\n%d cases, %d not right, %.0f s" % (len(results.rows), results.wrong,
                                                time.monotonic() - begin))
    return 1 if results.wrong or not results.rows else 0


if __name__ == "__main__":
    sys.exit(main())
