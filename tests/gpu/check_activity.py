"""Whether anything is in flight, as check.py expects it: known, or unknown and then not claimed.

Unknown is what a communicator's work is after a call of which neither NCCL's launch nor the end of its group tells,
and after its calls were captured in a graph. What the product says then is asked for in this file alone.
"""

import endpoint

KNOWN = "known"
UNKNOWN = "unknown"
EITHER = "either"  # the order of the calls is not known
ABSENT = "absent"


def of_communicator(communicator, unreported):
    """Of nccl_program's, once all of its calls have ended. A Broadcast whose launch NCCL does not report
    is followed all the same where the end of its group tells of it (ledger.h)."""
    if "Broadcast" not in unreported:
        return KNOWN
    if communicator["ends_unseen"]:
        return UNKNOWN
    # Until it is learned that NCCL hides them, the last ones stand.
    return EITHER if any(call["op"] == "Broadcast" for call in communicator["calls"]) else KNOWN


def of_totals(calls, unreported):
    """Of a communicator of which only these sums are known, {(op,): calls}."""
    return EITHER if any(op in unreported for (op,) in calls) else KNOWN


def compare(comparison, page, where, comm, activity, has_heartbeat):
    """[comparison(metric, where, expected, found)] of what stands still: every launch that was
    reported is known to have completed, and "nothing in flight" is said where it is known."""
    completed = page.select("nccl_launches_completed_total", **comm)
    if not completed and not has_heartbeat:
        return []  # no CUDA driver, or not asked for
    # Replays cannot be seen, so of a captured communicator nobody can say that nothing runs.
    if page.sums("nccl_communicator_uses_cuda_graphs", (), **comm):
        activity = UNKNOWN
    result = [comparison(
        "nccl_launches_completed_total", where,
        {"": value for _, value in page.select("nccl_launches_total", **comm)},
        {"": value for _, value in completed})]
    for name in ("nccl_inflight_launches", "nccl_oldest_inflight_launch_timestamp_seconds"):
        found = next(("%g" % value for _, value in page.select(name, **comm)), ABSENT)
        expected = {KNOWN: "0", UNKNOWN: ABSENT, EITHER: "0" if found == "0" else ABSENT}[activity]
        result.append(comparison(name, where, {"": expected}, {"": found}))
    return result


def state(port, comm):
    """The rank's state in the JSON of this endpoint."""
    return next((rank["state"] for each in endpoint.communicators(port, 30) if each["comm"] == comm["comm"]
                 for rank in each["ranks"] if str(rank["rank"]) == comm["rank"]), "not there")
