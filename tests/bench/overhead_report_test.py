"""overhead_report.py: verdicts on made-up samples, and whether intervals hold what they say."""

import csv
import math
import os
import random
import unittest

from bench.collective_overhead import overhead_report as report
from tests import running

LIMITS = report.Limits()
CONFIGURATIONS = [{"name": name, "has_plugin": name in ("free", "dear")} for name in ("none", "twin", "free", "dear")]
RUN = {"gpus": 2, "gpu": "GPU", "nccl": 22809, "driver": 13000, "configurations": CONFIGURATIONS}


def point_of(blocks, compute=False, launch="processes", notes=("", "", "", "")):
    return {"launch": launch, "operation": "all_reduce", "bytes": 4096, "mode": "sync", "compute": compute,
            "notes": list(notes), "blocks": blocks}


def made_up(compute=False, twin=1.0, free=1.0, launch="processes"):
    """free costs nothing, dear 5 % of the operations and 20 % of the compute beside; `twin`: its time for each of none's."""
    blocks = []
    for i in range(12):
        us, own = 100 + i, 1 + 0.0002 * (i // 2 % 3 - 1)  # a round's own: some up, some down
        blocks.append([i // 2, [[us, us * 1.1], [us * twin * own, us * 1.1 * twin * own],
                                [us * free * own, us * 1.1 * free * own], [us * 1.05, us * 1.32]]])
    return point_of(blocks, compute, launch)


def rows_of(*points):
    return report.rows_of(points, CONFIGURATIONS, LIMITS)


def said(rows):
    return [(row.configuration, row.verdict, row.reason) for row in rows]


def pairs(base, with_us, rounds=6):
    return [(number, base, with_us * (1 + 0.0005 * (number % 3 - 1) + 0.001 * (i - 2)))
            for number in range(rounds) for i in range(5)]


class Statistics(unittest.TestCase):

    def test_quantiles_are_the_tabulated_ones(self):
        for degrees, confidence, quantile in ((1, 0.95, 12.706), (2, 0.95, 4.303), (3, 0.95, 3.182), (4, 0.95, 2.776),
                                              (9, 0.99, 3.250), (30, 0.95, 2.042), (1000, 0.95, 1.962)):
            self.assertAlmostEqual(report.student_quantile(degrees, confidence), quantile, delta=0.001)

    def test_intervals(self):
        mean, low, high = report.estimate([1, 2, 3, 4, 5], 0.95)
        self.assertEqual(mean, 3)
        self.assertAlmostEqual(high - 3, 2.776 * math.sqrt(0.5), delta=0.001)
        self.assertAlmostEqual(3 - low, 2.776 * math.sqrt(0.5), delta=0.001)
        self.assertEqual(report.estimate([5], 0.95), (5, -math.inf, math.inf))

    def test_tails_of_the_binomial(self):
        self.assertEqual([report.most_by_chance(trials, 0.05) for trials in (27, 1, 2, 0, 100)], [3, 0, 1, 0, 9])

    def test_either_limit_suffices(self):
        for base, with_us, rounds, verdict in ((100, 100.5, 6, "pass"), (100, 105, 6, "FAIL"), (6, 6.2, 6, "pass"),
                                               (6, 6.4, 6, "FAIL"), (100, 101, 6, "undecided"), (100, 200, 1, "undecided")):
            self.assertEqual(report.judge(report.compare(pairs(base, with_us, rounds), 0.95), LIMITS), verdict)

    def test_twins_differ_beyond_the_interval(self):
        for with_us, rounds, verdict in ((100, 6, "alike"), (100.2, 6, "DIFFER"), (99.8, 6, "DIFFER"), (120, 1, "undecided")):
            self.assertEqual(report.judge_twin(report.compare(pairs(100, with_us, rounds), 0.95)), verdict)
        # A tenth of a nanosecond of 100 us is not told apart, however often.
        self.assertEqual(report.judge_twin(report.compare([(i, 100, 100.0001) for i in range(3)], 0.95)), "alike")

    def test_rounds_are_the_sample_however_many_pairs(self):
        values = [(number, 100, 102 if number % 2 == 0 else 98) for number in range(4) for _ in range(500 if number == 0 else 3)]
        comparison = report.compare(values, 0.95)
        self.assertEqual((comparison.pairs, comparison.rounds), (509, 4))
        self.assertAlmostEqual(comparison.ratio.mean, 1)
        self.assertAlmostEqual(comparison.ratio.high, 1 + 3.182 * 0.0231 / 2, delta=1e-4)

    def test_outliers_do_not_move_a_round_and_show_in_the_mean(self):
        values = pairs(100, 100)
        values[3] = (values[3][0], 100, 400)
        comparison = report.compare(values, 0.95)
        self.assertLess(comparison.ratio.high, 1.01)
        self.assertAlmostEqual(comparison.mean_ratio, 1.1, delta=0.001)


