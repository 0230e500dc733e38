"""`pulse trace` of a job that runs: endpoints that answer as they are told to, and a replayed run of NCCL."""

import os
import time

from tests import running
from tests.kit import Server, reply
from tests.timeline import made_up
from tests.timeline.case import RUNFILES, TraceCase
from tests.timeline.made_up import call, calls_page, communicators_page, rank
from tests.timeline.recorded import Replay, true_calls


class Endpoint(Server):
    """Answers each question for calls with the next of `looks`, and then with the last: a page, a status, or None for
    no answer. It does so long before anybody's patience ends."""

    def __init__(self, *looks, communicators=None, clock=lambda: time.time(), by_comm=None):
        """by_comm: looks at other communicators, or functions that give one."""
        self.asked = 0
        self.asked_for = []  # communicators
        self.looks, self.by_comm = looks, by_comm or {}
        self.communicators, self.clock = communicators, clock
        super().__init__(lambda handler: self.reply(handler, self.page(handler.path)))

    def page(self, path):
        if path == "/api/v1/time":
            return {"time": self.clock()} if self.clock else 404
        if path == "/api/v1/communicators":
            return self.communicators or communicators_page(1, 2)
        if not path.endswith("/calls"):
            return 404
        comm = path.split("/")[-2]
        self.asked_for.append(comm)
        if comm in self.by_comm:
            look = self.by_comm[comm]
            return look(comm) if callable(look) else look
        self.asked += 1
        return self.looks[min(self.asked, len(self.looks)) - 1]

    @staticmethod
    def reply(handler, answer):
        if isinstance(answer, int):
            reply(handler, status=answer)
        elif answer is not None:
            reply(handler, answer)


