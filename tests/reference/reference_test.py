"""The reference count itself: its histogram geometry, and totals that are known about each trace."""

import glob
import os
import unittest
from fractions import Fraction

from tests import running
from tests.reference import reference

TRACES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "traces")


def files(run):
    return sorted(glob.glob(os.path.join(TRACES, run, "*.jsonl.xz")))


def total(samples, metric, **labels):
    """Sum over the series of `metric` that have these labels; histograms count their observations."""
    result = 0
    for (name, pairs), value in samples.items():
        if name == metric and labels.items() <= dict(pairs).items():
            result += value.count() if isinstance(value, reference.Histogram) else value
    return result


class Geometry(unittest.TestCase):

    def test_powers_of_two_are_upper_bounds(self):
        # 2^-20 s is 953.67 ns; 1 s and 1024 s are exact.
        self.assertEqual(reference.cell_of(0), 0)
        self.assertEqual(reference.cell_of(953), 0)
        self.assertEqual(reference.cell_of(954), 1)
        self.assertEqual(reference.cell_of(10**9), 160)
        self.assertEqual(reference.cell_of(10**9 + 1), 161)
        self.assertEqual(reference.cell_of(1024 * 10**9), 240)
        self.assertEqual(reference.cell_of(1024 * 10**9 + 1), 241)

    def test_cell_is_the_least_that_holds_the_duration(self):
        for duration in (954, 1000, 1003, 123456, 10**6, 777777777, 10**9 + 1, 10**12):
            cell = reference.cell_of(duration)
            seconds = Fraction(duration, 10**9)
            self.assertLessEqual(seconds**8, Fraction(2)**(cell - 160))
            self.assertGreater(seconds**8, Fraction(2)**(cell - 161))

    def test_classic_buckets_count_up_to_their_bound(self):
        histogram = reference.Histogram()
        for duration in (3814, 10**9, 10**9 + 1, 2000 * 10**9):
            histogram.observe(duration)
        buckets = histogram.classic_buckets()
        self.assertEqual((buckets[-18], buckets[-3], buckets[0], buckets[4]), (1, 1, 2, 3))
        self.assertEqual(histogram.count(), 4)

    def test_size_classes(self):
        self.assertEqual(reference.size_class(0), "le_4KiB")
        self.assertEqual(reference.size_class(4096), "le_4KiB")
        self.assertEqual(reference.size_class(4097), "le_16KiB")
        self.assertEqual(reference.size_class(1 << 30), "le_1GiB")
        self.assertEqual(reference.size_class((1 << 30) + 1), "gt_1GiB")


class Totals(unittest.TestCase):
    """Against numbers that follow from what was run (tests/traces/README.md)."""

    RUNS = ("h200x2-graph", "h200x2-net-mixed", "h200x2-nvlink-group", "h200x2-threads", "h200x4-pytorch-ddp-fsdp")

    def test_every_operation_is_timed_or_has_a_reason(self):
        for run in self.RUNS:
            for timing in ("auto", "kernel"):
                samples = reference.count_files(files(run), timing, 6)
                operations = total(samples, "nccl_algorithm_operations_total") + self.p2p(run)
                self.assertEqual(
                    total(samples, "nccl_operation_duration_seconds") +
                    total(samples, "nccl_operations_without_duration_total"), operations, (run, timing))

    @staticmethod
    def p2p(run):
        return sum(1 for path in files(run) for event in reference.load(path)
                   if event["cb"] == "start" and event["type"] == "p2p")

    def test_rounds(self):
        samples = reference.count_files(files("h200x2-threads"), "kernel", 6)
        for op, calls in (("AllReduce", 25), ("AllGather", 25), ("ReduceScatter", 25),
                          ("Broadcast", 25), ("Send", 50), ("Recv", 50)):
            self.assertEqual(total(samples, "nccl_operations_total", op=op), 2 * calls)
        # 64 KiB is 16384 floats, half of it in bfloat16.
        self.assertEqual(total(samples, "nccl_operation_bytes_total", op="AllReduce"), 2 * 25 * 32768)

    def test_self_sends_end_trust_in_one_communicator_alone(self):
        samples = reference.count_files(files("h200x2-threads"), "kernel", 6)
        self.assertEqual(total(samples, "nccl_pulse_kernel_timing_untrusted", reason="self_send"), 2)
        # The split communicator has none: all of its operations are timed.
        self.assertEqual(total(samples, "nccl_operation_duration_seconds", op="AllGather"), 50)

    def test_network_operations_complete_by_proxy(self):
        samples = reference.count_files(files("h200x2-net-mixed"), "auto", 6)
        self.assertEqual(total(samples, "nccl_operation_completion_seconds", source="proxy", op="AllReduce"), 50)
        # Half of the sends go to the rank itself: no network.
        self.assertEqual(total(samples, "nccl_operation_completion_seconds", source="proxy", op="Send"), 50)
        self.assertEqual(total(samples, "nccl_operations_without_completion_total"), 0)

    def test_network_steps(self):
        samples = reference.count_files(files("h200x2-net-mixed"), "auto", 6, network=True)
        moved = {direction: total(samples, "nccl_network_bytes_total", direction=direction)
                 for direction in ("send", "recv")}
        # Two ranks, nobody else: what one sends the other receives.
        self.assertGreater(moved["send"], 0)
        self.assertEqual(moved["send"], moved["recv"])
        self.assertEqual(total(samples, "nccl_operation_duration_seconds", timing="network"),
                         total(samples, "nccl_operation_completion_seconds", source="proxy"))
        for direction, reasons in (("send", ("gpu", "peer", "wire")), ("recv", ("wire", "gpu"))):
            for reason in reasons:
                self.assertGreater(total(samples, "nccl_network_wait_seconds_total",
                                         direction=direction, reason=reason), 0, reason)
        without = reference.count_files(files("h200x2-net-mixed"), "auto", 6)
        self.assertEqual(total(without, "nccl_network_bytes_total"), 0)

    def test_graph_replays_are_seen_with_kernel_timing_alone(self):
        auto = reference.count_files(files("h200x2-graph"), "auto", 6)
        kernel = reference.count_files(files("h200x2-graph"), "kernel", 6)
        self.assertEqual(total(auto, "nccl_algorithm_operations_total"), 2 * 12)
        self.assertEqual(total(kernel, "nccl_algorithm_operations_total"), 2 * 92)
        self.assertEqual(total(auto, "nccl_operations_total"), 2 * 12)
        self.assertEqual(total(kernel, "nccl_operations_total"), 2 * 12)
        self.assertEqual(total(auto, "nccl_operations_without_duration_total", reason="captured"), 2 * 10)

    def test_older_api_counts_operations(self):
        samples = reference.count_files(files("h200x4-pytorch-ddp-fsdp"), "auto", 4)
        newer = reference.count_files(files("h200x4-pytorch-ddp-fsdp"), "auto", 6)
        self.assertEqual(total(samples, "nccl_operations_total"), total(newer, "nccl_operations_total"))
        # AllGather and Broadcast reach it in bytes.
        self.assertEqual(
            total(samples, "nccl_operations_total", op="AllGather", datatype="ncclInt8"),
            total(newer, "nccl_operations_total", op="AllGather"))


if __name__ == "__main__":
    running.main()
