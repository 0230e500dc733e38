"""What Perfetto's own reader finds in traces of `pulse trace`: exactly what stands in the recorded calls, in the pages of a
simulated job and in those of a capture after a hang. BUILD.bazel says how to run it."""

import collections
import glob
import json
import os
import re
import signal
import subprocess
import time
import unittest

from tests import running
from tests.node import cluster
from tests.node.demo_test import Demo
from tests.node.proof_job import Job, RANKS
from tests.perfetto import trace_processor
from tests.timeline import capture_trace_test, made_up, watch_test
from tests.timeline.case import PULSE, RUNFILES, TraceCase
from tests.timeline.made_up import START, call, calls_page, communicators_page, files, hang, rank
from tests.timeline.recorded import Replay, true_calls

NS = 10**9
CALLS = "place.name in ('calls', 'calls without a time')"
FIELDS = ("number", "collective", "op", "bytes", "datatype", "group", "stream", "state", "seconds")


def ns(seconds):
    return START * NS + round(seconds * 1e6) * 1000


def launch_ns(page_call):
    """It is kept to a microsecond; a double does not hold more."""
    return None if page_call["launched"] is None else round(page_call["launched"] * 1e6) * 1000


def rank_of(track):
    """(comm, rank) of a communicator's track."""
    comm, number = re.search(r"([0-9a-f]{16}): rank (\d+) of ", track).groups()
    return comm, int(number)


class Truth:
    """What pages of /api/v1/communicators/ID/calls say, in the test's own words."""

    def __init__(self, *pages):
        self.calls = {(page["comm"], each["rank"]): each["calls"] for page in pages for each in page["ranks"]
                      if each["calls"]}
        self.processes = {(page["comm"], each["rank"]): (each["hostname"], each["pid"])
                          for page in pages for each in page["ranks"]}

    def marks(self):
        """{(comm, rank): [(launch, annotations ...)]}, of calls whose launch is known, by time."""
        return {key: sorted((self.mark_ns(calls, each),) + tuple(each[field] for field in FIELDS)
                            for each in calls if each["launched"])
                for key, calls in self.calls.items() if any(each["launched"] for each in calls)}

    def mark_ns(self, calls, one):
        """Those of one launch stand a nanosecond apart."""
        return launch_ns(one) + sum(each["launched"] == one["launched"] and each["number"] < one["number"] for each in calls)

    def durations(self):
        """{(comm, rank): [(begin, length, number)]} of timed calls: none begins before its launch, or before the end of
        what was timed before it on the same stream of its process."""
        streams = collections.defaultdict(list)
        for key, calls in self.calls.items():
            for each in calls:
                if each["launched"] and each["seconds"] is not None:
                    streams[self.processes[key], each["stream"]].append((self.mark_ns(calls, each), key, each))
        found = collections.defaultdict(list)
        for timed in streams.values():
            free = 0
            for launch, key, each in sorted(timed, key=lambda one: one[:2] + (one[2]["number"],)):
                begin = max(launch, free)
                length = round(each["seconds"] * 1e9)
                free = begin + length
                found[key].append((begin, length, each["number"]))
        return {key: sorted(each) for key, each in found.items()}

    def callers(self):
        """{(comm, collective): ranks}"""
        found = collections.defaultdict(list)
        for (comm, number), calls in self.calls.items():
            for each in calls:
                if each["collective"] is not None:
                    found[comm, each["collective"]].append(number)
        return found


NEEDED = unittest.skipUnless(trace_processor.find(), "takes Perfetto's trace_processor_shell: see BUILD.bazel")


class Both:
    """Cases whose traces both readers read, and find the same in them."""

    def check_file(self, path, trace):
        asked = trace_processor.TraceProcessor(path)
        self.assertEqual(asked.complaints(), [])
        def place(track):
            return tuple(([None, None] + trace.path(track))[-3:])
        events = [place(each.track) + (each.name, each.begin_ns, -1 if each.end_ns is None else each.end_ns - each.begin_ns)
                  for each in trace.slices] + [place(each.track) + (each.name, each.time_ns, 0) for each in trace.marks]
        self.assertEqual(collections.Counter(each[:6] for each in asked.slices("true")), collections.Counter(events))
        self.assertEqual(collections.Counter(asked.counters("")),
                         collections.Counter(place(track) + each for track, values in trace.counters.items() for each in values))


@NEEDED
class CaptureInBothTest(Both, capture_trace_test.CaptureTraceTest):
    pass


@NEEDED
class WatchInBothTest(Both, watch_test.WatchTest):
    pass


