"""unittest.main for Bazel's py_test: every case stands in test.xml, skips with their reason, and shards share the cases.

Bazel by itself writes one case a target: a skipped test would count as passed (.ci/run reads test.xml).
"""

import os
import sys
import time
import unittest
import xml.etree.ElementTree as xml


class _Result(unittest.TextTestResult):

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.outcomes = {}  # id: (kind, text); what failed once stays failed
        self.seconds = {}

    def startTest(self, test):
        self._begin = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        self.seconds[test.id()] = time.monotonic() - self._begin
        self.outcomes.setdefault(test.id(), ("passed", ""))

    def _note(self, test, kind, text):
        if kind != "skipped" or test.id() not in self.outcomes:
            self.outcomes[test.id()] = (kind, text)

    def addError(self, test, err):
        super().addError(test, err)
        self._note(test, "error", self.errors[-1][1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._note(test, "failure", self.failures[-1][1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        # A part (subTest) that is skipped makes its test a skipped one.
        self._note(getattr(test, "test_case", test), "skipped", reason)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._note(test, "failure", self._exc_info_to_string(err, test))

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._note(test, "failure", "succeeds, and is marked as one that fails")


def _cases(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from _cases(each)
        else:
            yield each


def _units(suite):
    """Lists of cases that belong into one shard: a class that sets itself up is set up once."""
    of_class = {}
    for case in _cases(suite):
        sets_up = type(case).setUpClass.__func__ is not unittest.TestCase.setUpClass.__func__
        of_class.setdefault(type(case) if sets_up else case.id(), []).append(case)
    return list(of_class.values())


def _of_this_shard(suite):
    status = os.environ.get("TEST_SHARD_STATUS_FILE")
    if status:
        with open(status, "w", encoding="utf-8"):
            pass
    total = int(os.environ.get("TEST_TOTAL_SHARDS") or 1)
    index = int(os.environ.get("TEST_SHARD_INDEX") or 0)
    return unittest.TestSuite(case for unit in _units(suite)[index::total] for case in unit)


def _clean(text):
    """What XML 1.0 can hold."""
    return "".join(c if c in "\t\n" or 0x20 <= ord(c) < 0xd800 or 0xe000 <= ord(c) < 0xfffe else "?"
                   for c in text)


def _write_report(path, result):
    counts = {kind: sum(1 for found, _ in result.outcomes.values() if found == kind)
              for kind in ("failure", "error", "skipped")}
    suite = xml.Element("testsuite", name=os.environ.get("TEST_TARGET", "tests"),
                        tests=str(len(result.outcomes)), failures=str(counts["failure"]),
                        errors=str(counts["error"]), skipped=str(counts["skipped"]))
    for test_id, (kind, text) in result.outcomes.items():
        class_name, _, name = test_id.replace("__main__.", "", 1).rpartition(".")
        case = xml.SubElement(suite, "testcase", name=name, classname=class_name,
                              time="%.3f" % result.seconds.get(test_id, 0))
        if kind != "passed":
            first_line = text.strip().splitlines()[-1] if text.strip() else ""
            xml.SubElement(case, kind, message=_clean(first_line)).text = _clean(text)
    root = xml.Element("testsuites")
    root.append(suite)
    xml.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def main():
    """Runs the tests of the program's own module; those named by --test_filter or the command line."""
    loader = unittest.defaultTestLoader
    module = sys.modules["__main__"]
    wanted = sys.argv[1:]
    only = os.environ.get("TESTBRIDGE_TEST_ONLY")
    if only:
        loader.testNamePatterns = [only if "*" in only else "*%s*" % only]
    suite = loader.loadTestsFromNames(wanted, module) if wanted else loader.loadTestsFromModule(module)
    runner = unittest.TextTestRunner(verbosity=2, resultclass=_Result)
    result = runner.run(_of_this_shard(suite))
    report = os.environ.get("XML_OUTPUT_FILE")
    if report:
        _write_report(report, result)
    sys.exit(0 if result.wasSuccessful() else 1)
