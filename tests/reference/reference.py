"""What a recorded trace must come to: an independent count, sharing no code with the plugin.

    reference.py [--timing auto|kernel] [--api 4|5|6] [--network] TRACE.jsonl[.xz] ...

prints one sample a line, as on a /metrics page but with exact numbers: histograms as native cells
(cell:count) and a sum in nanoseconds. Needs Python 3 and its standard library alone.

Definitions
  calls       CollApi and P2pApi events (API 5 and later), Coll and P2p events (API 4).
  bytes       count times element size; NCCL gives AllGather's and Broadcast's Coll in bytes.
  completion  an operation with ProxyOp children: last ProxyOp stop minus Coll/P2p start, if all that
              started have stopped (source "proxy"). Else, with kernel timing: the KernelCh stop that
              completed the operation's nChannels distinct channels, minus start (source "kernel").
  duration    kernel timing: last GPU stop minus first GPU start over the channels of an operation whose
              nChannels channels have all stopped, if, in this order,
                its communicator is trusted at that moment           else untimed, "untrusted"
                all channels' intervals overlap mutually             else untimed, "overlap"
                no channel started before the previous start on the
                same communicator and channel                        else untimed, "backwards"
  trust       ends with the first P2p to the rank itself, or when 16 of the last 64 operations with
              several channels failed one of the last two checks.
  invisible   kernel timing: operations without any KernelCh. lost: with some, but not all stopped.
  not_timed   auto timing: every operation, but captured ones are "captured".
  network     API 5 and later, with steps watched all the time: ProxyStep events of ProxyOps that count
              above, each when it stops. Bytes are those of state 9 (send) or 11 (receive). A wait lasts
              from one state to the next (the stop being the last): after 8 gpu, 20 peer, 9 wire; after
              10 wire, 11 flush, 12 gpu. The first 20 counts, later ones say nothing new.
              Without kernel timing, the duration of an operation that has steps and completes (source
              "proxy"): first state 20 or 11 of them all to the last ProxyOp stop.
  launches    KernelLaunch events, but for those whose GroupApi was captured into a CUDA graph: they
              become part of the graph and run when it is replayed.

Without KernelCh, NCCL makes no callbacks when a captured operation is replayed (unless it has network
traffic), but one at capture; and captured operations then do not advance the sequence number.
"""

import argparse
import collections
import json
import lzma
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from reference_values import Histogram, bus_bytes, cell_of, size_class  # noqa: E402, F401  (beside this file)

ELEMENT_BYTES = {
    "ncclInt8": 1, "ncclUint8": 1, "ncclInt32": 4, "ncclUint32": 4, "ncclInt64": 8, "ncclUint64": 8,
    "ncclFloat16": 2, "ncclFloat32": 4, "ncclFloat64": 8, "ncclBfloat16": 2, "ncclFloat8e4m3": 1,
    "ncclFloat8e5m2": 1, "Unknown": 1,
}

# State -> (direction, reason) of the wait that it begins.
STEP_WAITS = {8: ("send", "gpu"), 20: ("send", "peer"), 9: ("send", "wire"),
              10: ("recv", "wire"), 11: ("recv", "flush"), 12: ("recv", "gpu")}

# Samples: (metric, ((label, value), ...)) -> int or Histogram. Labels sorted by name.