class WatchTest(TraceCase):

    def endpoint(self, *looks, **options):
        endpoint = Endpoint(*looks, **options)
        self.addCleanup(endpoint.end)
        return endpoint

    def test_looks_are_joined_by_number(self):
        first = [call(i, i / 100) for i in range(1, 5)]
        second = [call(i, i / 100) for i in range(3, 7)]
        first[3].update(state="in_flight", launched=None)
        second[1].update(seconds=1e-3)  # known at the second look alone
        third = [call(i, i / 100, state="launched" if i == 12 else "completed") for i in range(9, 13)]
        fourth = [call(i, i / 100, state="launched" if i == 12 else "completed") for i in range(12, 14)]
        looks = [calls_page(time_, rank(0, calls), nranks=2)
                 for time_, calls in ((1, first), (2, second), (3, third), (4, fourth))]
        endpoint = self.endpoint(*looks)
        trace = self.trace("--duration=1.2s", "--endpoint=" + endpoint.name)
        self.assertGreaterEqual(endpoint.asked, len(looks))
        _, marks = trace.on("calls")
        self.assertEqual([mark.notes["number"] for mark in marks], [1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13])
        timed, = trace.on("GPU, stream 9f31")[0]
        self.assertEqual((timed.notes["number"], timed.end_ns - timed.begin_ns), (4, 1000000))
        # What left the ring between two looks is named, and not made up.
        gap, = trace.on("GAP: calls that were not seen")[0]
        self.assertEqual(gap.name, "calls 7 to 8 were not seen")
        self.assertEqual((gap.begin_ns, gap.end_ns), (marks[5].time_ns, marks[6].time_ns))
        self.assertIn("2 calls not seen", self.said)
        self.assertEqual([one.notes["number"] for one in trace.on("NOT ENDED")[0]], [12])
        counter, = trace.find_tracks("calls not known to have ended")
        self.assertEqual([value for _, value in trace.counters[counter.uuid]], [1, 0, 1, 1])
        # What it costs is said before, and how far the clock is off.
        self.assertLess(self.said.index("Overhead: "), self.said.index("calls of"))
        clock, = [mark for mark in trace.on("about this trace")[1] if mark.name.startswith("clock of")]
        self.assertLessEqual(clock.notes["ahead_at_least_ns"], 0)
        self.assertGreaterEqual(clock.notes["ahead_at_most_ns"], 0)

    def test_a_clock_that_is_ahead(self):
        endpoint = self.endpoint(calls_page(1, rank(0, [call(1, 1)]), nranks=2), clock=lambda: time.time() + 100)
        older = self.endpoint(calls_page(1, rank(1, [call(1, 1)]), nranks=2), clock=None)
        trace = self.trace("--duration=0.1s", "--endpoint=" + endpoint.name, "--endpoint=" + older.name)
        marks = {mark.name.split(":")[1].strip(): mark.notes for mark in trace.on("about this trace")[1]
                 if mark.name.startswith("clock of")}
        ahead = marks[endpoint.name.split(":")[1]]
        self.assertLessEqual(ahead["ahead_at_least_ns"], 100 * 10**9)
        self.assertGreaterEqual(ahead["ahead_at_most_ns"], 100 * 10**9)
        self.assertIn("ahead of the clock here by", self.said)
        self.assertIn(older.name + ": its error is not known", self.said)

    def test_a_clock_that_is_set(self):
        asked = []
        def clock():
            asked.append(1)
            return time.time() + (100 if len(asked) > 3 else 0)
        endpoint = self.endpoint(calls_page(1, rank(0, [call(1, 1)]), nranks=2), clock=clock)
        trace = self.trace("--duration=0.1s", "--dns=" + endpoint.name)
        mark, = [mark for mark in trace.on("about this trace")[1] if mark.name.startswith("clock of")]
        self.assertLessEqual(mark.notes["ahead_at_least_ns"], 0)
        self.assertGreaterEqual(mark.notes["ahead_at_most_ns"], 100 * 10**9)

    def test_an_endpoint_that_dies(self):
        good = self.endpoint(calls_page(1, rank(0, [call(1, 1)]), nranks=2))
        dies = self.endpoint(calls_page(1, rank(1, [call(1, 1)]), nranks=2), None)
        trace = self.trace("--duration=0.6s", "--endpoint=" + good.name, "--endpoint=" + dies.name)
        self.assertEqual(len(trace.on("calls", "rank 1 on")[1]), 1, "what it said before stays")
        self.assertIn("endpoint %s: " % dies.name, self.said)
        self.assertTrue([mark for mark in trace.on("about this trace")[1] if dies.name in mark.name
                         and not mark.name.startswith("clock")])

    def was_in_time(self):
        """No question was given up: on a busy machine, what was answered may not have been heard."""
        return "does not answer in time" not in self.said

    def communicators(self, **active):
        """id: whether its two ranks live"""
        page = {"time": made_up.START + 1, "health": {"status": "ok"}, "communicators": []}
        for comm, is_active in active.items():
            page["communicators"] += communicators_page(1, 2, comm=comm[1:])["communicators"]
            for one in page["communicators"][-1]["ranks"]:
                one["active"] = is_active
        return page

    def test_ended_communicators_cost_a_running_job_nothing(self):
        """They are asked for once, and only where no communicator is live."""
        ended = ["%016x" % i for i in range(1, 25)]
        page = calls_page(1, rank(0, [call(1, 1)]), rank(1, [call(1, 1)]))
        for is_live in (True, False):
            endpoint = self.endpoint(page, communicators=self.communicators(
                **{"_" + each: False for each in ended}, **{"_" + made_up.COMM: is_live}))
            self.trace("--duration=0.6s", "--endpoint=" + endpoint.name)
            self.assertEqual({endpoint.asked_for.count(each) for each in ended}, {0} if is_live else {1})
            self.assertGreaterEqual(endpoint.asked_for.count(made_up.COMM), 1)

    def test_what_is_refused_is_first_in_line(self):
        """An endpoint that answers every other time: each live communicator gets its turn."""
        live = ["%016x" % i for i in range(1, 5)]
        answers = []

        def every_other(comm):
            answers.append(comm)
            return calls_page(1, rank(0, [call(1, 1)]), rank(1, [call(1, 1)]), comm=comm) if len(answers) % 2 else 503

        endpoint = self.endpoint(by_comm={each: every_other for each in live},
                                 communicators=self.communicators(**{"_" + each: True for each in live}))
        self.trace("--duration=0.1s", "--endpoint=" + endpoint.name)  # and longer, until each was looked at
        if self.was_in_time():
            self.assertEqual(answers[1:7:2], answers[2:7:2])
            self.assertEqual(set(answers[:7:2]), set(live))

    def test_live_ranks_are_missing(self):
        other = "00000000000000a1"
        page = calls_page(1, rank(0, [call(1, 1)]), rank(1, None, missing="off"))
        endpoint = self.endpoint(page, by_comm={other: 503}, communicators=self.communicators(
            **{"_" + made_up.COMM: True, "_" + other: True}))
        self.trace("--duration=0.1s", "--timeout=200ms", "--endpoint=" + endpoint.name, status=4)
        self.assertIn("Reading the calls of 1 live communicator more, for up to 2s: endpoints are busy.", self.said)
        self.assertIn("INCOMPLETE: calls of 3 live ranks are missing\n", self.said)
        self.trace("--duration=0.1s", "--endpoint=" + self.endpoint(page).name, "--endpoint=127.0.0.1:1", status=4)
        self.assertIn("INCOMPLETE: 1 endpoint did not answer", self.said)

    def test_no_processor_time(self):
        busy = self.endpoint(calls_page(1, rank(0, [call(1, 1)]), nranks=2), 503)
        trace = self.trace("--duration=0.6s", "--endpoint=" + busy.name)
        self.assertEqual(len(trace.on("calls")[1]), 1)
        self.assertIn("polls were refused", self.said)
        self.assertIn("marked GAP", self.said)

    def test_what_nobody_sees_any_more_does_not_go_on(self):
        page = calls_page(9, rank(0, [call(1, 1.0), call(2, 2.0, state="in_flight")]), rank(1, [call(1, 1.0)]))
        trace = self.trace("--duration=2.5s", "--endpoint=" + self.endpoint(page, 503).name)
        missing, = trace.on("HAS NOT CALLED")[0]
        self.assertEqual((missing.name, missing.end_ns),
                         ("HAD NOT CALLED, at the last poll, AllReduce 4 KiB (collective 2)", (made_up.START + 9) * 10**9))
        trace = self.trace("--duration=0.1s", "--endpoint=" + self.endpoint(page).name)
        missing, = trace.on("HAS NOT CALLED")[0]
        self.assertIsNone(missing.end_ns)

    def test_nobody(self):
        html = self.endpoint(404, communicators={"hello": 1})
        for name, message in (("127.0.0.1:1", "Connection refused"), (html.name, "not from NCCL Pulse")):
            code, output, errors = self.run_pulse("--endpoint=" + name, "--out=" + self.out)
            self.assertEqual((code, output), (2, ""))
            self.assertIn(message, errors)
            self.assertFalse(os.path.exists(self.out))
        empty = self.endpoint(404, communicators={"time": made_up.START, "communicators": []})
        self.assertEqual(self.trace("--duration=0.1s", "--endpoint=" + empty.name, status=4).marks, [])

    def test_a_recorded_run(self):
        run = os.path.join(RUNFILES, "tests/traces/h200x2-threads")
        with Replay(run) as address:
            trace = self.trace("--duration=0.5s", "--endpoint=" + address)
        compared = 0
        for path in sorted(os.listdir(run)):
            for (comm, number), truth in true_calls(os.path.join(run, path)).items():
                mine = [mark for mark in trace.on("calls without a time")[1]
                        if any("%s: rank %d of" % (comm, number) in name for name in trace.path(mark.track))]
                self.assertEqual([mark.notes["number"] for mark in mine],
                                 list(range(len(truth) - len(mine) + 1, len(truth) + 1)), "all, up to the last one")
                self.assertEqual([(mark.notes["op"], mark.notes["bytes"]) for mark in mine], truth[-len(mine):])
                self.assertEqual(len(mine), min(len(truth), Replay.KEPT))
                compared += len(mine)
        self.assertEqual(compared, len(trace.on("calls without a time")[1]))
        self.assertGreater(compared, 300)
        self.assertEqual(trace.on("calls")[1], [], "a replay has no GPU, and knows of no launch")


if __name__ == "__main__":
    running.main(at_once=4)
