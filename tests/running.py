"""unittest.main for Bazel's py_test: every case stands in test.xml, skips with their reason, and shards share the cases.

Bazel by itself writes one case a target: a skipped test would count as passed (.ci/run reads test.xml).
"""

import dataclasses
import functools
import os
import sys
import time
import unittest
import xml.etree.ElementTree as xml

from tests import side_by_side


@dataclasses.dataclass
class _Report:
    outcomes: dict  # of each case: (kind, text)
    seconds: dict
    is_good: bool


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
    """Its units."""
    status = os.environ.get("TEST_SHARD_STATUS_FILE")
    if status:
        with open(status, "w", encoding="utf-8"):
            pass
    total = int(os.environ.get("TEST_TOTAL_SHARDS") or 1)
    index = int(os.environ.get("TEST_SHARD_INDEX") or 0)
    return _units(suite)[index::total]


def _run(cases):
    """Their outcomes and seconds, by id, and whether all is well."""
    result = unittest.TextTestRunner(verbosity=2, resultclass=_Result).run(unittest.TestSuite(cases))
    return _Report(result.outcomes, result.seconds, result.wasSuccessful())


def _run_side_by_side(units, at_once):
    united = _Report({}, {}, True)
    functions = {unit[0].id(): functools.partial(_run, unit) for unit in units}
    for index, report, output in side_by_side.run(functions, at_once):
        if report is None:
            died = ("error", "its process died; it printed:\n" + output)
            report = _Report({case.id(): died for case in units[index]}, {}, False)
        sys.stderr.write(output)
        sys.stderr.flush()
        united.outcomes.update(report.outcomes)
        united.seconds.update(report.seconds)
        united.is_good = united.is_good and report.is_good
    return united


def _clean(text):
    """What XML 1.0 can hold."""
    return "".join(c if c in "\t\n" or 0x20 <= ord(c) < 0xd800 or 0xe000 <= ord(c) < 0xfffe else "?" for c in text)


def _write_report(path, report):
    counts = {kind: sum(1 for found, _ in report.outcomes.values() if found == kind)
              for kind in ("failure", "error", "skipped")}
    suite = xml.Element("testsuite", name=os.environ.get("TEST_TARGET", "tests"),
                        tests=str(len(report.outcomes)), failures=str(counts["failure"]),
                        errors=str(counts["error"]), skipped=str(counts["skipped"]))
    for test_id, (kind, text) in report.outcomes.items():
        class_name, _, name = test_id.replace("__main__.", "", 1).rpartition(".")
        case = xml.SubElement(suite, "testcase", name=name, classname=class_name,
                              time="%.3f" % report.seconds.get(test_id, 0))
        if kind != "passed":
            first_line = text.strip().splitlines()[-1] if text.strip() else ""
            xml.SubElement(case, kind, message=_clean(first_line)).text = _clean(text)
    root = xml.Element("testsuites")
    root.append(suite)
    xml.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _print_failures(report):
    """Prints them at the end, because logs of many cases are cut in the middle."""
    for test_id, (kind, text) in report.outcomes.items():
        if kind in ("failure", "error"):
            sys.stderr.write("%s of %s, after %.1f s:\n%s\n" % (kind, test_id, report.seconds.get(test_id, 0), text[-2000:]))


def main(at_once=1):
    """Runs the tests of the program's own module; those named by --test_filter or the command line.

    at_once: so many of them side by side, in processes of their own: for cases that wait rather than compute. Cases of
    a class that sets itself up stay together.
    """
    loader = unittest.defaultTestLoader
    module = sys.modules["__main__"]
    wanted = sys.argv[1:]
    only = os.environ.get("TESTBRIDGE_TEST_ONLY")
    if only:
        loader.testNamePatterns = [only if "*" in only else "*%s*" % only]
    suite = loader.loadTestsFromNames(wanted, module) if wanted else loader.loadTestsFromModule(module)
    units = _of_this_shard(suite)
    if at_once > 1 and len(units) > 1:
        report = _run_side_by_side(units, at_once)
    else:
        report = _run(case for unit in units for case in unit)
    path = os.environ.get("XML_OUTPUT_FILE")
    if path:
        _write_report(path, report)
    _print_failures(report)
    sys.exit(0 if report.is_good else 1)
