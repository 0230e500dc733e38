"""Perfetto's own reader on the traces of the tests of `pulse trace`: what ours finds, and how it draws them.
BUILD.bazel says how to run it."""

import collections
import os
import unittest

from tests import running
from tests.perfetto import trace_processor
from tests.timeline import capture_trace_test, made_up, watch_test
from tests.timeline.case import TraceCase
from tests.timeline.made_up import START, call, calls_page, communicators_page, files, hang, rank

NS = 10**9


def ns(seconds):
    return START * NS + round(seconds * 1e6) * 1000


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
        code, _, errors = self.run_pulse("--out=" + self.out, *arguments)
        self.assertEqual(code, 0, errors)
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
