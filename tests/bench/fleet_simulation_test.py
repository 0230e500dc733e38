"""bench/fleet, small and fast: real endpoints of 32 made-up ranks, and a real Prometheus."""

import json
import os
import re
import subprocess
import unittest

from bench.fleet import configuration, extrapolation, measurement, pages, report, rule_cost
from tests import running

PROGRAM = os.path.abspath("bench/fleet/fleet_simulation")
RANKS = 32

PAGE = """\
# TYPE nccl_operations counter
nccl_operations_total{op="AllReduce"} 3
# TYPE nccl_operation_duration_seconds histogram
# UNIT nccl_operation_duration_seconds seconds
nccl_operation_duration_seconds_bucket{le="1.0"} 2
nccl_operation_duration_seconds_bucket{le="+Inf"} 3
nccl_operation_duration_seconds_count 3
nccl_operation_duration_seconds_sum 4.0
# TYPE nccl_pulse_scrape_duration_seconds summary
nccl_pulse_scrape_duration_seconds_count 3
nccl_pulse_scrape_duration_seconds_sum 4.0
# EOF
"""


def run_program(*arguments):
    return subprocess.run([PROGRAM, *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)


class WholeSimulationTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        figures = os.path.join(os.environ["TEST_TMPDIR"], "figures.json")
        cls.result = run_program("--ranks=%d" % RANKS, "--fewer-ranks=0", "--faster=15",
                                 "--minutes=0.1", "--json=" + figures)
        with open(figures, encoding="utf-8") as file:
            cls.classic, cls.native = json.load(file)["runs"]

    def test_nothing_is_wrong(self):
        self.assertEqual(self.result.returncode, 0, self.result.stdout + self.result.stderr)
        self.assertNotIn("WRONG", self.result.stdout)

    def test_prometheus_has_what_the_endpoints_serve(self):
        for run in (self.classic, self.native):
            self.assertEqual((run["ranks"], run["nodes"]), (RANKS, RANKS // 8))
            self.assertEqual(run["scraped_series"], run["served_series"])
            self.assertGreater(run["scraped_series"], 50 * RANKS)
            # And up, and four more of each scrape.
            self.assertGreaterEqual(run["head_series"], run["scraped_series"] +
                                    run["recorded_series"] + 5 * run["nodes"])
        # A histogram is one series natively, and has 16 buckets or more classically.
        self.assertGreater(self.classic["scraped_series"], 2 * self.native["scraped_series"])

    def test_rules_record_and_a_few_of_their_series_leave(self):
        for run in (self.classic, self.native):
            self.assertGreater(len(run["rule_groups"]), 10)
            for level in ("rank", "comm", "workload", "job"):
                self.assertGreater(run["recorded"][level], 0, level)
            self.assertGreater(run["remote_series"], run["nodes"])
            self.assertLess(run["remote_series"], run["scraped_series"] / 2)

    def test_every_cost_was_measured(self):
        for run in (self.classic, self.native):
            for cost in ("samples_per_s", "remote_samples_per_s", "remote_bytes_per_s",
                         "page_bytes", "page_gzip_bytes", "page_cpu_s", "scrape_mean_s",
                         "scrape_slowest_s", "memory_mean", "memory_peak", "cores",
                         "wal_bytes_per_sample", "chunk_bytes_per_sample",
                         "index_bytes_per_series", "sample_cpu_s"):
                self.assertGreater(run[cost], 0, cost)
            self.assertGreater(run["page_bytes"], 3 * run["page_gzip_bytes"])

    def test_every_rule_was_asked_for(self):
        for run in (self.classic, self.native):
            groups = rule_cost.by_group([rule_cost.RuleCost(**cost) for cost in run["rule_costs"]])
            self.assertEqual(set(groups), set(run["rule_groups"]))
            # Of a few ranks the cheapest ones may cost no more than asking for nothing.
            self.assertGreater(sum(cpu_s for cpu_s, _ in groups.values()), 0)
            series = {cost["name"]: cost["series"] for cost in run["rule_costs"]}
            # All, but for nodes whose scrape is late on a loaded machine.
            self.assertGreater(series["rank:nccl_communicator:live"], RANKS)
            self.assertLessEqual(series["rank:nccl_communicator:live"], 4 * RANKS)
            self.assertEqual({cost["interval_s"] for cost in run["rule_costs"] if cost["group"] == "nccl-hang"}, {3})

    def test_the_table_says_so(self):
        (series,) = re.findall(r"\| series of the pages; of a rank \| ([\d,]+); \S+ \| ([\d,]+); ",
                               self.result.stdout)
        self.assertEqual([int(number.replace(",", "")) for number in series],
                         [self.classic["scraped_series"], self.native["scraped_series"]])
        self.assertRegex(self.result.stdout, r"^Prometheus [23]\.\d+")
        for run, name in ((self.classic, "classic"), (self.native, "native")):
            self.assertIn("%s: the dearest of %d rules" % (name, len(run["rule_costs"])), self.result.stdout)

    def test_nothing_is_left_behind(self):
        self.assertEqual([name for name in os.listdir(os.environ["TEST_TMPDIR"])
                          if name.startswith("fleet_simulation-")], [])


class PartsTest(unittest.TestCase):

    def test_bad_arguments(self):
        for argument in ("--ranks=3", "--fewer-ranks=1000", "--formats=protobuf", "--minutes=x",
                         "--gpus=16000,"):
            result = run_program(argument)
            self.assertEqual(result.returncode, 2)
            self.assertIn(argument.split("=")[0], result.stderr)

    def test_series_of_a_page(self):
        self.assertEqual(pages.series(PAGE, native=False), 7)
        self.assertEqual(pages.series(PAGE, native=True), 4)

    def test_faster_rules(self):
        text = "interval: 30s\nx[5m] + y[1m] + z[3d] offset 1h\n  interval: 2m\n"
        self.assertEqual(configuration.faster_rules(text, 15),
                         "interval: 2s\nx[20s] + y[4s] + z[3d] offset 1h\n  interval: 8s\n")
        self.assertEqual(configuration.faster_rules("interval: 5s\n", 15), "interval: 1s\n")

    def test_what_is_remote_written(self):
        for name in ("up", "ALERTS", "job:nccl_ranks:live", "workload:nccl_x_bucket:rate5m"):
            self.assertTrue(configuration.is_remote_written(name), name)
        for name in ("nccl_operations_total", "rank:nccl_communicator:live",
                     "comm:nccl_operation_duration_seconds_bucket:rate5m", "ALERTS_FOR_STATE"):
            self.assertFalse(configuration.is_remote_written(name), name)

    def test_groups_of_rules(self):
        def cost(group, name, interval_s, cpu_s):
            return rule_cost.RuleCost(group, name, False, interval_s, cpu_s, 1)
        costs = [cost("a", "x", 60, 0.6), cost("b", "y", 15, 0.15), cost("b", "z", 15, 0.45)]
        groups = rule_cost.by_group(costs)
        self.assertEqual(list(groups), ["b", "a"])
        self.assertAlmostEqual(groups["b"][0], 0.6)
        self.assertAlmostEqual(rule_cost.busiest_group(costs), 0.04)
        self.assertAlmostEqual(rule_cost.cores(costs), 0.05)
        run = measurement.Measurement("native", 8, 1, 15, 60, rule_costs=costs)
        self.assertIn("| `b`; 15 s | 600 ms, 80 % |", report.rules([run]))
        self.assertIn("| `z` | b | 1 | 450 ms | 60 % |", report.rules([run]))

    def test_extrapolation(self):
        def run(ranks):
            # 100 MB, and 5 kB a series; 0.1 processors, and one for a million series.
            return measurement.Measurement(
                "classic", ranks, ranks // 8, 15, 300, scraped_series=400 * ranks,
                recorded_series=100 * ranks, samples_per_s=40 * ranks,
                page_gzip_bytes=30e3, memory_peak=100e6 + 5e3 * 500 * ranks,
                chunk_bytes_per_sample=2, sample_cpu_s=15e-6,
                rule_costs=[rule_cost.RuleCost("a", "x", False, 30, 0.002 * ranks, ranks),
                            rule_cost.RuleCost("b", "y", True, 60, 0.001 * ranks, ranks)])
        fleet = extrapolation.extrapolate(run(240), run(1000), 16000, 64e9)
        self.assertEqual((fleet.scraped_series, fleet.recorded_series), (6.4e6, 1.6e6))
        self.assertEqual(fleet.samples_per_s, 640e3)
        self.assertAlmostEqual(fleet.received_bytes_per_s, 2000 * 30e3 / 15)
        self.assertAlmostEqual(fleet.memory_bytes, 100e6 + (5e3 + 2 * 120) * 8e6)
        # Scraping; storing what `x` records; both rules.
        self.assertAlmostEqual(fleet.cores, 6.4 + 15e-6 * 16000 / 30 + (2 / 30 + 1 / 60) * 16)
        self.assertAlmostEqual(fleet.rules_share, 2 / 30 * 16)
        self.assertAlmostEqual(fleet.rules_cores, (2 / 30 + 1 / 60) * 16)
        self.assertEqual((fleet.servers_by_memory, fleet.servers_by_rules), (2, 3))
        self.assertEqual(fleet.servers(), 3)
        self.assertIn("| 2; 3 |", report.extrapolated([fleet], 64e9))

    def test_noise_makes_no_negative_constant(self):
        line = extrapolation.line((100, 10), (400, 100))
        self.assertEqual((line.constant, line.slope), (0, 0.25))


if __name__ == "__main__":
    running.main(at_once=2)
