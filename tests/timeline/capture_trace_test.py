"""`pulse trace --from`: what stands in the pages of a capture is in the trace, and nothing else."""

import collections
import os
import subprocess
import tarfile
import tempfile

from tests import running
from tests.timeline import made_up
from tests.timeline.case import PULSE, TraceCase
from tests.timeline.made_up import START, call, calls_page, communicators_page, files, hang, rank

NS = 10**9


def ns(seconds):
    return START * NS + round(seconds * 1e6) * 1000


class CaptureTraceTest(TraceCase):

    def read(self, content, status=0):
        folder = tempfile.mkdtemp(dir=self.folder)
        return self.trace("--from=" + made_up.write_folder(folder, content), status=status)

    def test_calls_and_durations_are_exact(self):
        calls = [call(1, 1.0, seconds=72e-6, bytes=8192), call(2, 1.000001, "Send", 0, seconds=1.5e-3),
                 call(3, 1.5, "AllGather", 2), call(4, 2.25, collective=3, stream="0001", seconds=3e-3)]
        other = [call(1, 1.25), call(2, 1.5, "AllGather"), call(3, 2.2505)]
        trace = self.read(files(([calls_page(3, rank(0, calls), rank(1, other))], communicators_page(3, 2), None)))
        _, marks = trace.on("calls", "rank 0 on node-1, GPU 0, pid 100", "dp " + made_up.COMM + ": rank 0 of 2")
        self.assertEqual([(mark.name, mark.time_ns) for mark in marks],
                         [("AllReduce 8 KiB", ns(1.0)), ("Send 4 KiB", ns(1.000001)), ("AllGather 4 KiB", ns(1.5)),
                          ("AllReduce 4 KiB", ns(2.25))])
        self.assertEqual([mark.notes["number"] for mark in marks], [1, 2, 3, 4])
        self.assertEqual(marks[0].notes["seconds"], 72e-6)
        # On one stream one after the other, where the GPU can have begun them; another stream is no business of it.
        slices, _ = trace.on("GPU, stream 9f31", "rank 0 on")
        self.assertEqual([(one.name, one.begin_ns, one.end_ns, one.depth) for one in slices],
                         [("AllReduce 8 KiB", ns(1.0), ns(1.000072), 0),
                          ("Send 4 KiB", ns(1.000072), ns(1.001572), 0)])
        slices, _ = trace.on("GPU, stream 0001", "rank 0 on")
        self.assertEqual([(one.begin_ns, one.end_ns) for one in slices], [(ns(2.25), ns(2.253))])
        counter, = [track for track in trace.find_tracks("GPU, stream 9f31: bytes per second")]
        self.assertEqual([time for time, _ in trace.counters[counter.uuid]],
                         [ns(1.0), ns(1.000072), ns(1.000072), ns(1.001572)])
        self.assertAlmostEqual(trace.counters[counter.uuid][0][1], 8192 / 72e-6)
        self.assertEqual(trace.counters[counter.uuid][-1][1], 0)
        # Nothing is open, nobody is late, nothing is missing.
        self.assertEqual([one.name for one in trace.slices if one.end_ns is None], [])
        for name in ("HAS NOT CALLED", "NOT ENDED", "GAP", "SUSPECT", "without a time", "verdicts"):
            self.assertEqual(trace.find_tracks(name), [], name)
        self.assertIn("7 calls of 2 ranks in 2 processes, from 1 response; 3 with a duration", self.said)

    def test_the_same_call_is_joined_over_the_ranks(self):
        trace = self.read(files(([calls_page(3, *(rank(i, [call(1, 1 + i), call(2, 1.5 + i, "Send", 0), call(3, 1.75 + i,
                                                                                             collective=2)])
                                                  for i in range(3)))], None, None)))
        _, marks = trace.on("calls")
        joined = {}
        for mark in marks:
            for flow in mark.flows:
                joined.setdefault(flow, []).append(mark.notes["number"])
        self.assertEqual(sorted(joined.values()), [[1, 1, 1], [3, 3, 3]], "Send is of nobody else")

    def test_waits(self):
        trace = self.read(files(([calls_page(9, rank(0, [call(1, 1.0), call(2, 2.0), call(3, 6.0)]),
                                             rank(1, [call(1, 4.0), call(2, 5.0), call(3, 6.0005)]))], None, None)))
        slices, _ = trace.on("waits", "rank 0 on")
        self.assertEqual([(one.name, one.begin_ns, one.end_ns, one.depth) for one in slices],
                         [("waits for rank 1: AllReduce 4 KiB", ns(1.0), ns(4.0), 0),
                          ("waits for rank 1: AllReduce 4 KiB", ns(4.0), ns(5.0), 0)])
        self.assertEqual(trace.on("waits", "rank 1 on"), ([], []))

    def hung(self, looked=9.0, clocks=((-1000, 1000), (-1000, 1000)), **more):
        """Rank 2 is at another endpoint."""
        waiting = [[call(7, 1.0), call(8, 2.0 + i / 10, state="in_flight", begun=True)] for i in range(2)]
        return files(
            ([calls_page(9, rank(0, waiting[0]), rank(1, waiting[1]), nranks=3, suspects=[2])],
             communicators_page(9, 3, hang=hang(2.0, [2], [0, 1])), clocks[0]),
            ([calls_page(looked, rank(2, [call(7, 1.0)], "node-2"), nranks=3)], communicators_page(9, 3), clocks[1]),
            **more)

    def test_a_hang(self):
        trace = self.read(self.hung(verdict={
            "time": START + 9, "finding": "hang", "sentence": "HANG  global rank 2",
            "roots": [{"verdict": "rank_not_called", "ranks": [{"comm": made_up.COMM, "rank": 2}]}]}))
        # The culprit is found by a name.
        culprit = trace.find_tracks("<< SUSPECT: rank_not_called")
        self.assertEqual([track.name.split("  <<")[0] for track in culprit],
                         ["rank 2 on node-2, GPU 2, pid 102", "dp %s: rank 2 of 3" % made_up.COMM])
        self.assertEqual(culprit[1].parent, culprit[0].uuid)
        missing, = trace.on("HAS NOT CALLED")[0]
        self.assertEqual(trace.path(missing.track)[:2], ["NCCL job", culprit[0].name])
        self.assertEqual((missing.name, missing.begin_ns, missing.end_ns),
                         ("HAS NOT CALLED AllReduce 4 KiB (collective 8)", ns(2.0), None))
        self.assertEqual(missing.notes["called_first_by"], "rank 0 of dp (node-1, pid 100)")
        # What never ended is open to the end, and joined with what was not called.
        open_, _ = trace.on("NOT ENDED")
        self.assertEqual([(one.name, one.begin_ns, one.end_ns) for one in open_],
                         [("AllReduce 4 KiB: not ended", ns(2.0), None), ("AllReduce 4 KiB: not ended", ns(2.1), None)])
        last = [mark for mark in trace.on("calls")[1] if mark.notes["number"] == 8]
        self.assertEqual([mark.flows for mark in last], [missing.flows] * 2)
        waits, _ = trace.on("waits")
        self.assertEqual([(one.name, one.begin_ns, one.end_ns) for one in waits],
                         [("still waits for rank 2: AllReduce 4 KiB", ns(2.0), None),
                          ("still waits for rank 2: AllReduce 4 KiB", ns(2.1), None)])
        slices, marks = trace.on("verdicts")
        self.assertEqual([(one.name, one.begin_ns, one.end_ns) for one in slices],
                         [("HANG rank_not_called: dp", ns(2.0), None)])
        self.assertEqual([mark.notes.get("sentence") for mark in marks], ["HANG  global rank 2"])
        self.assertIn("1 rank HAS NOT CALLED", self.said)

    def test_the_verdict_on_the_job_names_the_suspects(self):
        calls = [[call(1, 1.0, state="in_flight", bytes=4096 + i)] for i in range(3)]
        def suspects(verdict):
            trace = self.read(files(([calls_page(9, *(rank(i, calls[i]) for i in range(3)))], communicators_page(
                9, 3, hang=hang(1.0, [0, 1, 2], [], "mismatch")), None), verdict=verdict))
            return [track.name.split(":")[1] for track in trace.find_tracks("dp ") if "SUSPECT: mismatch" in track.name]
        self.assertEqual(suspects(None), [" rank %d of 3  << SUSPECT" % i for i in range(3)])
        self.assertEqual(suspects({"time": START + 9, "finding": "hang", "roots": []}),
                         [" rank %d of 3  << SUSPECT" % i for i in range(3)])
        self.assertEqual(suspects({"time": START + 9, "finding": "hang", "roots": [
            {"verdict": "mismatch", "ranks": [{"comm": made_up.COMM, "rank": 1}]}]}), [" rank 1 of 3  << SUSPECT"])

    def test_nobody_is_accused_without_knowledge(self):
        def accused(content):
            trace = self.read(content)
            return trace.on("HAS NOT CALLED")[0] + [one for one in trace.on("waits")[0] if one.end_ns is None]
        self.assertEqual(len(accused(self.hung())), 3)
        # Looked at too early; the clocks are not known, or too far apart to say.
        self.assertEqual(accused(self.hung(looked=2.05)), [])
        self.assertEqual(accused(self.hung(clocks=(None, None))), [])
        self.assertEqual(accused(self.hung(clocks=((-1000, 1000), (-9 * NS, 9 * NS)))), [])
        # Its calls are not known, or nothing but Send and Recv is left of them.
        for calls, missing in ((None, "no_room"), ([call(300, 1.0, "Send", 0)], None)):
            self.assertEqual(accused(files(([calls_page(
                9, rank(0, [call(1, 1.0), call(2, 1.0, state="in_flight")]), rank(1, calls, missing=missing))],
                None, None))), [], missing)

    def test_who_was_not_looked_at_to_the_end(self):
        trace = self.read(self.hung(looked=7.9))
        missing, = trace.on("HAS NOT CALLED")[0]
        self.assertEqual((missing.name, missing.begin_ns, missing.end_ns),
                         ("HAD NOT CALLED, at the last poll, AllReduce 4 KiB (collective 8)", ns(2.0), ns(7.9)))
        self.assertEqual([(one.name, one.end_ns) for one in trace.on("waits")[0]],
                         [("waits, at the last poll, for rank 2: AllReduce 4 KiB", ns(7.9))] * 2)
        self.assertIn("1 rank was behind when last polled", self.said)
        # A clock that is behind is not long ago.
        trace = self.read(self.hung(looked=7.0, clocks=((-1000, 1000), (-2 * NS - 1000, -2 * NS + 1000))))
        missing, = trace.on("HAS NOT CALLED")[0]
        self.assertIsNone(missing.end_ns)

    def test_a_rank_without_calls_says_why(self):
        trace = self.read(files(([calls_page(9, rank(0, [call(1, 1.0)]), rank(1, None, missing="off"))], None, None)))
        track, = trace.find_tracks("rank 1 of 2")
        self.assertIn("(no calls: off)", track.name)

    def test_what_has_no_time_is_where_it_was_seen(self):
        trace = self.read(files(([calls_page(9, rank(0, [call(1, None, state="unknown"), call(2, 8.0)]))], None, None)))
        _, marks = trace.on("calls without a time")
        self.assertEqual([(mark.name, mark.time_ns) for mark in marks], [("AllReduce 4 KiB", ns(9))])
        self.assertIn("not known", marks[0].notes["time"])
        self.assertEqual(len(trace.on("calls")[1]), 1)
        self.assertIn("1 call without a time of its own", self.said)

    def test_calls_of_one_launch_stand_side_by_side(self):
        """trace_processor draws marks of the same time one below the other, and leaves out all beyond 512 of them."""
        calls = [call(i, 1.0, "Send", 0, group=1, seconds=1e-3 if i == 3 else None) for i in (1, 2, 3)] + [
            call(4, 1.000001), call(5, None, state="unknown"), call(6, None, state="unknown")]
        trace = self.read(files(([calls_page(9, rank(0, calls))], None, None)))
        self.assertEqual([mark.time_ns for mark in trace.on("calls")[1]], [ns(1), ns(1) + 1, ns(1) + 2, ns(1.000001)])
        self.assertEqual([mark.time_ns for mark in trace.on("calls without a time")[1]], [ns(9), ns(9) + 1])
        timed, = trace.on("GPU, stream 9f31")[0]
        self.assertEqual((timed.begin_ns, timed.end_ns), (ns(1) + 2, ns(1.001) + 2), "behind the mark that leads to it")

    def test_what_many_endpoints_say(self):
        """One below the other as far as that goes: trace_processor leaves out what lies deeper than 512."""
        hung = communicators_page(9, 600, hang=hang(2.0, [2], [0]))
        trace = self.read(files(*(([calls_page(9, rank(i, [call(1, 1.0)]), nranks=600)], hung, (-1, 1)) for i in range(600)),
                                verdict={"time": START + 9, "finding": "hang", "sentence": "HANG", "roots": []}))
        hangs, marks = trace.on("verdicts")
        self.assertEqual(([len(hangs)], [mark.name for mark in marks]), ([600], ["the job: hang"]))
        clocks = [mark for mark in trace.on("about this trace")[1] if mark.name.startswith("clock of")]
        self.assertEqual(len({mark.name for mark in clocks}), 600)
        rows = collections.Counter(each.track for each in hangs + marks + clocks)
        self.assertLessEqual(max(rows.values()), 256)
        self.assertEqual(len(rows), 6)
        first = trace.find_tracks("verdicts")[0].uuid
        self.assertEqual(marks[0].track, first, "the verdict on the job stands on top")

    def test_clocks_are_stated(self):
        trace = self.read(self.hung(clocks=((12_000, 80_000), None)))
        names = [mark.name for mark in trace.on("about this trace")[1]]
        self.assertIn("clock of node-1:9410: ahead of the clock here by 12 us to 80 us", names)
        self.assertIn("clock of node-2:9410: its error is not known", names)
        self.assertIn("clock of node-2:9410: its error is not known", self.said)

    def test_an_archive_is_the_same(self):
        folder = self.read(self.hung())
        archive = self.trace("--from=" + made_up.write_archive(os.path.join(self.folder, "c.tar.gz"), self.hung()))
        for field in ("tracks", "slices", "marks", "counters"):
            self.assertEqual(getattr(archive, field), getattr(folder, field), field)

    def test_hostile_pages(self):
        calls = [call(1, 1.0, seconds=1e300), call(2, 1e300), call(3, -5, op="\x1b[2J" + "x" * 10**5),
                 dict(call(4, 1.0), number=-1), dict(call(2**62, 1.0), seconds="much"), 7, None,
                 call(5, 1.0, state=[1], bytes=2**63 - 1, seconds=0.0)]
        page = calls_page(9, rank(0, calls), {"rank": "a", "calls": {}}, 3)
        trace = self.read(files(([page], {"communicators": {"a": 3}}, (-2**63, 2**63 - 1))))
        self.assertNotIn("\x1b", "".join(event.name for event in trace.marks))
        self.assertEqual(len(trace.on("calls")[1]) + len(trace.on("calls without a time")[1]), 5)

    def test_times_beyond_all_bounds(self):
        calls = [call(i, 6_200_000_000, seconds=999_999) for i in range(1, 1401)]
        slices, _ = self.read(files(([calls_page(9, rank(0, calls))], None, None))).on("GPU, stream 9f31")
        self.assertEqual(len(slices), 1400)
        self.assertLess(max(one.end_ns for one in slices), 2**63)
        self.assertTrue(all(one.end_ns >= one.begin_ns for one in slices))

    def test_broken_captures(self):
        whole = made_up.write_archive(os.path.join(self.folder, "whole.tar.gz"), self.hung())
        with open(whole, "rb") as file:
            data = file.read()
        def broken(name, content):
            path = os.path.join(self.folder, name)
            with open(path, "wb") as file:
                file.write(content)
            return path
        empty = os.path.join(self.folder, "empty")
        os.mkdir(empty)
        other = os.path.join(self.folder, "other.tar.gz")
        with tarfile.open(other, "w:gz") as archive:
            archive.add(__file__, "some/file.py")
        for path, message in ((broken("cut.tar.gz", data[:-20]), "not a whole .tar.gz"),
                              (broken("text.tar.gz", b"hello"), "not a whole .tar.gz"),
                              (os.path.join(self.folder, "nowhere"), "No such file"),
                              (empty, "is not a capture of pulse"), (other, "is not a capture of pulse")):
            code, output, errors = self.run_pulse("--from=" + path, "--out=" + self.out)
            self.assertEqual((code, output), (2, ""), errors)
            self.assertIn(message, errors)
            self.assertFalse(os.path.exists(self.out))
        # One file of it is broken: the rest is used.
        content = self.hung()
        content["endpoints/0002-node-2_9410/calls/%s.json" % made_up.COMM] = "{"
        trace = self.read(content)
        self.assertEqual(len(trace.on("calls")[1]), 4)
        self.assertIn("0002-node-2_9410/calls/%s.json of the capture is broken" % made_up.COMM, self.said)

    def test_an_empty_job(self):
        trace = self.read(files(([], {"time": START, "communicators": []}, None)), status=4)
        self.assertEqual((trace.slices, trace.marks), ([], []))
        self.assertIn("there is no call in it", self.said)

    def test_what_cannot_be_written(self):
        capture = "--from=" + made_up.write_folder(os.path.join(self.folder, "capture"), self.hung())
        with open(self.out, "w", encoding="utf-8") as file:
            file.write("mine")
        fifo = os.path.join(self.folder, "fifo")
        os.mkfifo(fifo)
        before = sorted(os.listdir(self.folder))
        for out, message in ((self.out, "exists already, and is kept; choose another --out"),
                             ("/nowhere/x", "there is no folder"), ("/dev/full", "No space left on device"),
                             ("/proc/x", "cannot write"), (fifo, "no process reads it; start its reader first")):
            code, output, errors = self.run_pulse(capture, "--out=" + out)
            self.assertEqual((code, output), (5, ""), out)
            self.assertIn(message, errors)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_the_standard_output_and_a_fifo_have_the_trace_alone(self):
        capture = "--from=" + made_up.write_folder(os.path.join(self.folder, "capture"), self.hung())
        self.run_pulse(capture, "--out=" + self.out)
        with open(self.out, "rb") as file:
            expected = file.read()
        command = [PULSE, "trace", capture, "--out=/dev/stdout"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        self.assertEqual(done.stdout, expected)
        self.assertIn(b"5 calls of 3 ranks", done.stderr)
        with open(os.path.join(self.folder, "redirected"), "w+b") as file:
            subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=True)
            file.seek(0)
            self.assertEqual(file.read(), expected)
        fifo = os.path.join(self.folder, "fifo")
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.assertEqual(self.run_pulse(capture, "--out=" + fifo)[0], 0)
        self.assertEqual(os.read(reader, 1 << 16), expected)


if __name__ == "__main__":
    running.main()
