"""Hangs and stragglers within the replays of CUDA graphs, for inject.py; NCCL_PULSE_GRAPHS=auto.

A graph has 65 AllReduces. There are stamps at its head, and in front of and behind the 61st (docs/cuda-graphs.md), so:

    case            the fault, on one rank             verdict         named
    graph-never     launches no replay any more        rank_not_begun  that rank
    graph-kernel    a kernel of its own that does not  rank_not_begun  that rank
                    end, in front of a replay
    graph-held      the same within the replay, in     rank_not_begun  that rank, which waits at call 61
                    front of the 61st call
    graph-between   the same in front of the 31st: no  no_progress     nobody
                    stamp is between the ranks
    graph-behind    the same behind the last stamp     none            nobody: nothing tells of it
    graph-well      none                               none            nobody
    ...-queued      as above, with ten replays queued on each rank

    late in front of the 61st call of each replay      straggler       that rank
    late in front of the 31st; launches each replay    none            nobody: the others wait where no
    late                                               pair of stamps is

A case in which nobody is to be named is right only if the page has counted replays of every rank, and a straggler's
only if it has durations by stamps of every rank: without stamps nobody would be named either.
"""

import os
import time

import endpoint
from inject_cases import Case, NOBODY, RANK
from inject_job import Job, wait_until
from inject_stragglers import Control, begin_case, case_communicator, report_straggler, watch_straggler

ENVIRONMENT = (("NCCL_PULSE_GRAPHS", "auto"),)
CALLS = 65
STAMPED = 60  # calls in front of the pair of stamps
REPLAYS = "nccl_graph_replays_total"
DURATIONS = "nccl_operation_duration_seconds_count"
_GRAPH = "--graph=%d" % CALLS
_QUEUED = (_GRAPH, "--ahead=10")
_AT = "(?i:at captured call 61 of 65)"


def _case(name, verdict, named, fault, arguments=(_GRAPH,), text="", variants=("server",)):
    return Case(name, verdict, named, "", text, fault=fault, arguments=arguments, variants=variants,
                environment=ENVIRONMENT)


CASES = {case.name: case for case in (
    _case("graph-never", "rank_not_begun", RANK, "never", variants=("server", "agent")),
    _case("graph-never-queued", "rank_not_begun", RANK, "never", _QUEUED),
    _case("graph-kernel", "rank_not_begun", RANK, "kernel", variants=("server", "agent")),
    _case("graph-kernel-queued", "rank_not_begun", RANK, "kernel", _QUEUED),
    _case("graph-held", "rank_not_begun", RANK, "held", (_GRAPH, "--hold-at=60"), _AT),
    _case("graph-held-queued", "rank_not_begun", RANK, "held", _QUEUED + ("--hold-at=60",), _AT),
    _case("graph-between", "no_progress", NOBODY, "held", (_GRAPH, "--hold-at=30")),
    _case("graph-behind", "", NOBODY, "held", (_GRAPH, "--hold-at=63")),
    _case("graph-well", "", NOBODY, "none"),
)}


def unseen(text, gpus, comm, name, **fixed):
    """The ranks of which the page has nothing under this name, or 0."""
    counted = endpoint.Page(text).sums(name, ("rank",), comm=comm, **fixed)
    return [rank for rank in range(gpus) if not counted.get((str(rank),))]


def await_replays(options, job, comm):
    def counted():
        text = job.endpoint.get("/metrics")
        return text is not None and not unseen(text, options.gpus, comm, REPLAYS)
    wait_until(counted, 5, "the page counts replays of all ranks")


def await_fault(job, process, fault, scrapes):
    """Counts the scrapes' seconds from the fault: the program has it when its last step has ended, and a rank's GPU is held where it
    comes to that. Jobs beside this one take turns on its GPUs, so either may take seconds. Returns how long."""
    event = "held" if fault == "held" else "fault"
    job.wait(event, 30, lambda: process.event(event))
    begin = time.monotonic()
    late = begin - scrapes.begin
    scrapes.begin = begin
    return round(late, 2)


def stay_silent(options, scrapes):
    """(what is wrong with the scrapes until a hang would have been seen thrice, seconds)"""
    seconds = 0
    while True:
        scrape = scrapes.next(scrapes.begin + options.hang_after + 3 * options.scrape)
        if scrape is None:
            break
        seconds, _, comms = scrape
        named = [comm["hang"] for comm in comms if comm["hang"]]
        if named:
            return "a hang is reported: %s" % named, seconds
    return "" if seconds > options.hang_after else "it was watched for too short a time", seconds


class GraphControl(Control):
    """The same file with a fourth number: in front of which call."""

    call = -1

    def write(self, case, rank, delay_ms):
        with open(self.path + ".new", "w", encoding="ascii") as file:
            file.write("%d %d %g %d\n" % (case, rank, delay_ms, self.call))
        os.rename(self.path + ".new", self.path)


def plan(gpus, delays):
    """[(case, rank or -1, delay in ms, call, whether the rank is to be named)]"""
    at_stamps = [("at the 61st", i % gpus, delay, STAMPED, True) for i, delay in enumerate(delays)]
    return [("balanced", -1, 0, -1, False)] + at_stamps + [
        ("at the 31st", gpus - 1, delays[-1], 30, False), ("launches", gpus - 1, delays[-1], -1, False)]


def stragglers(options, results):
    base = {"kind": "straggler", "job": "graphs", "gpus": options.gpus}
    control = GraphControl(options, "graph-control")
    with results.of("stragglers in graphs: did not finish", base):
        with Job(options, "graph-stragglers", os.path.abspath(options.program), False,
                 [_GRAPH, "--control=" + control.path], environment=ENVIRONMENT) as job:
            job.wait_running("case", case=0)
            for number, (case, rank, delay, call, is_named) in enumerate(plan(options.gpus, options.graph_delays), 1):
                run_straggler(options, results, job, control, number, dict(
                    base, case=case, rank=None if rank < 0 else rank, delay_ms=delay), call, is_named)
            job.keep("status.txt", job.status()[1])


def run_straggler(options, results, job, control, number, record, call, is_named):
    rank = -1 if record["rank"] is None else record["rank"]
    what = "straggler in graphs, %s, rank %s late by %g ms" % (record["case"], record["rank"], record["delay_ms"])
    if options.limit.left() < 2 * options.scrape + 6:
        results.add("LEFT OUT", what + ": no time", **record)
        return
    control.call = call
    known = begin_case(job, control, number, rank, record["delay_ms"])
    # The first scrape may be a whole period away: nobody is waited for as long as somebody.
    seconds = 30 + options.late if is_named else options.silent
    shown = watch_straggler(options, job, known, time.monotonic(), seconds)
    text = job.endpoint.get("/metrics") or ""
    comm = case_communicator(options, job.endpoint.communicators() or (), known)
    blind = "a case without a communicator" if comm is None else ", ".join(
        "no %s of ranks %s" % (thing, ranks) for thing, ranks in (
            ("replays", unseen(text, options.gpus, comm, REPLAYS)),
            ("durations by stamps", unseen(text, options.gpus, comm, DURATIONS, timing="graph"))) if ranks)
    if blind:
        results.add("WRONG", "%s: %s" % (what, blind), **dict(record, **shown))
    elif is_named:
        report_straggler(results, record, what, rank, shown, options.late)
    else:
        straggler = shown["straggler"]
        results.add("WRONG" if straggler else "OK", "%s: %s in %g s" % (
            what, straggler["text"] if straggler else "nobody is named", seconds), **dict(record, **shown))
