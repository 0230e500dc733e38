"""Holds the pages of all ranks against the calls that they made, and against each other."""

import collections

import check_activity
import nccl_versions
from check_calls import COLLECTIVES, Comparison, few_open, size_class, within_launches
from check_communicator import (GROUPED, compare_communicator, compare_heartbeat, duration_source, find_communicator)


def compare_totals(page, rank, report):
    """For programs that know only part of their calls: sums over all communicators."""
    where = "rank%d" % rank.rank
    found = page.sums("nccl_operations_total", ("op", "size", "datatype", "captured"))
    exact, least = collections.Counter(), collections.Counter()
    for call in report["exact"]:
        exact[call["op"], size_class(call["bytes"]), call["datatype"], "false"] += call["calls"]
    types = {call["datatype"] for call in report["exact"]}
    result = [Comparison("nccl_operations_total", where, exact,
                         {key: value for key, value in found.items() if key[2] in types})]
    by_type = collections.Counter()
    for key, value in found.items():
        by_type[key[0], key[2]] += value
    for call in report["at_least"]:
        least[call["op"], call["datatype"]] += call["calls"]
    result.append(Comparison("nccl_operations_total at least", where, least,
                             {key: by_type[key] for key in least},
                             accept=lambda wanted, got: got >= wanted))
    return result


def compare_with_itself(page, rank, options, unreported):
    """Where the calls are not known: what must be consistent within a page."""
    traffic = options.mode != "nvlink"
    result = []
    for info, _ in page.select("nccl_communicator_info"):
        comm = dict(comm=info["comm"], rank=info["rank"])
        where = "rank%d/%s" % (rank.rank, info["comm"])
        calls = page.sums("nccl_operations_total", ("op",), **comm)
        reported = {key: value for key, value in calls.items() if key[0] not in unreported}
        collectives = {key: value for key, value in reported.items() if key[0] in COLLECTIVES}
        result.append(Comparison("nccl_algorithm_operations_total as calls", where, collectives,
                                 page.sums("nccl_algorithm_operations_total", ("op",), **comm)))
        launches = sum(page.sums("nccl_launches_total", (), **comm).values())
        result.append(Comparison("nccl_launches_total as calls", where,
                                 {"": (min(1, sum(reported.values())), sum(calls.values()))},
                                 {"": launches}, accept=within_launches))
        result += compare_heartbeat(page, where, comm, check_activity.of_totals(calls, unreported))
        if duration_source(page) == "stream":
            # An operation has a reason, or its launch is timed.
            accounted = collections.Counter()
            for (op, _), value in page.sums("nccl_operations_without_duration_total", ("op", "reason"), **comm).items():
                accounted[op,] += value
            durations = page.sums("nccl_operation_duration_seconds_count", ("op",), timing="stream", **comm)
            # Those of a launch that is a composite stand beside the Send and Recv that it is made of.
            accounted.update({key: value for key, value in durations.items()
                              if key not in ((GROUPED,), ("AlltoAll",), ("Gather",), ("Scatter",)) or
                              key in reported})
            result.append(Comparison("stream durations + untimed as calls", where, reported,
                                     {key: value for key, value in accounted.items()
                                      if key in reported or key not in calls}))
            # The last call may stand: whether NCCL reports it is not known until the next.
            result.append(Comparison(
                "stream durations + untimed as calls, of what NCCL does not report", where,
                {key: value for key, value in calls.items() if key not in reported},
                {key: value for key, value in accounted.items()
                 if key in calls and key not in reported},
                accept=lambda wanted, got: wanted - 1 <= got <= wanted))
        if traffic and options.timing != "off":
            result.append(Comparison(
                "nccl_operation_completion_seconds as calls", where, collectives,
                {key: value for key, value in page.sums(
                    "nccl_operation_completion_seconds_count", ("op",), source="proxy",
                    **comm).items() if key[0] in COLLECTIVES},
                still_open=few_open if options.timing == "kernel" else None))
    return result


def compare_ranks(ranks, pages, reports):
    """What several ranks say must agree."""
    result = []
    ids = {}  # name -> comm label of the first rank that has it
    for rank, page, report in zip(ranks, pages, reports):
        for communicator in report.get("communicators", ()):
            info, _ = find_communicator(page, communicator, report["pid"])
            if info is None:
                continue
            first = ids.setdefault(communicator["name"], info["comm"])
            result.append(Comparison("comm of all ranks", "rank%d/%s" %
                                     (rank.rank, communicator["name"]), {"": first},
                                     {"": info["comm"]}))
    calls = {}
    for rank, page in zip(ranks, pages):
        for labels, value in page.select("nccl_operations_total"):
            if labels["op"] in COLLECTIVES:
                key = tuple(labels[name] for name in ("comm", "op", "size", "datatype", "captured"))
                calls.setdefault(key, {})[rank.rank] = value
    for key, by_rank in calls.items():
        some = next(iter(by_rank.values()))
        result.append(Comparison("collectives of all ranks", "/".join(key), {r: some for r in by_rank}, by_rank))
    return result


def compare(ranks, pages, reports, options, gpus):
    result = []
    for rank, page, report in zip(ranks, pages, reports):
        if page is None:
            return [Comparison("endpoint", "rank%d" % rank.rank, {"": "announced"}, {"": "not announced"})]
        if "communicators" in report:
            for communicator in report["communicators"]:
                result += compare_communicator(page, rank, report, communicator, options, gpus)
            result.append(Comparison(
                "number of communicators", "rank%d" % rank.rank,
                {"": len(report["communicators"])},
                {"": len(page.select("nccl_communicator_info"))}))
        else:
            result += compare_totals(page, rank, report)
            result += compare_with_itself(page, rank, options, nccl_versions.unreported(report["nccl"]))
        result.append(Comparison("results checked by the program", "rank%d" % rank.rank,
                                 {"wrong": 0}, {"wrong": report["wrong"]}))
        result.append(Comparison(
            "nccl_api_version", "rank%d" % rank.rank,
            {"": str(nccl_versions.profiler_api(report["nccl"], options.library))},
            {"": labels["nccl_api_version"]
             for labels, _ in page.select("nccl_pulse_build_info")}))
        lost = page.sums("nccl_pulse_overflowed_operations_total", ())
        result.append(Comparison("nccl_pulse_overflowed_operations_total", "rank%d" % rank.rank, {}, lost))
    return result + compare_ranks(ranks, pages, reports)
