""".ci/skips: which skipped test cases fail .ci/run."""

import os
import subprocess
import sys
import tempfile
import unittest

from tests import running

SKIPS = os.path.abspath(".ci/skips")
CASES = '''<?xml version="1.0"?>
<testsuites><testsuite name="x" tests="4">
<testcase name="Runs" classname="Suite" status="run" result="completed"/>
<testcase name="Left" classname="Suite" status="run" result="skipped"><skipped message="no GPU&#10;here"/></testcase>
<testcase name="DISABLED_Old" classname="Suite" status="notrun" result="suppressed"/>
<testcase name="test_users" classname="UsersTest"><skipped message="takes two users"/></testcase>
</testsuite></testsuites>
'''


class SkipsTest(unittest.TestCase):

    def skips(self, allowed, reports):
        """(exit status, output); reports: {path below the folder: content}"""
        with tempfile.TemporaryDirectory() as folder:
            for path, content in reports.items():
                os.makedirs(os.path.join(folder, "logs", os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(folder, "logs", path), "w", encoding="utf-8") as file:
                    file.write(content)
            with open(os.path.join(folder, "allowed"), "w", encoding="utf-8") as file:
                file.write(allowed)
            done = subprocess.run(
                [sys.executable, SKIPS, os.path.join(folder, "allowed"),
                 "//a:b=" + os.path.join(folder, "logs")], text=True, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            return done.returncode, done.stdout

    def test_every_skip_is_named(self):
        status, output = self.skips("", {"test.xml": CASES})
        self.assertEqual(status, 1)
        self.assertEqual(output.splitlines(), [
            "Skipped, and must not be: //a:b Suite.Left (no GPU here)",
            "Skipped, and must not be: //a:b Suite.DISABLED_Old (disabled)",
            "Skipped, and must not be: //a:b UsersTest.test_users (takes two users)"])

    def test_those_on_the_list_may_be(self):
        allowed = ("# why\n\n//a:b Suite.Left there is no GPU\n//a:b Suite.DISABLED_Old it is old\n"
                   "//a:b UsersTest.test_users nobody minds\n")
        self.assertEqual(self.skips(allowed, {"test.xml": CASES}), (0, ""))
        status, output = self.skips(allowed.replace("//a:b Suite.Left", "//a:c Suite.Left"),
                                    {"test.xml": CASES})
        self.assertEqual(status, 1)
        self.assertIn("//a:b Suite.Left", output)

    def test_a_reason_is_needed(self):
        status, output = self.skips("//a:b Suite.Left\n", {"test.xml": CASES})
        self.assertEqual(status, 1)
        self.assertIn("a reason", output)

    def test_shards_are_looked_at(self):
        status, output = self.skips("", {"shard_1_of_2/test.xml": CASES,
                                         "shard_2_of_2/test.xml": "<testsuites/>"})
        self.assertEqual(status, 1)
        self.assertEqual(len(output.splitlines()), 3)

    def test_a_target_without_cases_is_no_success(self):
        for reports in ({}, {"test.xml": "<testsuites/>"}):
            status, output = self.skips("", reports)
            self.assertEqual((status, output), (1, "No test case at all: //a:b\n"))


if __name__ == "__main__":
    running.main()
