"""One job in which each rank is late in turn: whom the endpoint names, and when."""

import os
import random
import time

import endpoint
from inject_job import Job

STRAGGLER_GOAL_S = 30
LOSS = "nccl_straggler_seconds_total"


class Control:
    """The file that tells the ranks who is late."""

    def __init__(self, options, folder="control"):
        os.makedirs(os.path.join(options.out, folder), exist_ok=True)
        self.path = os.path.join(options.out, folder, "control")
        self.write(0, -1, 0)

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
        values = {int(labels["rank"]): value for labels, value in endpoint.Page(text).select(LOSS, comm=comm)}
        last, self.last = self.last, (now, values)
        if last is None or not values:
            return None
        rates = {rank: (value - last[1].get(rank, 0)) / (now - last[0]) for rank, value in values.items()}
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
            shown["by_counter"] = {"rank": most[0], "seconds_per_second": round(most[1], 4), "after_s": round(now, 2)}
        straggler = next(comm["straggler"] for comm in comms if comm["comm"] == comm_id)
        if straggler:
            shown.update(seconds=round(now, 2), straggler=straggler)
            return shown


def begin_case(job, control, number, rank, delay_ms):
    """Ids of the communicators that were there before it."""
    known = {comm["comm"] for comm in job.endpoint.communicators() or ()}
    control.write(number, rank, delay_ms)
    job.wait("case %d" % number, 60, lambda: all(process.event("case", case=number) for process in job.ranks))
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
    control = Control(options)
    with results.of("stragglers: did not finish", base):
        with Job(options, "stragglers", program, False, ["--control=" + control.path]) as job:
            job.wait_running("case", case=0)
            first = job.ranks[0].event("case", case=0)
            print("%s, %s" % (kind, {key: first[key] for key in ("torch", "step_ms") if key in first}), flush=True)
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
            shown = watch_straggler(options, job, known, time.monotonic(), STRAGGLER_GOAL_S + options.late)
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
                shown = watch_straggler(options, job, known, time.monotonic(), STRAGGLER_GOAL_S + options.late)
                report_straggler(results, record, what, rank, shown, options.late)
                if number == 2:
                    print(job.status()[1], flush=True)
