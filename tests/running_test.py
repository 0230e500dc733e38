"""tests/running.py over tests that pass, fail and skip: what its test.xml says, and that shards share the cases."""

import os
import subprocess
import sys
import unittest
import xml.etree.ElementTree as xml

from tests import running
from tests.kit import temporary_folder

PROGRAM = '''
import os
import unittest
from tests import running

AT_ONCE = int(os.environ.get("AT_ONCE", "1"))

class Mixed(unittest.TestCase):
    def test_good(self):
        pass
    def test_bad(self):
        self.assertEqual(1, 2)
    def test_broken(self):
        raise RuntimeError("<&>\\x01")
    def test_left_out(self):
        self.skipTest("no such machine")
    def test_in_parts(self):
        for part in range(2):
            with self.subTest(part=part):
                if part:
                    self.skipTest("one part")

@unittest.skip("whole class")
class Skipped(unittest.TestCase):
    def test_one(self):
        pass

class SetUpOnce(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print("set up")
    def test_a(self):
        pass
    def test_b(self):
        pass

running.main(at_once=AT_ONCE)
'''

WAITING = '''
import os, time, unittest
from tests import running

class Waiting(unittest.TestCase):
    def meet(self, own, other):
        open(os.path.join(os.environ["MEETING"], own), "w").close()
        while not os.path.exists(os.path.join(os.environ["MEETING"], other)):
            time.sleep(0.01)
    def test_a(self):
        self.meet("a", "b")
    def test_b(self):
        self.meet("b", "a")

running.main(at_once=2)
'''

DYING = '''
import os, signal, unittest
from tests import running

class Dying(unittest.TestCase):
    def test_dies(self):
        os.kill(os.getpid(), signal.SIGKILL)
    def test_lives(self):
        pass

running.main(at_once=2)
'''


class RunningTest(unittest.TestCase):

    def setUp(self):
        self.folder = temporary_folder(self)
        self.program = os.path.join(self.folder, "program.py")
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(PROGRAM)

    def run_program(self, **environment):
        """(exit status, standard output, {case: (kind, message)}, the suite's attributes)"""
        report = os.path.join(self.folder, "test.xml")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("TEST_", "TESTBRIDGE", "XML_"))}
        done = subprocess.run([sys.executable, self.program], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**kept, "XML_OUTPUT_FILE": report,
                                   "PYTHONPATH": os.pathsep.join(sys.path), **environment})
        self.errors = done.stderr
        suite = xml.parse(report).getroot().find("testsuite")
        cases = {}
        for case in suite:
            kind = case[0] if len(case) else None
            cases["%s.%s" % (case.get("classname"), case.get("name"))] = (
                ("passed", "") if kind is None else (kind.tag, kind.get("message")))
        return done.returncode, done.stdout, cases, suite.attrib

    ALL = {
        "Mixed.test_good": ("passed", ""),
        "Mixed.test_bad": ("failure", "AssertionError: 1 != 2"),
        "Mixed.test_broken": ("error", "RuntimeError: <&>?"),
        "Mixed.test_left_out": ("skipped", "no such machine"),
        "Mixed.test_in_parts": ("skipped", "one part"),
        "Skipped.test_one": ("skipped", "whole class"),
        "SetUpOnce.test_a": ("passed", ""),
        "SetUpOnce.test_b": ("passed", ""),
    }

    def test_every_case_stands_in_the_report(self):
        status, _, cases, attributes = self.run_program()
        self.assertEqual(status, 1)
        self.assertEqual(cases, self.ALL)
        self.assertEqual([attributes[name] for name in ("tests", "failures", "errors", "skipped")],
                         ["8", "1", "1", "3"])

    def test_side_by_side_the_report_is_the_same(self):
        status, output, cases, attributes = self.run_program(AT_ONCE="3")
        self.assertEqual((status, cases), (1, self.ALL))
        self.assertEqual([attributes[name] for name in ("tests", "failures", "errors", "skipped")],
                         ["8", "1", "1", "3"])
        # What they print arrives, and a class that sets itself up does so once.
        self.assertEqual(output.count("set up"), 0)
        self.assertEqual(self.errors.count("set up"), 1)
        self.assertIn("AssertionError: 1 != 2", self.errors)
        # The failures stand at the end once more.
        for last in ("failure of __main__.Mixed.test_bad", "error of __main__.Mixed.test_broken"):
            self.assertIn(last, self.errors.rpartition("Ran ")[2])

    def test_side_by_side_nobody_waits_for_the_others(self):
        """Both wait for each other's file."""
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(WAITING)
        status, _, cases, _ = self.run_program(AT_ONCE="2", MEETING=self.folder)
        self.assertEqual(set(cases.values()), {("passed", "")}, self.errors)
        self.assertEqual((status, len(cases)), (0, 2))

    def test_side_by_side_a_process_that_dies_is_an_error(self):
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(DYING)
        status, _, cases, _ = self.run_program(AT_ONCE="2")
        self.assertEqual(status, 1)
        self.assertEqual(cases["Dying.test_dies"][0], "error")
        self.assertEqual(cases["Dying.test_lives"], ("passed", ""))
        self.assertIn("Dying.test_dies begins\n", self.errors)

    def test_shards_share_the_cases(self):
        united, setups = [], 0
        touched = os.path.join(self.folder, "touched")
        for index in range(3):
            _, output, cases, _ = self.run_program(
                TEST_TOTAL_SHARDS="3", TEST_SHARD_INDEX=str(index), TEST_SHARD_STATUS_FILE=touched)
            self.assertTrue(os.path.exists(touched))
            united += cases
            setups += output.count("set up")
        self.assertEqual(sorted(united), sorted(self.ALL))
        self.assertEqual(setups, 1)

    def test_filter(self):
        status, _, cases, _ = self.run_program(TESTBRIDGE_TEST_ONLY="test_good")
        self.assertEqual((status, list(cases)), (0, ["Mixed.test_good"]))


if __name__ == "__main__":
    running.main()
