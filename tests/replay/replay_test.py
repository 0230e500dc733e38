"""The replay itself: what a plugin is given, through a plugin that writes down every call.

What NCCL does is stated here a second time, from the same facts (header of bench/replay/reduction.h and
driver.h), over the trace as JSON.
"""

import collections

from tests import running
from tests.reference import reference
from tests.replay.replay_case import BITS, ReplayTest, TYPES
from tests.replay.replayed_run import trace_files


class Sequence(ReplayTest):
    """Everything asked for: the plugin gets what was recorded."""

    def test_every_call_in_order_on_its_thread(self):
        for run in ("h200x2-threads", "h200x2-net-mixed", "h200x2-graph"):
            processes = self.recorded(run, "--api=5")
            self.assertEqual(len(processes), len(trace_files(run)))
            for calls, path in zip(processes, trace_files(run)):
                self.check_same(reference.load(path), calls)

    def check_same(self, events, calls):
        self.assertEqual([e["cb"] for e in events], [c.kind for c in calls])
        threads, handles, types = {}, {0: 0}, {}
        for event, call in zip(events, calls):
            self.assertEqual(threads.setdefault(event["tid"], call.thread), call.thread)
            if event["cb"] == "init":
                comm_id, name, nnodes, nranks, rank, _ = call.arguments
                self.assertEqual(
                    (int(comm_id, 16), name, int(nnodes), int(nranks), int(rank)),
                    (int(event["commId"], 16), event["commName"] or "-", event["nNodes"],
                     event["nranks"], event["rank"]))
            elif event["cb"] == "start":
                handles[event["h"]] = call.handle
                types[event["h"]] = event["type"]
                _, bit, parent, rank, *details = call.arguments
                self.assertEqual(TYPES[int(bit, 16)], event["type"])
                self.assertEqual(int(parent), handles[event["parent"]])
                self.assertEqual(int(rank), event["rank"])
                self.check_details(event, details, handles)
            elif event["cb"] == "stop":
                self.assertEqual(call.handle, handles[event["h"]])
            elif event["cb"] == "state":
                self.assertEqual(call.handle, handles[event["h"]])
                self.assertEqual(int(call.arguments[0]), event["state"])
                if types[event["h"]] == "groupApi":
                    self.assertEqual(call.arguments[1], "null")
                else:
                    value = event.get("pTimer", event.get("transSize", event.get("appended", 0)))
                    self.assertEqual(int(call.arguments[1]), value)
        self.assertEqual(len(set(threads.values())), len(threads))

    def check_details(self, event, details, handles):
        if event["type"] == "coll":
            self.assertEqual(details, [
                event["func"], str(event["count"]), event["datatype"], event["algo"],
                event["proto"], str(event["seqNumber"]), str(event["nChannels"]),
                str(handles[event["parentGroup"]])])
        elif event["type"] == "p2p":
            self.assertEqual(details, [
                event["func"], str(event["count"]), event["datatype"], str(event["peer"]),
                str(event["nChannels"]), str(handles[event["parentGroup"]])])
        elif event["type"] == "kernelCh":
            self.assertEqual(details, [str(event["channelId"]), str(event["pTimer"])])
        elif event["type"] == "collApi":
            self.assertEqual(details, [event["func"], str(event["count"]), str(event["graphCaptured"])])

    def test_recorded_clock_shows_the_recorded_times(self):
        for speed in ("0", "1"):
            calls, = self.recorded("h200x2-threads", "--clock=recorded", "--speed=" + speed)
            times = [event["t"] for event in reference.load(trace_files("h200x2-threads")[0])]
            self.assertEqual([call.time_ns for call in calls], times)

    def test_speed(self):
        def seconds(speed):
            times = [call.time_ns for calls in self.recorded("h200x2-graph", "--speed=" + speed) for call in calls]
            return (max(times) - min(times)) / 1e9
        as_recorded = 0.6
        self.assertGreater(seconds("1"), as_recorded)
        # A busy machine may hold up one of them, or some.
        faster = next((each for each in (seconds("4") for _ in range(20)) if each < as_recorded), None)
        self.assertIsNotNone(faster)
        self.assertGreater(faster, as_recorded / 4)

    def test_repetitions_are_new_communicators(self):
        for calls in self.recorded("h200x2-graph", "--repeat=3"):
            ids = [int(call.arguments[0], 16) for call in calls if call.kind == "init"]
            self.assertEqual([number ^ ids[0] for number in ids], [0, 1, 2])
            self.assertEqual(sum(call.kind == "finalize" for call in calls), 3)


