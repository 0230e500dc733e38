"""What each rule costs Prometheus: processor time, not time on the clock, so that what else the machine does
changes little.

A Prometheus does not say what processor time a rule takes. So scrapes and rules are stopped, and then each rule's
expression is asked again and again, at the time of the last scrape, while nothing else goes on in that process. Not
in it: storing the results.
"""

import dataclasses
import time

from bench.fleet import configuration
from bench.fleet.processes import fine_cpu_s

# Of each rule, so that collections of garbage have their share in it.
ENOUGH_S = 0.3
ENOUGH_TIMES = (3, 30)


@dataclasses.dataclass
class RuleCost:
    group: str
    name: str
    alert: bool
    interval_s: float
    cpu_s: float    # of one evaluation
    series: int     # that it gives

    def cores(self):
        return self.cpu_s / self.interval_s


def by_group(costs):
    """{group: (processor seconds of one evaluation, processors)}, the dearest first."""
    groups = {}
    for cost in costs:
        cpu_s, cores = groups.get(cost.group, (0, 0))
        groups[cost.group] = cpu_s + cost.cpu_s, cores + cost.cores()
    return dict(sorted(groups.items(), key=lambda item: -item[1][1]))


def busiest_group(costs):
    """The share of its interval that the busiest group would take on a processor of its own."""
    return max(cores for _, cores in by_group(costs).values())


def cores(costs):
    return sum(cost.cores() for cost in costs)


def _ask(prometheus, expression, time_s, enough_s):
    """(processor seconds of one answer, number of series)"""
    answer = {}
    start_s, times = fine_cpu_s(prometheus.pid), 0
    while True:
        # A single number: writing thousands of series as JSON would cost more than many a rule.
        answer = prometheus.query("count(\n%s\n)" % expression, time=time_s)
        times += 1
        passed_s = fine_cpu_s(prometheus.pid) - start_s
        if times >= ENOUGH_TIMES[0] and (passed_s > enough_s or times >= ENOUGH_TIMES[1]):
            return passed_s / times, int(sum(answer.values()))


def measure(prometheus, path, enough_s=ENOUGH_S):
    """Stops scrapes and rules, asks, and lets them go on.

    path: of the configuration, as configuration.write returned it. Returns [RuleCost], of evaluations as far
    apart as deploy/prometheus says."""
    whole, rules = configuration.load(path), list(configuration.rules(path))
    time_s = time.time()
    prometheus.reload(dict(whole, rule_files=[], scrape_configs=[], remote_write=[]))
    try:
        nothing_s, _ = _ask(prometheus, "vector(0)", time_s, enough_s)
        costs = []
        for group, interval_s, rule in rules:
            cpu_s, series = _ask(prometheus, rule["expr"], time_s, enough_s)
            costs.append(RuleCost(group, rule.get("record") or rule["alert"], "alert" in rule,
                                  interval_s, max(cpu_s - nothing_s, 0), series))
        return costs
    finally:
        prometheus.reload(whole)