class Verdicts(unittest.TestCase):

    def test_twins_come_first_and_compute_has_two_times(self):
        rows = rows_of(made_up(compute=True))
        self.assertEqual([(row.configuration, row.time_of, row.verdict) for row in rows], [
            (name, time_of, verdict) for time_of in ("operations", "total")
            for name, verdict in (("twin", "alike"), ("free", "pass"), ("dear", "FAIL"))])
        self.assertAlmostEqual(rows[2].comparison.ratio.mean, 1.05, delta=1e-4)
        self.assertAlmostEqual(rows[5].comparison.ratio.mean, 1.2, delta=1e-4)

    def test_plugins_are_compared_with_the_mean_of_all_sets_without_one(self):
        twin, _, dear = rows_of(made_up(twin=1.01))
        self.assertAlmostEqual(twin.comparison.ratio.mean, 1.01, delta=1e-4)
        self.assertAlmostEqual(dear.comparison.ratio.mean, 1.05 / 1.005, delta=1e-4)

    def test_blocks_without_a_configuration_are_no_pairs(self):
        point = made_up()
        for block in point["blocks"][:5]:
            block[1][3] = [-1, -1]
        _, free, dear = rows_of(point)
        self.assertEqual((free.comparison.pairs, dear.comparison.pairs, dear.comparison.rounds), (12, 7, 4))

    def test_what_makes_a_verdict_suspect(self):
        self.assertEqual(said(rows_of(made_up(free=0.98)))[1:], [("free", "suspect", "faster than without"), ("dear", "FAIL", "")])
        self.assertEqual(rows_of(made_up(free=0.99999))[1].verdict, "pass")
        for twin in (0.99, 1.01):
            self.assertEqual(said(rows_of(made_up(twin=twin))), [("twin", "DIFFER", ""), *(
                (name, "suspect", "a twin differs here") for name in ("free", "dear"))])
        alone = made_up()
        for block in alone["blocks"]:
            block[1][1] = [-1, -1]
        self.assertEqual(said(rows_of(alone))[2], ("dear", "suspect", "no twin to compare with"))

    def test_more_twins_than_chance_explains_make_a_launch_suspect(self):
        points = [made_up(twin=1.01 if i < 2 else 1) for i in range(10)]  # 2 of 10 may
        self.assertEqual(rows_of(*points)[-1].verdict, "FAIL")
        points[2] = made_up(twin=1.01)
        rows = rows_of(*points)
        self.assertEqual(said(rows)[-1], ("dear", "suspect", "twins differ at 3 of 10"))
        self.assertIn("AT FAULT", report.twin_text(rows, points, LIMITS))
        # Twins of threads say nothing of processes.
        threads = [dict(point, launch="threads") for point in points]
        rows = rows_of(*threads, made_up())
        self.assertEqual((rows[29].verdict, rows[-1].verdict), ("suspect", "FAIL"))

    def test_a_slowdown_that_a_twin_shows_is_no_finding(self):
        blocks = []
        for i in range(12):
            twin = 108 if i // 2 % 2 else 99.8  # its interval holds 0; dear always has 2 %
            blocks.append([i // 2, [[100, 100], [twin, 100], [100, 100], [(100 + twin) / 2 * 1.02, 0]]])
        self.assertEqual(said(rows_of(point_of(blocks)))[::2],
                         [("twin", "alike", ""), ("dear", "undecided", "a twin shows as much")])


class Texts(unittest.TestCase):

    def test_tables_and_summary(self):
        points = [made_up(compute=True)]
        rows = rows_of(*points)
        self.assertEqual(report.twin_text(rows, points, LIMITS),
                         "processes: twins differ at 0 of 2 points; chance explains up to 1.\n")
        head, _, line, _ = report.markdown(rows, CONFIGURATIONS).splitlines()
        self.assertEqual(head, "| launch | operation | size | mode | time of | none, µs | twin | free | dear |")
        self.assertRegex(line, r"^\| processes \| all_reduce \| 4 KiB \| sync\+compute \| operations \| 105\.50 \| .*, alike \| .*"
                         r"\+5\.00 % \[\+4\.99, \+5\.01\], \+5\.2\d µs, FAIL \|$")
        text = report.summary(rows, RUN, LIMITS)
        for part in ("2 x GPU, NCCL 2.28.9, driver for CUDA 13.0", "free: 2 passed, 0 failed, 0 undecided, 0 suspect, 0 not measured", "dear: 0 passed, 2 failed",
                     "failed: all_reduce 4 KiB sync+compute (total), processes: +20.00 %"):
            self.assertIn(part, text)

    def test_what_was_not_measured_is_named_with_the_reason(self):
        note = 'hung, "again"'
        rows = rows_of(point_of([], notes=("", "", "", note)))
        self.assertIn("not measured: all_reduce 4 KiB sync, processes: " + note, report.summary(rows, RUN, LIMITS))
        self.assertIn("| not measured | not measured | not measured |", report.markdown(rows, CONFIGURATIONS))
        path = os.path.join(os.environ["TEST_TMPDIR"], "csv")
        report.write_csv(path, rows)
        with open(path, newline="", encoding="utf-8") as file:
            last = list(csv.DictReader(file))[-1]
        self.assertEqual((last["pairs"], last["ratio"], last["verdict"], last["note"]), ("0", "", "undecided", note))

    def test_sizes(self):
        self.assertEqual([report.size_name(size) for size in (64, 1500, 4096, 1 << 28, 1 << 30, 1 << 40)],
                         ["64 B", "1500 B", "4 KiB", "256 MiB", "1 GiB", "1024 GiB"])


class Coverage(unittest.TestCase):
    """Made-up samples of two levels: each set's own speed, drawn anew in every round, and each sample's noise."""

    TRIALS = 1500

    def point(self, rounds, blocks, between, two_speeds=False, slowdown=0.005, special=0.0):
        draw, made = random.gauss, []
        for number in range(rounds):
            common = 1 + 0.02 * draw(0, 1)  # what all sets share
            own = [draw(0, 1) for _ in range(3)]
            speeds = [common * effect * (1 + between * (math.copysign(1, each) if two_speeds else each))
                      for effect, each in zip((1 + special, 1, 1 + slowdown), own)]
            for _ in range(blocks):
                made.append([number, [[100 * speed * (1 + 0.005 * draw(0, 1)) * (1.3 if random.random() < 0.02 else 1), -1]
                                      for speed in speeds]])
        return point_of(made)

    def rows(self, *points, limits=LIMITS):
        return report.rows_of(points, [CONFIGURATIONS[0], CONFIGURATIONS[1], CONFIGURATIONS[2]], limits)

    def setUp(self):
        random.seed(7)

    def test_intervals_hold_the_truth_as_often_as_they_say(self):
        for rounds, blocks, between, two_speeds in ((2, 3, 0.003, False), (5, 3, 0, False), (8, 3, 0.02, False), (8, 6, 0.01, True)):
            held = [0, 0]
            for _ in range(self.TRIALS):
                twin, plugin = self.rows(self.point(rounds, blocks, between, two_speeds))
                for i, (row, truth) in enumerate(((twin, 1), (plugin, 1.005))):
                    held[i] += row.comparison.ratio.low <= truth <= row.comparison.ratio.high
            for each in held:  # the standard error is 0.56 %
                self.assertGreater(each / self.TRIALS, 0.93)
                self.assertLess(each / self.TRIALS, 0.98)

    def test_few_verdicts_on_the_limit_are_wrong(self):
        limits = report.Limits(absolute_us=0)
        verdicts = [self.rows(self.point(6, 5, 0.005, slowdown=0.01), limits=limits)[1].verdict for _ in range(self.TRIALS)]
        self.assertLess(verdicts.count("pass"), self.TRIALS * 0.04)
        self.assertLess(verdicts.count("FAIL"), self.TRIALS * 0.04)

    def test_a_baseline_unlike_its_twin_is_found_and_an_honest_one_is_not(self):
        found = honest = 0
        for _ in range(100):
            found += all(row.is_twin or row.verdict == "suspect" for row in self.rows(
                *[self.point(6, 5, 0.005, slowdown=0, special=0.03) for _ in range(9)]))
            _, differ, by_chance = report.count_twins(
                self.rows(*[self.point(6, 3, 0.005, slowdown=0) for _ in range(9)]), "processes", 0.95)
            honest += differ <= by_chance
        self.assertGreaterEqual(found, 98)
        self.assertGreaterEqual(honest, 90)


if __name__ == "__main__":
    running.main()
