"""Holds one communicator's series against the calls that were made on it."""

import collections

import check_activity
import nccl_versions
from check_calls import (Comparison, expected_of, few_open, launches_of, show, split_unreported,
                         untold_of, within_launches)

# The op of launches that carry a group, and why an operation has no duration with stream timing.
GROUPED = "Grouped"
STREAM_REASONS = {"not_sampled", "not_timed", "grouped", "captured", "lost"}


def find_communicator(page, communicator, pid):
    """Its `comm` label; a string that says what is wrong when it is not there once."""
    name = communicator["name"]
    found = [labels for labels, value in page.select("nccl_communicator_info")
             if value == 1 and labels.get("comm_name", "") == name and labels["pid"] == str(pid)]
    if len(found) != 1:
        return None, "%d communicators are named '%s'" % (len(found), name)
    return found[0], ""


def compare_communicator(page, rank, report, communicator, options, gpus):
    unreported = nccl_versions.unreported(report["nccl"])
    reports_calls = nccl_versions.reports_calls(report["nccl"])
    where = "rank%d/%s" % (rank.rank, communicator["name"] or "(no name)")
    info, problem = find_communicator(page, communicator, report["pid"])
    if info is None:
        return [Comparison("nccl_communicator_info", where, {"": "one"}, {"": problem})]
    comm = dict(comm=info["comm"], rank=str(communicator["rank"]))
    expected = expected_of(communicator, options, unreported, reports_calls)
    kernel = options.timing == "kernel"
    destroyed = communicator["destroyed"]

    identity = {
        "rank": str(communicator["rank"]), "nranks": str(communicator["nranks"]),
        # Without peer access and shared memory NCCL takes each rank for a node of its own.
        "nnodes": str(1 if options.mode == "nvlink" else communicator["nranks"]),
        "global_rank": str(rank.rank), "local_rank": str(rank.rank)}
    if gpus:
        # Not `gpu`: the driver's number of a device need not be its place in this list.
        identity.update(gpus[rank.gpu])
    found_identity = {key: info.get(key, "") for key in identity}
    for values in (identity, found_identity):
        if "pci_bus_id" in values:
            values["pci_bus_id"] = values["pci_bus_id"].lower()

    # There are CUDA events behind the launches.
    follows = bool(page.select("nccl_launches_completed_total", **comm))

    def counts(name, by, **fixed):
        return page.sums(name, by, **dict(comm, **fixed))

    result = [
        Comparison("nccl_communicator_info", where, identity, found_identity),
        Comparison("nccl_communicator_finalized", where, {"": "1"} if destroyed else {},
                   {"": show(value)
                    for _, value in page.select("nccl_communicator_finalized", **comm)}),
        Comparison("nccl_operations_total", where, expected["operations"],
                   counts("nccl_operations_total", ("op", "size", "datatype", "captured"))),
        Comparison("nccl_operation_bytes_total", where, expected["bytes"],
                   counts("nccl_operation_bytes_total", ("op", "size"))),
        Comparison("nccl_algorithm_operations_total", where, expected["algorithms"],
                   counts("nccl_algorithm_operations_total", ("op",))),
        Comparison("nccl_launches_total", where,
                   {"": launches_of(communicator, unreported, follows) if reports_calls else (0, 0)},
                   {"": sum(counts("nccl_launches_total", ()).values())}, accept=within_launches),
        Comparison("nccl_operation_completion_seconds proxy", where, expected["completions"],
                   counts("nccl_operation_completion_seconds_count", ("op",), source="proxy"),
                   still_open=few_open if kernel and not destroyed else None),
        Comparison("nccl_operations_without_completion_total", where, {},
                   counts("nccl_operations_without_completion_total", ("op",)),
                   still_open=(lambda wanted, got: got <= 3) if kernel else None),
    ]
    untimed, untold = split_unreported(counts("nccl_operations_without_duration_total", ("op", "reason")))
    # Besides those that are called before it is learned that NCCL hides the operation; that each has
    # one reason or a duration is compared below. The last call may stand.
    hidden = sum(call["calls"] for call in communicator["calls"] if call["op"] in unreported)
    result.append(Comparison("nccl_operations_without_duration_total " + nccl_versions.UNREPORTED_REASON,
                             where, untold_of(communicator, options, unreported, follows), untold,
                             accept=lambda wanted, got: hidden > 0 and
                             wanted - 1 <= got <= wanted + hidden))
    durations = counts("nccl_operation_duration_seconds_count", ("op",), timing="kernel")
    if kernel:
        accounted = collections.Counter()
        for key, value in list(untimed.items()) + list(durations.items()):
            accounted[key[0]] += value
        result.append(Comparison("durations + nccl_operations_without_duration_total", where,
                                 expected["events"], accounted,
                                 still_open=None if destroyed else few_open))
        result.append(Comparison("nccl_operation_completion_seconds kernel", where,
                                 expected["kernel_completions"],
                                 counts("nccl_operation_completion_seconds_count", ("op",),
                                        source="kernel"), still_open=few_open))
    elif duration_source(page) == "stream":
        result += compare_stream(where, expected, communicator, untimed, untold, counts)
    else:
        result.append(Comparison("nccl_operations_without_duration_total", where, expected["untimed"], untimed))
        result.append(Comparison("nccl_operation_duration_seconds", where, {}, durations))
    activity = (check_activity.KNOWN if destroyed else check_activity.of_communicator(communicator, unreported))
    result += compare_heartbeat(page, where, comm, activity)
    if activity == check_activity.UNKNOWN and duration_source(page) == "stream":
        result.append(Comparison("state in the JSON", where, {"": activity},
                                 {"": check_activity.state(rank.scraper.port, comm)}))
    return result


