"""What graph_accuracy.py makes of pages."""

import unittest

from tests.gpu import graph_accuracy

PAGE = """# TYPE nccl_operation_duration_seconds histogram
nccl_operation_duration_seconds_bucket{op="AllReduce",size="le_1KiB",timing="kernel",rank="0",le="1"} %(count)d
nccl_operation_duration_seconds_sum{op="AllReduce",size="le_1KiB",timing="kernel",rank="0"} %(sum)g
nccl_operation_duration_seconds_count{op="AllReduce",size="le_1KiB",timing="kernel",rank="0"} %(count)d
nccl_operation_duration_seconds_sum{op="AllReduce",size="le_1KiB",timing="kernel",rank="1"} 99
nccl_operation_duration_seconds_count{op="AllReduce",size="le_1KiB",timing="kernel",rank="1"} 1
nccl_operation_duration_seconds_sum{op="AllGather",size="le_1KiB",timing="kernel",rank="0"} 99
nccl_operation_duration_seconds_count{op="AllGather",size="le_1KiB",timing="kernel",rank="0"} 1
"""


def after(count, seconds):
    return graph_accuracy.totals(PAGE % {"count": count, "sum": seconds}, 0)


class GraphAccuracyTest(unittest.TestCase):

    def test_one_block_of_outliers_moves_the_mean_alone(self):
        pages = [(True, after(*each)) for each in (
            (0, 0), (100, 0.001), (200, 0.002), (300, 0.012), (300, 0.012), (400, 0.013))]
        calls, median, mean = graph_accuracy.durations(pages)["kernel"]["le_1KiB"]
        self.assertEqual(calls, 400)
        self.assertAlmostEqual(median, 10)
        self.assertAlmostEqual(mean, 32.5)

    def test_what_is_not_of_a_block_is_left_out(self):
        pages = [(False, after(5, 1)), (True, after(105, 1.001)), (False, after(110, 9))]
        calls, median, mean = graph_accuracy.durations(pages)["kernel"]["le_1KiB"]
        self.assertEqual(calls, 100)
        self.assertAlmostEqual(median, 10)
        self.assertAlmostEqual(mean, 10)

    def test_nothing_timed(self):
        self.assertEqual(graph_accuracy.durations([(True, {}), (True, after(0, 0))]), {})

    def test_tolerance(self):
        for stamps, kernel, expected in ((10, 13.9, False), (10, 14.1, True), (20, 15.9, True), (109, 100, False), (111, 100, True)):
            self.assertEqual(graph_accuracy.differ(stamps, kernel), expected)

    def test_order_of_sizes(self):
        labels = ["le_64B", "le_1KiB", "le_16KiB", "le_1MiB", "le_64MiB"]
        self.assertEqual(sorted(reversed(labels), key=graph_accuracy.order), labels)


if __name__ == "__main__":
    unittest.main()
