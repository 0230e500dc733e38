"""What the tests of the rules have in common."""

import unittest

from tests.deploy import scenario
from tests.deploy.scenario import Scrapes

COMM = ("comm",)
RUNBOOK = "docs/runbook.md"


class RulesTest(unittest.TestCase):
    """What a test expects is collected, and checked at its end: one simulation for all expectations of
    the same scrapes, which must not change after the first."""

    maxDiff = None
    # Of all tests: what fired and what did not, and the tests.
    fired, silent, ran = set(), set(), set()
    # Seconds between scrapes, and between evaluations of the rules.
    STEP_S = 30
    # Rule files.
    FILES = ("recording", "alerts", "dcgm", "diagnosis")

    def setUp(self):
        self.expected = {}  # scrapes: (samples, alerts)
        self.ran.add(self.id())

    def tearDown(self):
        if self.expected:
            simulations = [scenario.simulation(scrapes, *expected)
                           for scrapes, expected in self.expected.items()]
            self.assertEqual(scenario.run(simulations, self.FILES, self.STEP_S), "")

    def scrapes(self, minutes):
        return Scrapes(minutes, self.STEP_S)

    def of(self, scrapes):
        return self.expected.setdefault(scrapes, ([], []))

    def gives(self, scrapes, expression, minutes, expected):
        self.of(scrapes)[0].append(scenario.samples(expression, minutes, expected))

    def annotates(self, scrapes, alert, minutes, labels, annotations):
        self.of(scrapes)[1].append(scenario.annotated(alert, minutes, labels, annotations))

    def fires(self, scrapes, alert, minutes, by, expected):
        self.of(scrapes)[0].append(scenario.firing(alert, minutes, by, expected))
        (self.fired if expected else self.silent).add(alert)

    def is_silent(self, scrapes, minutes, *alert_names):
        self.of(scrapes)[0].append(
            scenario.firing("|".join(alert_names), minutes, ("alertname",), []))
        self.silent.update(alert_names)