class Reduction(ReplayTest):
    """Less asked for, or an older version: the plugin gets less."""

    def starts(self, run, *flags, **settings):
        """Number of starts by type, over all processes."""
        processes = self.recorded(run, *flags, **settings)
        counter = collections.Counter()
        for calls in processes:
            counter.update(TYPES[int(c.arguments[1], 16)] for c in calls if c.kind == "start")
        return counter

    def recorded_starts(self, run, *types):
        counter = collections.Counter()
        for path in trace_files(run):
            counter.update(e["type"] for e in reference.load(path) if e["cb"] == "start")
        return collections.Counter({t: n for t, n in counter.items() if t in types})

    def test_masks(self):
        for mask, types in (
                ("0", ()),
                ("0x20", ("proxyCtrl",)),
                ("0x100", ("groupApi",)),
                ("0x200", ("groupApi", "collApi")),
                ("0x800", ("groupApi", "kernelLaunch")),
                ("0x2", ("groupApi", "collApi", "group", "coll")),
                ("0x4", ("groupApi", "p2pApi", "group", "p2p")),
                ("0x8", ("groupApi", "collApi", "p2pApi", "group", "coll", "p2p", "proxyOp")),
                ("0x10", ("groupApi", "collApi", "p2pApi", "group", "coll", "p2p", "proxyOp",
                          "proxyStep")),
                ("0x40", ("groupApi", "collApi", "p2pApi", "group", "coll", "p2p", "kernelCh"))):
            self.assertEqual(self.starts("h200x2-net-mixed", "--api=6", MASK=mask),
                             self.recorded_starts("h200x2-net-mixed", *types), mask)

    def test_version_4(self):
        calls = self.recorded("h200x2-net-mixed", "--api=4")[0]
        types = {c.handle: TYPES[int(c.arguments[1], 16)] for c in calls if c.kind == "start"}
        self.assertEqual(set(types.values()), {"group", "coll", "p2p", "proxyOp", "proxyStep", "proxyCtrl", "kernelCh"})
        for call in calls:
            if call.kind == "start" and types[call.handle] in ("coll", "p2p"):
                self.assertEqual(types[int(call.arguments[2])], "group")
                if types[call.handle] == "p2p":
                    self.assertEqual(call.arguments[-1], str(0xa5))  # not written by NCCL
            if call.kind == "state":
                self.assertLess(int(call.arguments[0]), 23)

    def test_version_3(self):
        calls = self.recorded("h200x2-net-mixed", "--api=3")[0]
        kinds = collections.Counter(TYPES[int(c.arguments[1], 16)] for c in calls if c.kind == "start")
        self.assertGreater(kinds["kernelCh"], 0)
        self.assertFalse(kinds["collApi"])
        for call in calls:
            if call.kind == "state":
                self.assertIn(int(call.arguments[0]), range(8, 19))
            if call.kind == "start" and int(call.arguments[1], 16) == BITS["coll"]:
                self.assertEqual(call.arguments[-2:], ["-", "0"])  # no name, no hash

    def test_versions_2_and_1(self):
        for version, function in ((2, "AllReduce"), (1, "4")):
            calls = self.recorded("h200x2-net-mixed", "--api=%d" % version)[0]
            starts = [c for c in calls if c.kind == "start"]
            self.assertLess(max(int(c.arguments[1], 16) for c in starts), BITS["kernelCh"])
            first = next(c for c in starts if int(c.arguments[1], 16) == BITS["coll"])
            self.assertEqual(first.arguments[4], function)

    def test_captured_operations_come_once_without_kernel_channels(self):
        for calls in self.recorded("h200x2-graph", "--api=5", MASK="0x2"):
            colls = [c for c in calls if c.kind == "start" and int(c.arguments[1], 16) == 0x2]
            self.assertEqual([int(c.arguments[9]) for c in colls], [0, 1] + 10 * [2])
            # Each inside its own call's GroupApi, on the thread that called.
            open_groups, open_colls = set(), set()
            for call in calls:
                bit = int(call.arguments[1], 16) if call.kind == "start" else 0
                if bit == BITS["groupApi"]:
                    open_groups.add(call.handle)
                elif bit == BITS["coll"]:
                    self.assertEqual(len(open_groups), 1)
                    open_colls.add(call.handle)
                elif call.kind == "stop":
                    open_groups.discard(call.handle)
                    open_colls.discard(call.handle)
            self.assertFalse(open_colls)

    def test_null_handles(self):
        calls = self.recorded("h200x2-net-mixed", "--api=5", NULL=BITS["coll"])[0]
        self.assertNotIn(0, [c.handle for c in calls if c.kind in ("stop", "state")])
        parents = {bit: [c.arguments[2] for c in calls
                         if c.kind == "start" and int(c.arguments[1], 16) == BITS[bit]]
                   for bit in ("proxyOp", "kernelCh", "proxyStep")}
        self.assertIn("0", parents["proxyOp"])
        self.assertIn("0", parents["kernelCh"])
        self.assertNotIn("0", parents["proxyStep"])

    def test_states_of_steps_need_their_operation(self):
        calls = self.recorded("h200x2-net-mixed", "--api=5", NULL=BITS["proxyOp"])[0]
        steps = {c.handle for c in calls if c.kind == "start" and int(c.arguments[1], 16) == BITS["proxyStep"]}
        self.assertTrue(steps)
        self.assertFalse(steps & {c.handle for c in calls if c.kind == "state"})
        self.assertTrue(steps & {c.handle for c in calls if c.kind == "stop"})


if __name__ == "__main__":
    running.main()