def load(path):
    opener = lzma.open if path.endswith(".xz") else open
    with opener(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


class Operation:
    """A Coll or P2p event and what became of it."""

    def __init__(self, event, size):
        self.event = event
        self.op = event["func"]
        self.bytes = size
        self.proxy_started = 0
        self.proxy_stopped = 0
        self.last_proxy_stop = None
        self.starts = {}  # channel -> GPU time
        self.stops = {}
        self.stopped = set()  # channels
        self.backwards = False
        self.kernel_end = None  # time of the callback that completed the channels
        self.moves = []  # times at which steps moved data


class Communicator:
    def __init__(self, init):
        self.init = init
        self.trusted = True
        self.distrust_reason = None
        self.last_start = {}  # channel -> GPU time
        self.history = collections.deque(maxlen=64)  # True: failed
        self.operations = []
        self.sequence = {}


class Count:
    """Counts one trace file into samples."""

    def __init__(self, events, timing, api, repetition=0, network=False):
        self.samples = {}
        self.kernel = timing == "kernel"
        self.api = api
        self.repetition = repetition
        self.network = network and api >= 5
        self.steps = {}  # ProxyStep handle -> [(time, state, bytes)], each state once
        self.starts = {e["h"]: e for e in events if e["cb"] == "start"}
        self.communicators = {}
        self.operations = {}  # handle -> Operation
        self.channels = {}    # KernelCh handle -> GPU stop time
        self.hidden = set()   # handles of Coll and P2p that NCCL would not announce
        if not self.kernel:
            self.find_silent_replays(events)
        for event in events:
            self.add(event)
        for communicator in self.communicators.values():
            self.finish(communicator)

    # Graphs without KernelCh.

    def find_silent_replays(self, events):
        on_network = {self.starts[e["parent"]].get("parentGroup") for e in self.starts.values()
                      if e["type"] == "proxyOp" and e["parent"]}
        seen = set()
        self.at_capture = collections.defaultdict(list)  # captured call's GroupApi -> Coll and P2p
        for event in events:
            if event["cb"] != "start" or event["type"] not in ("coll", "p2p"):
                continue
            call = self.starts.get(event["parent"])
            if not (call and call["graphCaptured"]) or event["parentGroup"] in on_network:
                continue
            self.hidden.add(event["h"])
            if event["parent"] not in seen:
                seen.add(event["parent"])
                self.at_capture[call["parent"]].append(event)

    # Samples.

    def key(self, metric, communicator, **labels):
        labels["comm"] = format(int(communicator.init["commId"], 16) ^ self.repetition, "016x")
        labels["rank"] = str(communicator.init["rank"])
        return metric, tuple(sorted(labels.items()))

    def add_to(self, metric, communicator, value, **labels):
        key = self.key(metric, communicator, **labels)
        self.samples[key] = self.samples.get(key, 0) + value

    def set(self, metric, communicator, value, **labels):
        self.samples[self.key(metric, communicator, **labels)] = value

    def observe(self, metric, communicator, duration_ns, **labels):
        self.samples.setdefault(self.key(metric, communicator, **labels), Histogram()).observe(duration_ns)

    # Events.

    def add(self, event):
        kind = event["cb"]
        if kind == "init":
            communicator = self.communicators[event["ctx"]] = Communicator(event)
            self.add_to("nccl_launches_total", communicator, 0)
        elif kind == "start":
            handler = getattr(self, "start_" + event["type"], None)
            if handler and event["h"] not in self.hidden:
                handler(event, self.communicators[event["ctx"]])
        elif kind == "state":
            if event["state"] == 22:
                self.channels[event["h"]] = event["pTimer"]
            elif event["h"] in self.steps:
                states = self.steps[event["h"]]
                if event["state"] not in [state for _, state, _ in states]:
                    states.append((event["t"], event["state"], event.get("transSize", 0)))
        elif kind == "stop":
            start = self.starts[event["h"]]
            handler = getattr(self, "stop_" + start["type"], None)
            if handler:
                handler(event, start)

    def count_call(self, event, communicator, captured):
        size = event["count"] * ELEMENT_BYTES[event["datatype"]]
        labels = {"op": event["func"], "size": size_class(size)}
        self.add_to("nccl_operation_bytes_total", communicator, size, **labels)
        self.add_to("nccl_operations_total", communicator, 1, datatype=event["datatype"],
                    captured="true" if captured else "false", **labels)

    def start_collApi(self, event, communicator):
        if self.api >= 5:
            self.count_call(event, communicator, event["graphCaptured"])

    start_p2pApi = start_collApi

    def start_kernelLaunch(self, event, communicator):
        group = self.starts.get(event["parent"])
        if self.api >= 5 and not (group and group["graphCaptured"]):
            self.add_to("nccl_launches_total", communicator, 1)

    def start_coll(self, event, communicator):
        number = event["seqNumber"]
        if not self.kernel:
            # Captured operations used up numbers in the recording.
            number = communicator.sequence.get(event["func"], 0)
            call = self.starts.get(event["parent"])
            if not (call and call["graphCaptured"]):
                communicator.sequence[event["func"]] = number + 1
        self.set("sequence", communicator, number, op=event["func"])  # of the JSON, no metric
        self.add_to("nccl_algorithm_operations_total", communicator, 1, op=event["func"],
                    algo=event["algo"], proto=event["proto"])
        self.start_operation(event, communicator)

    def start_p2p(self, event, communicator):
        if event["peer"] == communicator.init["rank"] and communicator.trusted:
            communicator.trusted = False
            communicator.distrust_reason = "self_send"
        self.start_operation(event, communicator)

    def start_operation(self, event, communicator):
        if self.api == 4:
            self.count_call(event, communicator, False)
        size = event["count"] * ELEMENT_BYTES[event["datatype"]]
        operation = self.operations[event["h"]] = Operation(event, size)
        communicator.operations.append(operation)

    def stop_groupApi(self, event, start):
        if self.kernel:
            return
        for operation in self.at_capture.get(start["h"], ()):
            communicator = self.communicators[operation["ctx"]]
            (self.start_coll if operation["type"] == "coll" else self.start_p2p)(operation, communicator)

    def start_proxyOp(self, event, communicator):
        if event["parent"] and event["pid"] == communicator.init["pid"]:
            self.operations[event["parent"]].proxy_started += 1

    def stop_proxyOp(self, event, start):
        operation = self.operations[start["parent"]]
        operation.proxy_stopped += 1
        operation.last_proxy_stop = event["t"]

    def start_proxyStep(self, event, communicator):
        proxy = self.starts.get(event["parent"])
        if (self.network and proxy and proxy["parent"] and proxy["pid"] == communicator.init["pid"]):
            self.steps[event["h"]] = []

    def stop_proxyStep(self, event, start):
        states = self.steps.pop(event["h"], None)
        if not states:
            return
        communicator = self.communicators[start["ctx"]]
        operation = self.operations[self.starts[start["parent"]]["parent"]]
        for (time, state, size), (after, _, _) in zip(states, states[1:] + [(event["t"], None, 0)]):
            direction, reason = STEP_WAITS[state]
            self.add_to("nccl_network_wait_seconds_total", communicator, after - time,
                        direction=direction, reason=reason)
            if state in (9, 11):
                self.add_to("nccl_network_bytes_total", communicator, size, direction=direction)
            if state in (20, 11):
                operation.moves.append(time)

    def start_kernelCh(self, event, communicator):
        if not self.kernel:
            return
        operation = self.operations[event["parent"]]
        channel, time = event["channelId"], event["pTimer"]
        operation.starts[channel] = time
        previous = communicator.last_start.get(channel)
        if previous is not None and time < previous:
            operation.backwards = True
        communicator.last_start[channel] = time

    def stop_kernelCh(self, event, start):
        if not self.kernel:
            return
        operation = self.operations[start["parent"]]
        channel = start["channelId"]
        operation.stops[channel] = self.channels[event["h"]]
        operation.stopped.add(channel)
        if len(operation.stopped) == operation.event["nChannels"] and operation.kernel_end is None:
            operation.kernel_end = event["t"]
            self.time(operation, self.communicators[start["ctx"]])

    # Results.

    def time(self, operation, communicator):
        labels = {"op": operation.op, "size": size_class(operation.bytes), "timing": "kernel"}
        if not communicator.trusted:
            self.untimed(operation, communicator, "untrusted")
            return
        overlap = max(operation.starts.values()) <= min(operation.stops.values())
        if len(operation.stopped) >= 2:
            communicator.history.append(not overlap or operation.backwards)
            if sum(communicator.history) >= 16:
                communicator.trusted = False
                communicator.distrust_reason = "checks_failed"
        if not overlap:
            self.untimed(operation, communicator, "overlap")
        elif operation.backwards:
            self.untimed(operation, communicator, "backwards")
        else:
            duration = max(operation.stops.values()) - min(operation.starts.values())
            self.observe("nccl_operation_duration_seconds", communicator, duration, **labels)
            self.add_to("nccl_timed_bus_bytes_total", communicator, bus_bytes(
                operation.op, operation.bytes, communicator.init["nranks"]), **labels)

    def untimed(self, operation, communicator, reason):
        self.add_to("nccl_operations_without_duration_total", communicator, 1, op=operation.op, reason=reason)

    def finish(self, communicator):
        for operation in communicator.operations:
            self.finish_operation(operation, communicator)
        if self.kernel:
            for reason in ("self_send", "checks_failed"):
                self.set("nccl_pulse_kernel_timing_untrusted", communicator,
                         int(communicator.distrust_reason == reason), reason=reason)

    def finish_operation(self, operation, communicator):
        labels = {"op": operation.op, "size": size_class(operation.bytes)}
        start = operation.event["t"]
        active = operation.proxy_started or operation.starts
        if operation.proxy_started:
            if operation.proxy_started == operation.proxy_stopped:
                active = False
                self.observe("nccl_operation_completion_seconds", communicator,
                             operation.last_proxy_stop - start, source="proxy", **labels)
                if operation.moves and not self.kernel:
                    self.observe("nccl_operation_duration_seconds", communicator,
                                 operation.last_proxy_stop - min(operation.moves),
                                 timing="network", **labels)
        elif operation.kernel_end is not None:
            active = False
            self.observe("nccl_operation_completion_seconds", communicator,
                         operation.kernel_end - start, source="kernel", **labels)
        if active:
            self.add_to("nccl_operations_without_completion_total", communicator, 1, op=operation.op)
        if self.kernel:
            if not operation.starts:
                self.untimed(operation, communicator, "invisible")
            elif operation.kernel_end is None:
                self.untimed(operation, communicator, "lost")
        else:
            call = self.starts.get(operation.event["parent"])
            captured = self.api >= 5 and call and call["graphCaptured"]
            self.untimed(operation, communicator, "captured" if captured else "not_timed")


def count_files(paths, timing, api, repeat=1, network=False):
    """The samples of a run: all its files, `repeat` times (repetition r has commId XOR r)."""
    samples = {}
    for path in paths:
        events = load(path)
        for repetition in range(repeat):
            found = Count(events, timing, api, repetition, network).samples
            assert not samples.keys() & found.keys(), "two processes have one rank of a communicator"
            samples.update(found)
    return samples


def format_sample(key, value):
    metric, labels = key
    text = metric + "{" + ",".join('%s="%s"' % label for label in labels) + "} "
    if isinstance(value, Histogram):
        cells = " ".join("%d:%d" % cell for cell in sorted(value.cells.items()))
        return text + "%d sum_ns=%d cells %s" % (value.count(), value.sum_ns, cells)
    return text + str(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--timing", choices=("auto", "kernel"), default="auto")
    parser.add_argument("--api", type=int, choices=(4, 5, 6), default=6)
    parser.add_argument("--network", action="store_true", help="network steps are watched")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("traces", nargs="+")
    arguments = parser.parse_args()
    samples = count_files(arguments.traces, arguments.timing, arguments.api, arguments.repeat, arguments.network)
    for key in sorted(samples):
        print(format_sample(key, samples[key]))


if __name__ == "__main__":
    sys.exit(main())