@NEEDED
class TraceProcessorTest(TraceCase):

    def read(self, *arguments):
        """The trace as trace_processor has it, which has nothing to complain of."""
        code, output, errors = self.run_pulse("--out=" + self.out, *arguments)
        self.assertEqual(code, 0, errors)
        self.said = output + errors
        asked = trace_processor.TraceProcessor(self.out)
        self.assertEqual(asked.complaints(), [])
        self.check_clock(asked)
        return asked

    def check_clock(self, asked):
        """Its timestamps are Unix time: what it shows as UTC is what was written."""
        self.assertEqual(asked.rows("apart", "select distinct to_realtime(ts) - ts as apart from slice"), [(0,)])
        (begin, slices), = asked.rows("begin_ slices", """
            select start_ts as begin_, (select min(ts) from (select ts from slice union select ts from counter)) as slices
            from trace_bounds""")
        self.assertEqual(begin, slices)

    def check_calls(self, asked, truth):
        """All marks, durations and arrows between the ranks' calls; returns how many of each there are."""
        found = collections.defaultdict(list)
        for _, comm, _, name, ts, dur, depth, *notes in asked.slices("place.name = 'calls'", " ".join(FIELDS)):
            self.assertEqual((dur, depth, name.split()[0]), (0, 0, notes[FIELDS.index("op")]))
            found[rank_of(comm)].append((ts, *notes))
        expected = truth.marks()
        self.assertEqual({key: sorted(each, key=lambda mark: mark[:2]) for key, each in found.items()}, expected)
        operations = {(comm, op): count for comm, op, count in asked.rows("comm op calls", """
            select comm, extract_arg(slice.arg_set_id, 'debug.op') as op, count(*) as calls
            from slice join %s place on place.id = slice.track_id where place.name = 'calls' group by 1, 2""" %
                                                                            trace_processor.PLACES)}
        self.assertEqual({(rank_of(comm), op): count for (comm, op), count in operations.items()},
                         collections.Counter((key, mark[3]) for key, marks in expected.items() for mark in marks))
        timed = collections.defaultdict(list)
        for _, comm, track, _, ts, dur, depth, number, seconds in asked.slices("place.name like 'GPU%'", "number seconds"):
            self.assertEqual((depth, round(seconds * 1e9)), (0, dur), track)
            timed[rank_of(comm)].append((ts, dur, number))
        self.assertEqual({key: sorted(each) for key, each in timed.items()}, truth.durations())
        return (sum(map(len, found.values())), sum(map(len, timed.values())), self.check_flows(asked, truth))

    def check_flows(self, asked, truth):
        """Arrows go from rank to rank of one collective, and from a call to its duration; none is missing."""
        between, own = collections.Counter(), collections.Counter()
        for comm, track, number, to_comm, to_track, to_number in asked.flows("number"):
            if to_track.startswith("GPU"):
                own[rank_of(comm)] += 1
                self.assertEqual((track, comm, number), ("calls", to_comm, to_number))
        for comm, _, collective, to_comm, to_track, to_collective in asked.flows("collective"):
            if not to_track.startswith("GPU"):
                self.assertEqual((rank_of(comm)[0], collective), (rank_of(to_comm)[0], to_collective))
                self.assertNotEqual(rank_of(comm), rank_of(to_comm))
                between[rank_of(comm)[0], collective] += 1
        self.assertEqual(own, {key: len(each) for key, each in truth.durations().items()})
        missing = collections.Counter(
            (rank_of(comm)[0], collective) for _, comm, _, _, _, _, _, collective in asked.slices(
                "place.name = 'HAS NOT CALLED'", "collective"))
        self.assertEqual(between, {key: len(ranks) - 1 + missing[key] for key, ranks in truth.callers().items()
                                   if len(ranks) + missing[key] > 1})
        return sum(between.values())

    def test_a_recorded_run(self):
        run = os.path.join(RUNFILES, "tests/traces/h200x2-threads")
        with Replay(run) as address:
            begin_ns = time.time_ns()
            asked = self.read("--duration=0.5s", "--endpoint=" + address)
            end_ns = time.time_ns()
        found = collections.defaultdict(list)
        for _, comm, track, name, ts, dur, _, number, op, size in asked.slices(CALLS, "number op bytes"):
            self.assertEqual((track, dur, name.split()[0]), ("calls without a time", 0, op))
            self.assertTrue(begin_ns < ts < end_ns)
            found[rank_of(comm)].append((number, op, size))
        truth = {}
        for path in sorted(os.listdir(run)):
            for key, calls in true_calls(os.path.join(run, path)).items():
                truth[key] = [(i + 1, *each) for i, each in enumerate(calls)][-Replay.KEPT:]
        self.assertEqual(found, truth)
        self.assertGreater(sum(map(len, truth.values())), 1500)

    def pages_of(self, capture):
        pages = []
        for path in glob.glob(os.path.join(capture, "endpoints/*/calls/*.json")):
            with open(path, encoding="utf-8") as file:
                pages.append(json.load(file))
        return pages

    def capture(self, port, *arguments):
        """A folder, after a moment without which pages have no processor time."""
        folder = os.path.join(self.folder, "capture")
        done = subprocess.run([PULSE, "capture", "--endpoint=127.0.0.1:%d" % port, "--out=" + folder, *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return folder

    def test_a_simulated_run(self):
        port = cluster.free_port()
        demo = Demo("127.0.0.1:%d" % port)
        self.addCleanup(demo.close)
        demo.wait_for("Now all is well")
        time.sleep(4)
        folder = self.capture(port)
        demo.end(signal.SIGTERM)
        truth = Truth(*self.pages_of(folder))
        asked = self.read("--from=" + folder)
        marks, durations, arrows = self.check_calls(asked, truth)
        self.assertEqual(len(truth.calls), 8, "four ranks on two communicators each")
        self.assertGreater(min(marks, arrows), 500)
        self.assertGreater(durations, 100)

    def test_a_capture_after_a_hang(self):
        port = cluster.free_port()
        job = Job(self.folder, "127.0.0.1:%d" % port, "warm", "hang")
        self.addCleanup(job.close)
        job.report()
        job.go_on()
        def hung():
            answer = cluster.get(port, "/api/v1/communicators")
            page = json.loads(answer[1]) if answer and answer[0] == 200 else {"communicators": []}
            return [each for each in page["communicators"] if each["hang"] and each["hang"]["waiting"] == [0, 1]]
        comm = cluster.wait_until(hung, "it hangs")[0]["comm"]
        folder = self.capture(port, "--hang-after=2s")
        truth = Truth(*self.pages_of(folder))
        asked = self.read("--from=" + folder)
        marks, _, _ = self.check_calls(asked, truth)
        self.assertGreater(marks, 20)
        # Who holds up whom.
        missing, = asked.slices("place.name = 'HAS NOT CALLED'", "collective")
        waiting = truth.calls[comm, 0][-1]
        first = min(launch_ns(truth.calls[comm, each][-1]) for each in range(RANKS - 1))
        self.assertEqual((rank_of(missing[1]), missing[4], missing[5], missing[-1]),
                         ((comm, RANKS - 1), first, -1, waiting["collective"]))
        self.assertTrue(all("<< SUSPECT: rank_not_called" in name for name in missing[:2]))
        waits = asked.slices("place.name = 'waits' and slice.dur = -1", "collective")
        self.assertEqual([(rank_of(each[1]), each[4], each[-1]) for each in waits],
                         [((comm, i), launch_ns(truth.calls[comm, i][-1]), waiting["collective"]) for i in range(RANKS - 1)])
        with open(glob.glob(os.path.join(folder, "endpoints/*/communicators.json"))[0], encoding="utf-8") as file:
            since, = [each["hang"]["since"] for each in json.load(file)["communicators"] if each["comm"] == comm]
        verdict, job_ = asked.slices("place.name = 'verdicts'", "comm")
        self.assertEqual((verdict[4], verdict[5], verdict[-1]), (round(since * 1e6) * 1000, -1, comm))
        self.assertEqual(job_[3], "the job: hang")

    def test_each_kind_of_track(self):
        """A made-up hang, to the nanosecond."""
        timed = [call(1, 1.0, seconds=72e-6, bytes=8192), call(2, 1.000001, "Send", 0, seconds=1.5e-3),
                 call(7, 1.5, "AllGather", 2), call(8, 2.25, collective=3, stream="0001", seconds=3e-3),
                 call(9, 3.0, collective=4, state="in_flight", begun=True)]
        late = [call(1, 1.25), call(2, 1.5, "AllGather"), call(3, 2.2505)]
        page = calls_page(9, rank(0, timed), rank(1, late), suspects=[1])
        folder = os.path.join(self.folder, "capture")
        made_up.write_folder(folder, files(
            ([page], communicators_page(9, 2, hang=hang(3.0, [1], [0])), (-1000, 2000)),
            verdict={"time": START + 9, "finding": "hang", "sentence": "HANG  \"it\" isn't 'me'"}))
        asked = self.read("--from=" + folder)
        self.check_calls(asked, Truth(page))
        def seen(track):
            return [(rank_of(each[1])[1],) + each[3:7] for each in asked.slices("place.name = '%s'" % track)]
        self.assertEqual(seen("GPU, stream 9f31"), [(0, "AllReduce 8 KiB", ns(1.0), 72000, 0),
                                                    (0, "Send 4 KiB", ns(1.000072), 1500000, 0)])
        self.assertEqual(seen("GPU, stream 0001"), [(0, "AllReduce 4 KiB", ns(2.25), 3000000, 0)])
        self.assertEqual([(each[2],) + each[3:] for each in asked.counters("bytes per second")], [
            ("GPU, stream 0001: bytes per second", ns(2.25), 4096 / 3e-3),
            ("GPU, stream 0001: bytes per second", ns(2.253), 0),
            ("GPU, stream 9f31: bytes per second", ns(1.0), 8192 / 72e-6),
            ("GPU, stream 9f31: bytes per second", ns(1.000072), 0),
            ("GPU, stream 9f31: bytes per second", ns(1.000072), 4096 / 1.5e-3),
            ("GPU, stream 9f31: bytes per second", ns(1.001572), 0)])
        self.assertEqual([(rank_of(each[1])[1],) + each[3:] for each in asked.counters("not known to have ended")],
                         [(0, ns(9), 1), (1, ns(9), 0)])
        self.assertEqual(seen("HAS NOT CALLED"), [(1, "HAS NOT CALLED AllReduce 4 KiB (collective 4)", ns(3), -1, 0)])
        self.assertEqual(seen("NOT ENDED"), [(0, "AllReduce 4 KiB: not ended", ns(3), -1, 0)])
        self.assertEqual(seen("waits"), [(0, "waits for rank 1: AllReduce 8 KiB", ns(1.0), 250000000, 0),
                                         (0, "still waits for rank 1: AllReduce 4 KiB", ns(3), -1, 0)])
        self.assertEqual(seen("GAP: calls that were not seen"),
                         [(0, "calls 3 to 6 were not seen", ns(1.000001), ns(1.5) - ns(1.000001), 0)])
        self.assertEqual([each[3:6] + each[7:] for each in asked.slices("place.name = 'verdicts'", "sentence text")],
                         [("HANG rank_not_called: dp", ns(3), -1, None, "Rank 1 has not called."),
                          ("the job: hang", ns(9), 0, "HANG  \"it\" isn't 'me'", None)])
        clock, = asked.slices("slice.name like 'clock of %'", "ahead_at_least_ns ahead_at_most_ns")
        self.assertEqual(clock[4:6] + clock[7:], (ns(9), 0, -1000, 2000))

    def test_many_calls_at_one_time(self):
        """Marks of one time would be drawn one below the other, 512 of them at most."""
        calls = [call(i, 1.0, "Send", 0, group=1) for i in range(1, 601)] + [
            call(i, None, collective=i - 600, state="unknown") for i in range(601, 1201)]
        folder = made_up.write_folder(os.path.join(self.folder, "capture"), files(
            ([calls_page(9, rank(0, calls))], None, None)))
        asked = self.read("--from=" + folder)
        for track, first, since in (("calls", 1, ns(1)), ("calls without a time", 601, ns(9))):
            self.assertEqual([(each[4], each[6], each[7]) for each in asked.slices("place.name = '%s'" % track, "number")],
                             [(since + i, 0, first + i) for i in range(600)])

    def test_the_order_of_tracks(self):
        """As ui.perfetto.dev asks for it (its plugin dev.perfetto.TrackEvent): the verdicts first, ranks by their numbers."""
        folder = made_up.write_folder(os.path.join(self.folder, "capture"), files(
            ([calls_page(9, *(rank(i, [call(1, 1.0, seconds=1e-3)]) for i in (0, 1, 2, 10)), nranks=11)],
             communicators_page(9, 11, hang=hang(2.0, [2], [0])), None)))
        rows = self.read("--from=" + folder).rows("above name shown merged unit", """
            select above.name as above, one.name, one.has_data + one.has_children as shown,
                   one.track_ids like '%,%' as merged, one.unit
            from _track_event_tracks_ordered_groups one
            left join _track_event_tracks_ordered_groups above on one.parent_id = above.min_track_id
            order by one.order_id""", module="viz.summary.track_event")
        self.assertEqual({row[2:4] for row in rows}, {(1, 0)}, "each is shown, by itself")
        below = collections.defaultdict(list)
        for above, name, *_ in rows:
            below[above and " ".join(above.split()[:4])].append(" ".join(name.split()[:2]))
        self.assertEqual(below[None], ["NCCL job"])
        self.assertEqual(below["NCCL job"], ["verdicts", "about this", "rank 0", "rank 1", "rank 2", "rank 10"])
        self.assertEqual(below["dp %s: rank 0" % made_up.COMM], ["calls", "GPU, stream", "GPU, stream", "calls not"])
        self.assertEqual([row[4] for row in rows if row[1].endswith("bytes per second")], ["bytes"] * 4)


if __name__ == "__main__":
    running.main()
