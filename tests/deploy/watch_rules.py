"""Alerts on what `pulse watch` says, and the one without it."""

from tests.deploy.rules_case import RulesTest
from tests.deploy.scenario import Job

HANG = "nccl_job_hang_start_timestamp_seconds"
ROOT = {"job_id": "7", "workload": "llama", "comm": "c0ffee", "rank": "2", "global_rank": "2", "Hostname": "node1",
        "gpu": "0", "pid": "102", "verdict": "rank_not_called", "op": "AllReduce"}
TEXTS = {"job_id": "7", "workload": "llama", "comm": "c0ffee", "rank": "2", "first_step": "py-spy dump",
         "text": "rank 2 (node1, GPU 0) has not called AllReduce; 3 processes wait",
         "report": "https://watch/?job_id=7"}
SLOW = {"job_id": "7", "workload": "llama", "Hostname": "node1", "first_step": "nvidia-smi"}


class Watch(RulesTest):

    STEP_S = 15
    FILES = ("recording", "hang", "stragglers")
    BY = ("job_id", "Hostname", "global_rank")
    ALL = ("NcclJobHung", "NcclJobHungLong", "NcclHangUnwatched", "NcclWatchAbsent", "NcclWatchBlind",
           "NcclSlowRank", "NcclSlowNode")

    def watched(self, minutes, watchers=2, until=None, silent=0, failed=0, clock=0):
        """Scrapes of watchers that make their rounds, the first one until that minute."""
        scrapes = self.scrapes(minutes)
        for number in range(watchers):
            of = self.watcher(number)
            times = [clock + i * scrapes.step for i in range(scrapes.scrapes)]
            scrapes.set("nccl_watch_round_timestamp_seconds", times, **of)
            scrapes.set("nccl_watch_find_failed", failed, **of)
            scrapes.set("nccl_watch_endpoints", 100 - silent, **of, state="answered")
            scrapes.set("nccl_watch_endpoints", silent, **of, state="silent")
        if until is not None:
            scrapes.end(until, instance="watch-0:9420")
        return scrapes

    @staticmethod
    def watcher(number):
        return {"job": "nccl-pulse-watch", "instance": "watch-%d:9420" % number, "pod": "watch-%d" % number}

    def hang(self, scrapes, since, end=None, start=0, number=0, clock=0, **labels):
        """From 10 s after minute `since` on, until minute `end`."""
        values = [None if i * scrapes.step < since * 60 + 10 or (end and i >= scrapes.at(end)) else clock + since * 60
                  for i in range(scrapes.scrapes)]
        scrapes.set(HANG, values, **self.watcher(number), **{**ROOT, **labels})
        scrapes.set("nccl_job_hang_process_start_timestamp_seconds", [value and clock + start * 60 for value in values],
                    **self.watcher(number), job_id="7", workload="llama")

    def test_all_is_well(self):
        self.is_silent(self.watched(30), 29, *self.ALL)

    def test_a_hang_of_two_watchers_is_one_alert(self):
        scrapes = self.watched(30)
        for number in range(2):
            self.hang(scrapes, 20, number=number)
        root = [("7", "node1", "2")]
        self.is_silent(scrapes, 20, "NcclJobHung")
        self.fires(scrapes, "NcclJobHung", 20.25, self.BY, root)
        self.gives(scrapes, "count(ALERTS{alertname='NcclJobHung'})", 22, {"{}": 1})
        self.is_silent(scrapes, 24, "NcclJobHungLong")
        self.fires(scrapes, "NcclJobHungLong", 24.5, self.BY, root)
        self.is_silent(scrapes, 29, "NcclHangUnwatched")

    def test_what_it_says(self):
        scrapes = self.watched(30)
        self.hang(scrapes, 20)
        for number in range(2):
            scrapes.set("nccl_job_hang_info", 1, **self.watcher(number), **TEXTS)
        self.annotates(scrapes, "NcclJobHungLong", 25, {**ROOT, "severity": "critical"}, {
            "summary": "Job llama (7) hangs: rank 2 (node1, GPU 0) has not called AllReduce; 3 processes wait. "
                       "Next: py-spy dump. Report: https://watch/?job_id=7",
            "description": "Since 1970-01-01 00:20:00 +0000 UTC, communicator c0ffee, pid 102.",
            "runbook_url": "https://docs.example.com/nccl-pulse/runbook.md#nccljobhunglong"})

    def test_the_watchers_clock_differs(self):
        for clock in (-3000, 3000):
            scrapes = self.watched(30, watchers=1, clock=clock)
            self.hang(scrapes, 20, clock=clock)
            self.is_silent(scrapes, 24, "NcclJobHungLong", "NcclWatchAbsent")
            self.fires(scrapes, "NcclJobHungLong", 24.5, self.BY, [("7", "node1", "2")])

    def test_one_watcher_ends(self):
        scrapes = self.watched(30, until=22)
        for number in range(2):
            self.hang(scrapes, 20, number=number, end=22 if number == 0 else None)
        # All the time; whether the range has both its ends differs from server to server.
        self.gives(scrapes, "count_over_time((count(ALERTS{alertname='NcclJobHung'}) == 1)[8m:15s]) >= bool 32", 29,
                   {"{}": 1})
        self.is_silent(scrapes, 29, "NcclWatchAbsent")

    def test_in_a_young_job_everything_is_the_first_time(self):
        scrapes = self.watched(30)
        self.hang(scrapes, 20, start=15)
        self.is_silent(scrapes, 20.75, "NcclJobHung")
        self.fires(scrapes, "NcclJobHung", 21.25, self.BY, [("7", "node1", "2")])

    def test_it_ends(self):
        scrapes = self.watched(30)
        self.hang(scrapes, 20, end=26)
        self.fires(scrapes, "NcclJobHungLong", 25.75, self.BY, [("7", "node1", "2")])
        self.is_silent(scrapes, 26, *self.ALL)

    def test_late(self):
        for labels, alert in (({"pid": "102", "global_rank": "2"}, "NcclSlowRank"), ({}, "NcclSlowNode")):
            for ratio, expected in ((0.2, [("7", "node1")]), (0.04, [])):
                scrapes = self.watched(40)
                for number in range(2):
                    scrapes.set("nccl_job_straggler_ratio", scrapes.change(20, None, ratio), **self.watcher(number),
                                **SLOW, **labels)
                self.is_silent(scrapes, 24, alert)
                self.fires(scrapes, alert, 39, ("job_id", "Hostname"), expected)
                # It fires for the whole, or for one of its ranks.
                self.is_silent(scrapes, 39, *({"NcclSlowRank", "NcclSlowNode"} - {alert}))

    def test_late_for_a_moment(self):
        scrapes = self.watched(40)
        scrapes.set("nccl_job_straggler_ratio", [0.5 if 80 <= i < 84 else None for i in range(scrapes.scrapes)],
                    **self.watcher(0), **SLOW, pid="102")
        for minutes in (22, 26, 30):
            self.is_silent(scrapes, minutes, "NcclSlowRank")

    def standing(self, scrapes, usual=None, **labels):
        job = Job(scrapes, **labels)
        scrapes.set("nccl_hang_start_timestamp_seconds", scrapes.change(5, None, 280), job="nccl-pulse",
                    instance="node0:9410", comm="c0ffee", op="AllReduce", verdict="no_progress")
        if usual is not None:
            scrapes.set("nccl_hang_expected", scrapes.change(5, None, usual), job="nccl-pulse", instance="node0:9410",
                        comm="c0ffee")
        return job

    def test_without_a_watcher_it_is_said_that_ranks_stand(self):
        scrapes = self.watched(15, watchers=0)
        self.standing(scrapes)
        self.is_silent(scrapes, 5.75, "NcclHangUnwatched")
        self.fires(scrapes, "NcclHangUnwatched", 6.25, ("job_id", "severity"), [("7", "critical")])
        self.fires(scrapes, "NcclWatchAbsent", 6.25, ("severity",), [("warning",)])

    def test_nobody_is_told_of_usual_waits_or_of_jobs_that_wait_on_purpose(self):
        for options in ({"usual": 1}, {"hang_alert": "off"}):
            scrapes = self.watched(15, watchers=0)
            self.standing(scrapes, **options)
            self.is_silent(scrapes, 14, "NcclHangUnwatched")

    def test_a_hang_that_no_watcher_reports(self):
        """Its node is missing in their list of endpoints."""
        scrapes = self.watched(15)
        self.standing(scrapes)
        self.is_silent(scrapes, 9, "NcclHangUnwatched")
        self.fires(scrapes, "NcclHangUnwatched", 11, ("job_id", "severity"), [("7", "critical")])

    def test_a_hang_that_a_watcher_reports_by_another_id_of_its_job(self):
        scrapes = self.watched(15)
        self.standing(scrapes)
        Job(scrapes, job_id="8", node="other")
        scrapes.set(HANG, 280, **self.watcher(0), **{**ROOT, "job_id": "8"})
        self.is_silent(scrapes, 14, "NcclHangUnwatched")

    def test_a_watcher_that_stands(self):
        scrapes = self.watched(15, watchers=1)
        values = scrapes.series["nccl_watch_round_timestamp_seconds", tuple(sorted(self.watcher(0).items()))]
        values[20:] = [values[20]] * (scrapes.scrapes - 20)
        self.is_silent(scrapes, 5, "NcclWatchAbsent")
        self.fires(scrapes, "NcclWatchAbsent", 9, ("severity",), [("warning",)])

    def test_who_sees_too_little(self):
        for options, expected in (({"silent": 9}, []), ({"silent": 11}, [("warning",)]), ({"failed": 1}, [("warning",)])):
            scrapes = self.watched(15, **options)
            self.is_silent(scrapes, 4, "NcclWatchBlind")
            self.fires(scrapes, "NcclWatchBlind", 6, ("severity",), expected)
