"""From two measured fleets to one of another size.

The model: what there is (series, samples, bytes) is proportional to the ranks, and so are processors. Memory is a
constant and a part that is proportional to the series; two fleets tell both.
"""

import dataclasses
import math

from bench.fleet import rule_cost

# A head chunk holds so many samples; those of a run of minutes are not full yet.
SAMPLES_OF_A_CHUNK = 120
# Of a server's memory and of a rule group's interval. The rest is for queries, for the series of jobs
# that ended in the last hours, for the write-ahead log's replay, and for a bad moment.
USABLE = 0.5


@dataclasses.dataclass
class Line:
    """constant + slope * series"""
    constant: float
    slope: float

    def at(self, series):
        return self.constant + self.slope * series


def line(small, large):
    """Through two points (series, value). What noise makes of the constant is not below zero."""
    slope = (large[1] - small[1]) / (large[0] - small[0])
    constant = small[1] - slope * small[0]
    return Line(constant, slope) if constant >= 0 else Line(0, large[1] / large[0])


@dataclasses.dataclass
class Fleet:
    format: str
    ranks: int
    scraped_series: float
    recorded_series: float
    samples_per_s: float
    received_bytes_per_s: float
    remote_series: float
    remote_samples_per_s: float
    remote_bytes_per_s: float
    memory: Line            # of a server with so many series
    memory_bytes: float     # if one server had it all
    cores: float
    rules_cores: float      # of these, what rules take
    rules_share: float      # the busiest group's, of its interval
    servers_by_memory: int
    servers_by_rules: int

    def servers(self):
        return max(self.servers_by_memory, self.servers_by_rules)


def _series(run):
    return run.scraped_series + run.recorded_series


def extrapolate(small, large, ranks, server_bytes):
    """small, large: measurement.Measurement of one format, of fewer and of more ranks."""
    ratio = ranks / large.ranks
    series = _series(large) * ratio
    memory = line((_series(small), small.memory_peak), (_series(large), large.memory_peak))
    memory.slope += SAMPLES_OF_A_CHUNK * large.chunk_bytes_per_sample
    # Processor time; the groups' own times contain the waiting for a processor.
    rules_share = rule_cost.busiest_group(large.rule_costs) * ratio
    return Fleet(
        large.format, ranks, large.scraped_series * ratio, large.recorded_series * ratio,
        large.samples_per_s * ratio,
        large.page_gzip_bytes * large.nodes / large.interval_s * ratio,
        large.remote_series * ratio, large.remote_samples_per_s * ratio,
        large.remote_bytes_per_s * ratio, memory, memory.at(series), large.needed_cores() * ratio,
        rule_cost.cores(large.rule_costs) * ratio, rules_share,
        math.ceil(memory.slope * series / (server_bytes * USABLE - memory.constant)),
        math.ceil(rules_share / USABLE))
