"""What the calls of a rank must come to on its page, and how the two are compared."""

import collections

import nccl_versions

COLLECTIVES = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce")
SIZE_CLASSES = ((4 << 10, "le_4KiB"), (16 << 10, "le_16KiB"), (64 << 10, "le_64KiB"),
                (256 << 10, "le_256KiB"), (1 << 20, "le_1MiB"), (4 << 20, "le_4MiB"),
                (16 << 20, "le_16MiB"), (64 << 20, "le_64MiB"), (256 << 20, "le_256MiB"),
                (1 << 30, "le_1GiB"))

# NCCL 2.28 loses KernelCh events (stops without a start): so few operations may still be open.
KERNEL_TOLERANCE = 0.02


def size_class(size):
    for bound, name in SIZE_CLASSES:
        if size <= bound:
            return name
    return "gt_1GiB"


class Comparison:
    """One metric of one rank's communicator. Unequal values pass if accept(expected, found) says
    so; if still_open(expected, found) does, as operations whose end was not seen yet."""

    def __init__(self, metric, where, expected, found, accept=None, still_open=None):
        self.metric, self.where = metric, where
        self.expected, self.found = expected, found
        self.wrong = []
        self.open = 0
        for key in sorted(expected.keys() | found.keys(), key=str):
            wanted, got = expected.get(key, 0), found.get(key, 0)
            if wanted == got:
                continue
            if accept is not None and accept(wanted, got):
                continue
            if still_open is not None and still_open(wanted, got):
                self.open += abs(wanted - got)
                continue
            self.wrong.append("%s %s %s: expected %s, found %s" % (metric, where, key, show(wanted), show(got)))

    @staticmethod
    def total(values):
        return sum(v for v in values.values() if isinstance(v, (int, float)))


def show(value):
    return "%d" % value if isinstance(value, float) and value == int(value) else str(value)


def within_launches(wanted, got):
    return wanted[0] <= got <= wanted[1]


def few_open(wanted, got):
    return got <= wanted and wanted - got <= max(2, KERNEL_TOLERANCE * wanted)


def expected_of(communicator, options, unreported, reports_calls):
    """What a communicator's calls must come to, by metric, when of the operations in `unreported`
    nothing is seen but the calls. `reports_calls`: of nccl_versions."""
    traffic = options.mode != "nvlink" and communicator["nranks"] > 1
    sees_replays = traffic or options.timing == "kernel"
    result = {name: collections.Counter() for name in (
        "operations", "bytes", "algorithms", "untimed", "events", "completions",
        "kernel_completions", "unreported")}
    for call in communicator["calls"]:
        op, calls, size = call["op"], call["calls"], size_class(call["bytes"])
        captured, datatype = call["captured"], call["datatype"]
        # Coll and P2p events. A captured call's come with each replay, or once at capture.
        events = call["replays"] if captured and sees_replays else calls
        if op in unreported:
            events = 0
            result["unreported"][op,] += calls
        if not reports_calls:  # Coll has their bytes
            calls, captured = events, False
            datatype = "ncclInt8" if op in ("AllGather", "Broadcast") else datatype
        result["operations"][op, size, datatype, "true" if captured else "false"] += calls
        result["bytes"][op, size] += calls * call["bytes"]
        result["events"][op] += events
        result["untimed"][op, "captured" if captured else "not_timed"] += events
        if op in COLLECTIVES:
            result["algorithms"][op,] += events
        if traffic and options.timing != "off":
            result["completions"][op,] += events - call["to_self"]
        elif options.timing == "kernel":
            result["kernel_completions"][op,] += events - call["to_self"]
    return {name: {key: value for key, value in counts.items() if value} for name, counts in result.items()}


def launches_of(communicator, unreported, follows):
    """(least, most) launches that are seen: a group makes one at least, and no more than it has
    calls; some of nothing but unreported calls are not followed either, or none are. Those before
    it is learned that NCCL hides the operation are not."""
    if "Broadcast" not in unreported:
        return communicator["launches_min"], communicator["launches_max"]
    unseen = communicator["unseen_launches" if follows else "broadcast_launches"]
    return (communicator["launches_min"] - communicator["broadcast_launches"], communicator["launches_max"] - unseen)


def untold_of(communicator, options, unreported, follows):
    """{(op,): calls} that must have the reason for operations that nothing tells of."""
    if not follows:
        return {}  # nobody knows which calls have a launch
    calls = {(call["op"],): 0 for call in communicator["calls"] if call["op"] in unreported}
    for call in communicator["calls"]:
        if call["op"] in unreported:
            calls[call["op"],] += call["calls"]
    if options.timing == "auto" and calls:
        calls = {("Broadcast",): communicator["untold_broadcasts"]}
    return {key: value for key, value in calls.items() if value}


def split_unreported(untimed):
    """`untimed` without what nothing tells of, and that by operation."""
    found = {key[:1]: value for key, value in untimed.items() if key[1] == nccl_versions.UNREPORTED_REASON}
    rest = {key: value for key, value in untimed.items() if key[1] != nccl_versions.UNREPORTED_REASON}
    return rest, found
