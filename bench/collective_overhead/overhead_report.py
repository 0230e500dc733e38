#!/usr/bin/env python3
"""Prints the tables and verdicts of what collective_overhead measured. docs/benchmarks.md has the method.

    overhead_report.py [--csv=FILE] [--relative-limit=PERCENT] [--absolute-limit-us=US] [--confidence=SHARE] SAMPLES

A set of processes has its own memory pages, connections and streams, and so its own speed: two equal sets differ by up to 2 %.
More samples of one start do not average that out. So the unit is the round, one start of all sets in a random order:

    pair     a block's time with the plugin and the mean of the sets without it
    round    the median of its pairs' differences, and of their ratios: robust against outliers
    result   the mean of the rounds, with Student's interval over rounds

Each set without a plugin but the first, a "twin", is compared with the mean of the others. Twins show how good the measurement is.
Python 3.9's standard library alone.
"""

import argparse
import collections
import csv
import dataclasses
import functools
import json
import math
import statistics
import sys

# Resolution as a share of a time: nanoseconds in a millisecond, the shortest timing.
RESOLUTION = 1e-5


@dataclasses.dataclass
class Limits:
    """Accepted slowdown: up to the larger of the two."""
    relative: float = 0.01
    absolute_us: float = 0.25
    confidence: float = 0.95


Estimate = collections.namedtuple("Estimate", "mean low high")
Comparison = collections.namedtuple("Comparison", "pairs rounds base_us with_us ratio difference_us mean_ratio")


