""".ci/skips: which skipped test cases fail .ci/run; and .ci/run over a stand-in for Bazel."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from tests import running
from tests.kit import temporary_folder

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
        status, output = self.skips(allowed.replace("//a:b Suite.Left", "//a:c Suite.Left"), {"test.xml": CASES})
        self.assertEqual(status, 1)
        self.assertIn("//a:b Suite.Left", output)

    def test_a_reason_is_needed(self):
        status, output = self.skips("//a:b Suite.Left\n", {"test.xml": CASES})
        self.assertEqual(status, 1)
        self.assertIn("a reason", output)

    def test_shards_are_looked_at(self):
        status, output = self.skips("", {"shard_1_of_2/test.xml": CASES, "shard_2_of_2/test.xml": "<testsuites/>"})
        self.assertEqual(status, 1)
        self.assertEqual(len(output.splitlines()), 3)

    def test_a_target_without_cases_is_no_success(self):
        for reports in ({}, {"test.xml": "<testsuites/>"}):
            status, output = self.skips("", reports)
            self.assertEqual((status, output), (1, "No test case at all: //a:b\n"))


# Says what the file `attempt1`, then `attempt2`, says, and exits with that number.
BAZELW = """#!/bin/sh
if [ "$1" = build ]; then exit $(cat build_status 2>/dev/null || echo 0); fi
attempts=$(cat attempts 2>/dev/null || echo 0)
attempts=$((attempts + 1))
echo $attempts > attempts
cat attempt$attempts
exit $(cat status$attempts)
"""
GOOD = '''<testsuites><testsuite name="x" tests="1" failures="0" errors="0" skipped="0">
<testcase name="Runs" classname="Suite"/></testsuite></testsuites>'''
SKIPPED = '''<testsuites><testsuite name="x" tests="1" failures="0" errors="0" skipped="1">
<testcase name="Users" classname="Suite"><skipped message="one user"/></testcase>
</testsuite></testsuites>'''


class RunTest(unittest.TestCase):

    def setUp(self):
        self.folder = temporary_folder(self)
        for name in ("run", "skips", "allowed_skips"):
            os.makedirs(os.path.join(self.folder, ".ci"), exist_ok=True)
            shutil.copy(os.path.join(os.path.dirname(SKIPS), name), os.path.join(self.folder, ".ci"))
        self.write("tools/lint", "#!/bin/sh\n", executable=True)
        self.write("bazelw", BAZELW, executable=True)

    def write(self, name, text, executable=False):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        if executable:
            os.chmod(path, 0o755)

    def run_ci(self, reports, *attempts):
        """(exit status, output); reports: {target: test.xml}, attempts: (summary, status)"""
        for target, report in reports.items():
            self.write("bazel-testlogs/%s/test.xml" % target[2:].replace(":", "/"), report)
        for number, (summary, status) in enumerate(attempts, 1):
            self.write("attempt%d" % number, summary)
            self.write("status%d" % number, str(status))
        done = subprocess.run([os.path.join(self.folder, ".ci/run")], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def test_what_no_test_needs_must_build(self):
        self.write("build_status", "1")
        status, output = self.run_ci({"//a:b": GOOD}, ("//a:b    PASSED in 0.1s\n", 0))
        self.assertEqual((status, output.splitlines()[-1]), (1, "2 passed, 1 failed, 0 skipped"))
        self.assertIn("does not build", output)

    def test_all_is_well(self):
        status, output = self.run_ci({"//a:b": GOOD, "//a:c": GOOD}, (
            "//a:b    PASSED in 0.1s\n//a:c    (cached) PASSED in 0.1s\n", 0))
        self.assertEqual((status, output.splitlines()[-1]), (0, "3 passed, 0 failed, 0 skipped"))

    def test_clang_tidy_looks_at_changed_files(self):
        self.write("tools/lint", "#!/bin/sh\n[ \"$1\" != --tidy-changed ]\n", executable=True)
        status, output = self.run_ci({"//a:b": GOOD}, ("//a:b    PASSED in 0.1s\n", 0))
        self.assertEqual((status, output.splitlines()[-1]), (0, "2 passed, 0 failed, 0 skipped"))
        self.assertIn("clang-tidy finds something", output)

    def test_a_skip_that_nobody_allowed_fails(self):
        status, output = self.run_ci({"//a:b": GOOD, "//a:c": SKIPPED}, (
            "//a:b    PASSED in 0.1s\n//a:c    PASSED in 0.1s\n", 0))
        self.assertEqual((status, output.splitlines()[-1]), (1, "2 passed, 1 failed, 1 skipped"))
        self.assertIn("Skipped, and must not be: //a:c Suite.Users (one user)", output)

    def test_a_failure_at_the_first_attempt_is_one(self):
        status, output = self.run_ci({"//a:b": GOOD, "//a:c": GOOD}, (
            "//a:b    PASSED in 0.1s\n//a:c    FAILED in 0.1s\n", 3), (
            "//a:b    (cached) PASSED in 0.1s\n//a:c    PASSED in 0.1s\n", 0))
        self.assertEqual((status, output.splitlines()[-1]), (1, "3 passed, 1 failed, 0 skipped"))
        self.assertIn("Failed at first, see above why: //a:c", output)


if __name__ == "__main__":
    running.main()