def compare_heartbeat(page, where, comm, activity):
    return check_activity.compare(Comparison, page, where, comm, activity, duration_source(page) == "stream")


def duration_source(page):
    """What times operations in the page's process: stream, kernel or none."""
    return next((labels["durations"] for labels, _ in page.select("nccl_pulse_build_info")), "")


def compare_stream(where, expected, communicator, untimed, untold, counts):
    """Every operation has a duration or a reason, also those that NCCL does not report; those of a
    group have a duration together."""
    durations = counts("nccl_operation_duration_seconds_count", ("op",), timing="stream")
    captured = {key: value for key, value in expected["untimed"].items() if key[1] == "captured"}
    events, accounted = collections.Counter(), collections.Counter()
    for (op,), value in expected["unreported"].items():
        events[op] += value
    for (op,), value in untold.items():
        accounted[op] += value
    for (op, _), value in expected["untimed"].items():
        events[op] += value
    for (op, _), value in untimed.items():
        accounted[op] += value
    for (op,), value in durations.items():
        if op != GROUPED:
            accounted[op] += value
    # NCCL may cut a group into more launches than it has calls, so no more is known of their number
    # than that there are none without groups.
    groups = communicator["launches_min"] < communicator["launches_max"]
    grouped = durations.get((GROUPED,), 0)
    with_reason = {key[1] for key in untimed}
    return [
        Comparison("nccl_operations_without_duration_total captured", where, captured,
                   {key: value for key, value in untimed.items() if key[1] == "captured"}),
        # The last call may stand: whether NCCL reports it is not known until the next.
        Comparison("stream durations + nccl_operations_without_duration_total", where, events, accounted,
                   accept=(lambda wanted, got: wanted - 1 <= got <= wanted)
                   if expected["unreported"] else None),
        Comparison("nccl_operation_duration_seconds Grouped", where, {},
                   {} if groups else {key: grouped for key in [GROUPED] if grouped}),
        Comparison("reasons of nccl_operations_without_duration_total", where, {},
                   {reason: "found" for reason in with_reason - STREAM_REASONS}),
    ]