def student_within(t, degrees):
    """P(|T| < t), as a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2 == 1
    term, total = math.cos(angle) if odd else 1, 0
    for i in range(1 if odd else 0, degrees - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (i + 1) / (i + 2)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


@functools.lru_cache(maxsize=None)
def student_quantile(degrees, confidence):
    """t such that |T| < t with that probability."""
    low, high = 0, 1
    while student_within(high, degrees) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_within(middle, degrees) < confidence else (low, middle)
    return high


def estimate(values, confidence):
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Estimate(mean, -math.inf, math.inf)
    half = student_quantile(len(values) - 1, confidence) * math.sqrt(
        sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
    return Estimate(mean, mean - half, mean + half)


def most_by_chance(trials, probability):
    """The largest number of `trials` that chance explains: more happen with a probability of at most 5 %."""
    exactly, count = (1 - probability) ** trials, 0
    more = 1 - exactly
    while count < trials and more > 0.05 + 1e-9:
        exactly *= (trials - count) / (count + 1) * probability / (1 - probability)
        more -= exactly
        count += 1
    return count


def compare(pairs, confidence):
    """Of (round, us without, us with). None: nothing to compare."""
    if not pairs:
        return None
    rounds = collections.defaultdict(list)
    for number, base, with_us in pairs:
        rounds[number].append((base, with_us, with_us / base, with_us - base))
    figures = [[statistics.median(column) for column in zip(*values)] for values in rounds.values()]
    base, with_us, ratio, difference = zip(*figures)
    return Comparison(len(pairs), len(rounds), statistics.fmean(base), statistics.fmean(with_us),
                      estimate(ratio, confidence), estimate(difference, confidence),
                      sum(pair[2] for pair in pairs) / sum(pair[1] for pair in pairs))


def judge(comparison, limits):
    """Of a plugin, if the measurement is good."""
    ratio, difference = comparison.ratio, comparison.difference_us
    if comparison.rounds < 2:
        return "undecided"
    if ratio.high - 1 < limits.relative or difference.high < limits.absolute_us:
        return "pass"
    return "FAIL" if ratio.low - 1 > limits.relative and difference.low > limits.absolute_us else "undecided"


def is_faster(comparison):
    """Beyond the interval, and by more than a timing can resolve."""
    return comparison.ratio.high < 1 - RESOLUTION and comparison.difference_us.high < 0


def judge_twin(comparison):
    if comparison is None or comparison.rounds < 2:
        return "undecided"
    is_slower = comparison.ratio.low > 1 + RESOLUTION and comparison.difference_us.low > 0
    return "DIFFER" if is_slower or is_faster(comparison) else "alike"


@dataclasses.dataclass
class Row:
    point: dict
    time_of: str  # operations, or total: until the compute beside has finished
    configuration: str
    is_twin: bool
    note: str
    comparison: Comparison
    verdict: str = "undecided"
    reason: str = ""

    def suspect(self, reason):
        self.verdict, self.reason = "suspect", reason


def judge_plugin(row, twins, limits):
    if row.comparison is None:
        return
    row.verdict = judge(row.comparison, limits)
    if row.comparison.rounds < 2:
        return
    known = [twin for twin in twins if twin.verdict != "undecided"]
    if not known:
        row.suspect("no twin to compare with")
    elif any(twin.verdict == "DIFFER" for twin in known):
        row.suspect("a twin differs here")
    elif is_faster(row.comparison):  # a plugin only adds work, so the sets were not alike
        row.suspect("faster than without")
    elif row.verdict == "FAIL" and row.comparison.difference_us.mean <= max(
            abs(twin.comparison.difference_us.mean) for twin in known):
        row.verdict, row.reason = "undecided", "a twin shows as much"


def compared(point, member, without, at, limits):
    """With the mean of the other sets without a plugin, in each block."""
    pairs = []
    for number, samples in point["blocks"]:
        others = [samples[i][at] for i in without if i != member and samples[i][at] > 0]
        if others and samples[member][at] > 0:
            pairs.append((number, statistics.fmean(others), samples[member][at]))
    return compare(pairs, limits.confidence)


def rows_of_point(point, configurations, limits):
    """Twins first, then the others, in the order of the configurations. Judged by this point alone."""
    without = [i for i, each in enumerate(configurations) if not each["has_plugin"]]
    rows = []
    for at, time_of in enumerate(("operations", "total") if point["compute"] else ("operations",)):
        all_sets = [Row(point, time_of, each["name"], not each["has_plugin"], point["notes"][i],
                        compared(point, i, without, at, limits)) for i, each in enumerate(configurations)]
        twins = [row for row in all_sets[1:] if row.is_twin]
        for twin in twins:
            twin.verdict = judge_twin(twin.comparison)
        plugins = [row for row in all_sets if not row.is_twin]
        for row in plugins:
            judge_plugin(row, twins, limits)
        rows += twins + plugins
    return rows


def count_twins(rows, launch, confidence):
    """(how many are known, how many differ, how many chance explains)"""
    verdicts = [row.verdict for row in rows if row.is_twin and row.point["launch"] == launch and row.verdict != "undecided"]
    return len(verdicts), verdicts.count("DIFFER"), most_by_chance(len(verdicts), 1 - confidence)


def launches(points):
    return list(dict.fromkeys(point["launch"] for point in points))


def rows_of(points, configurations, limits):
    """Of all points, judged with all twins of their launch."""
    rows = [row for point in points for row in rows_of_point(point, configurations, limits)]
    for launch in launches(points):
        known, differ, by_chance = count_twins(rows, launch, limits.confidence)
        for row in rows if differ > by_chance else ():
            if (row.point["launch"] == launch and not row.is_twin and row.comparison is not None and
                    row.comparison.rounds >= 2 and row.verdict != "suspect"):
                row.suspect("twins differ at %d of %d" % (differ, known))
    return rows


# ---- texts --------------------------------------------------------------------------------------


def size_name(size):
    units = ["B", "KiB", "MiB", "GiB"]
    while len(units) > 1 and size and size % 1024 == 0:
        size //= 1024
        units.pop(0)
    return "%d %s" % (size, units[0])


def mode_text(point):
    return point["mode"] + ("+compute" if point["compute"] else "")


def ratio_text(comparison):
    return "%+.2f %% [%+.2f, %+.2f]" % tuple((each - 1) * 100 for each in comparison.ratio)


def twin_text(rows, points, limits):
    """Whether the verdicts of each launch are valid."""
    text = ""
    for launch in launches(points):
        known, differ, by_chance = count_twins(rows, launch, limits.confidence)
        text += "%s: twins differ at %d of %d points; chance explains up to %d.%s\n" % (
            launch, differ, known, by_chance,
            " THIS MEASUREMENT IS AT FAULT: no verdict of it stands." if differ > by_chance else "")
    return text


def markdown(rows, configurations):
    """A line for each point, a column for each configuration but the first."""
    columns = len(configurations) - 1
    names = [row.configuration for row in rows[:columns]]
    text = "| launch | operation | size | mode | time of | none, µs | %s |\n|%s\n" % (
        " | ".join(names), "---|" * (6 + columns))
    for first in range(0, len(rows), columns):
        line = rows[first:first + columns]
        point = line[0].point
        # The base of a plugin, if it exists: the mean of all sets without a plugin.
        base = [row.comparison.base_us for row in line if row.comparison]
        cells = [point["launch"], point["operation"], size_name(point["bytes"]), mode_text(point), line[0].time_of,
                 "%.2f" % base[-1] if base else ""]
        cells += ["%s, %+.2f µs, %s" % (ratio_text(row.comparison), row.comparison.difference_us.mean, row.verdict)
                  if row.comparison else "not measured" for row in line]
        text += "| %s |\n" % " | ".join(cells)
    return text


def place_of(row):
    return "%s %s %s%s, %s" % (row.point["operation"], size_name(row.point["bytes"]), mode_text(row.point),
                               " (total)" if row.time_of == "total" else "", row.point["launch"])


def summary(rows, run, limits):
    """Counts per configuration; names points that did not pass or were not measured."""
    nccl, driver = run["nccl"], run["driver"]
    text = ("%d x %s, NCCL %d.%d.%d, driver for CUDA %d.%d. Stated is the mean over rounds of fresh processes of\n"
            "each round's median, with Student's %g %% interval. Passes: its upper end is below %g %% or\nbelow %g us.\n" %
            (run["gpus"], run["gpu"], nccl // 10000, nccl // 100 % 100, nccl % 100, driver // 1000, driver % 1000 // 10,
             limits.confidence * 100, limits.relative * 100, limits.absolute_us))
    for configuration in run["configurations"]:
        if not configuration["has_plugin"]:
            continue
        places = {word: [] for word in ("passed", "failed", "undecided", "suspect", "not measured")}
        for row in rows:
            if row.configuration != configuration["name"]:
                continue
            if row.comparison is None:
                places["not measured"].append(place_of(row) + (": " + row.note if row.note else ""))
                continue
            word = {"pass": "passed", "FAIL": "failed"}.get(row.verdict, row.verdict)
            places[word].append("%s: %s, %+.3f us [%+.3f, %+.3f]%s" % (
                place_of(row), ratio_text(row.comparison), *row.comparison.difference_us,
                "; " + row.reason if row.reason else ""))
        text += configuration["name"] + ": " + ", ".join("%d %s" % (len(each), word) for word, each in places.items())
        text += "\n" + "".join("  %s: %s\n" % (word, place) for word, each in places.items() if word != "passed"
                               for place in each)
    return text


FIELDS = ("launch,operation,bytes,mode,compute,time_of,configuration,pairs,rounds,none_us,with_us,ratio,ratio_low,ratio_high,"
          "difference_us,difference_low_us,difference_high_us,mean_ratio,verdict,reason,note").split(",")


def write_csv(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for row in rows:
            c, point = row.comparison, row.point
            figures = ["%.6f" % each for each in (c.base_us, c.with_us, *c.ratio, *c.difference_us, c.mean_ratio)] if c else [""] * 9
            writer.writerow([point["launch"], point["operation"], point["bytes"], point["mode"],
                             "with" if point["compute"] else "without", row.time_of, row.configuration, c.pairs if c else 0,
                             c.rounds if c else "", *figures, row.verdict, row.reason, row.note])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("samples", help="the file that collective_overhead wrote")
    parser.add_argument("--csv", help="a file for all figures, which then also has the ratio of the mean times")
    parser.add_argument("--relative-limit", type=float, default=1, metavar="PERCENT")
    parser.add_argument("--absolute-limit-us", type=float, default=0.25, metavar="US")
    parser.add_argument("--confidence", type=float, default=0.95, metavar="SHARE", help="of the intervals")
    options = parser.parse_args()
    with open(options.samples, encoding="utf-8") as file:
        run, *points = map(json.loads, file)
    limits = Limits(options.relative_limit / 100, options.absolute_limit_us, options.confidence)
    rows = rows_of(points, run["configurations"], limits)
    if options.csv:
        write_csv(options.csv, rows)
    print(twin_text(rows, points, limits), markdown(rows, run["configurations"]), summary(rows, run, limits), sep="\n", end="")


if __name__ == "__main__":
    sys.exit(main())
