"""What reference.py counts with: histograms, size classes and bus bytes."""

import collections

SIZE_CLASSES = ((4096, "le_4KiB"), (16384, "le_16KiB"), (65536, "le_64KiB"), (262144, "le_256KiB"),
                (1 << 20, "le_1MiB"), (4 << 20, "le_4MiB"), (16 << 20, "le_16MiB"),
                (64 << 20, "le_64MiB"), (256 << 20, "le_256MiB"), (1 << 30, "le_1GiB"))

OVERFLOW_CELL = 241


class Histogram:
    """Cells of Prometheus' native schema 3 from 2^-20 s to 2^10 s, and the sum."""

    def __init__(self):
        self.cells = collections.Counter()
        self.sum_ns = 0

    def observe(self, duration_ns):
        self.cells[cell_of(duration_ns)] += 1
        self.sum_ns += duration_ns

    def count(self):
        return sum(self.cells.values())

    def classic_buckets(self):
        """{exponent e: observations <= 2^e s} of each bucket that a page shows."""
        return {e: sum(n for cell, n in self.cells.items() if cell <= 8 * (e + 20))
                for e in (*range(-18, -4), -3, 0, 4)}


def cell_of(duration_ns, cache={}):
    """The least cell whose upper bound 2^((cell-160)/8) s the duration does not exceed. Integers only:
    both sides raised to the eighth power."""
    cell = cache.get(duration_ns)
    if cell is None:
        left = duration_ns**8 << 160
        low, high = 0, OVERFLOW_CELL
        while low < high:
            middle = (low + high) // 2
            if left <= 10**72 << middle:
                high = middle
            else:
                low = middle + 1
        cell = cache[duration_ns] = low
    return cell


def size_class(size):
    for bound, name in SIZE_CLASSES:
        if size <= bound:
            return name
    return "gt_1GiB"


def bus_bytes(op, size, nranks):
    """By the convention of nccl-tests."""
    if op == "AllReduce":
        return 2 * (nranks - 1) * size // nranks
    if op in ("AllGather", "ReduceScatter"):
        return (nranks - 1) * size
    return size
