"""What the tests of the rules have in common."""

import unittest

from tests.deploy import scenario, servers
from tests.deploy.scenario import Scrapes

COMM = ("comm",)
# The placeholder of deploy/grafana/panels.py: alerts and boards have the same one.
RUNBOOK = "https://docs.example.com/nccl-pulse/runbook.md"
# This system's promtool; a newer one, without which the case is skipped; the newer one if it is there. The last is
# for what takes long: 3.5 needs two thirds of 2.42's time.
SYSTEMS, NEWER, NEWEST = "system's", "newer", "newest"


class RulesTest(unittest.TestCase):
    """What a test expects is collected, and checked at its end: one simulation for all expectations of
    the same scrapes, which must not change after the first."""

    maxDiff = None
    # Of all tests: what fires and what does not.
    fired, silent = set(), set()
    # Seconds between scrapes, and between evaluations of the rules.
    STEP_S = 30
    # Rule files.
    FILES = ("recording", "alerts", "dcgm")
    # In which durations are stored.
    FORM = "classic"
    # Which promtool checks it: of SYSTEMS, NEWER, NEWEST.
    PROMTOOL = SYSTEMS
    # What runs the simulations.
    RUN = staticmethod(scenario.run)

    def setUp(self):
        if self.PROMTOOL == NEWER:
            self.promtool = servers.path_or_skip("promtool")
        else:
            self.promtool = self.PROMTOOL == NEWEST and servers.path("promtool") or "promtool"
        self.expected = {}  # scrapes: (samples, alerts)

    def tearDown(self):
        if self.expected:
            simulations = [scenario.simulation(scrapes, *expected) for scrapes, expected in self.expected.items()]
            self.assertEqual(self.RUN(simulations, self.FILES, self.STEP_S, self.promtool), "")

    def scrapes(self, minutes):
        return Scrapes(minutes, self.STEP_S, self.FORM)

    def of(self, scrapes):
        return self.expected.setdefault(scrapes, ([], []))

    def gives(self, scrapes, expression, minutes, expected):
        self.of(scrapes)[0].append(scenario.samples(expression, minutes, expected))

    def quantile(self, scrapes, expression, minutes, labels, truth, of_buckets):
        """The expression is the truth, within a native bucket, or what classic buckets make of it."""
        if self.FORM in ("native", "both"):
            self.gives(scrapes, "abs(%s / %r - 1) < bool 0.09" % (expression, truth), minutes, {labels: 1})
        else:
            self.gives(scrapes, "round(1e5 * %s)" % expression, minutes, {labels: round(1e5 * of_buckets)})

    def annotates(self, scrapes, alert, minutes, labels, annotations):
        self.of(scrapes)[1].append(scenario.annotated(alert, minutes, labels, annotations))

    def fires(self, scrapes, alert, minutes, by, expected):
        self.of(scrapes)[0].append(scenario.firing(alert, minutes, by, expected))
        (self.fired if expected else self.silent).add(alert)

    def is_silent(self, scrapes, minutes, *alert_names):
        self.of(scrapes)[0].append(scenario.firing("|".join(alert_names), minutes, ("alertname",), []))
        self.silent.update(alert_names)


def in_all_forms(*cases):
    """{name: class}: each of them once for each form of durations, by the newer promtool (this system's knows
    no native histograms in tests)."""
    return {case.__name__ + form.capitalize(): type(case.__name__ + form.capitalize(), (case,),
                                                    {"FORM": form, "PROMTOOL": NEWER})
            for case in cases for form in scenario.FORMS}
