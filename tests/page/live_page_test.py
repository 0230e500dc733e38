"""The page in a browser, beside a job that works and then hangs."""

import json
import os
import tempfile
import unittest

from tests import running
from tests.node import cluster
from tests.node.proof_job import Job, RANKS
from tests.page.browser import Browser


class LivePageTest(unittest.TestCase):

    def setUp(self):
        self.port = cluster.free_port()
        # Short: an NCCL unique id holds the name of a file in it.
        folder = tempfile.TemporaryDirectory(prefix="lp", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.job = Job(folder.name, "127.0.0.1:%d" % self.port, "warm", "sizes", "hang", repeats="20")
        self.addCleanup(self.job.close)
        self.browser = Browser()
        self.addCleanup(self.browser.close)

    def hang(self):
        answer = cluster.get(self.port, "/api/v1/communicators")
        page = json.loads(answer[1])
        return next(comm["hang"] for comm in page["communicators"] if comm["hang"])

    def test_works_then_hangs(self):
        self.job.report()
        page = self.browser.open("http://127.0.0.1:%d/" % self.port)
        page.wait("document.querySelectorAll('details.communicator').length === 9")
        # The job pauses; on a slow machine for so long that it is idle.
        self.assertRegex(page.text("#verdict"), "^✓ No hang and no straggler is suspected[.]$|^No rank has called NCCL ")
        self.assertRegex(page.text("#counts"), r"^20\d\d-.* 9 communicators, %d processes$" % RANKS)
        self.assertRegex(page.evaluate("document.title"), " - NCCL Pulse$")
        self.assertEqual(page.text("#connection"), "live")

        # What is shown changes by itself.
        page.evaluate("[...document.querySelectorAll('details.communicator')]"
                      ".find((each) => each.querySelector('.name').textContent === 'size-64')"
                      ".open = true")
        cell = "document.querySelector('details[open] tbody tr').cells[6].innerText"
        self.assertEqual(page.wait("document.querySelector('details[open] tbody tr') && " + cell), "5")
        self.job.go_on()
        page.wait(cell + " === '25'")
        self.job.report()
        # Not every communicator has had one of its calls timed.
        page.evaluate("document.querySelectorAll('details.communicator').forEach(" "(each) => { each.open = true; })")
        page.wait("!!document.querySelector('details[open] .histogram g rect')")

        self.job.go_on()
        page.wait("document.title.startsWith('HANG ')")
        hang = self.hang()
        self.assertEqual(hang["suspects"], [RANKS - 1])
        verdict = page.text("#verdict")
        self.assertRegex(verdict, r"■ HANG\s*show\s*Rank %d .*\s+"
                         r"Communicator [0-9a-f]{16} \"hang\" has made no progress since \d\d:\d\d:\d\d UTC \(.* s\)" %
                         (RANKS - 1))
        self.assertIn(hang["text"], verdict)
        # It is open; its ranks say who waits for whom.
        first = "document.querySelector('details.communicator[data-level=hang]')"
        self.assertTrue(page.wait(first + ".open && !!%s.querySelector('tr.suspect')" % first))
        rows = page.evaluate("[...%s.querySelector('tbody').rows].map((row) => "
                             "[...row.cells].slice(0, 4).map((cell) => cell.innerText))" % first)
        self.assertEqual([(row[0], row[1], row[3]) for row in rows],
                         [("▶▶ suspect %d" % i if i == RANKS - 1 else str(i),
                           str(self.job.ranks[i].pid), "idle" if i == RANKS - 1 else "waits")
                          for i in range(RANKS)])
        self.assertIn("HANG", page.evaluate(first + ".querySelector('summary').innerText"))
        self.assertIn("Hang suspected in communicator", page.text("#announcement"))
        # Its last collectives, rank by rank; what the suspect has not called is marked.
        calls = first + ".querySelector('.calls:not([hidden]) table')"
        page.wait("!!%s && !!%s.querySelector('td.odd')" % (calls, calls))
        head, *_, last = page.evaluate("[...%s.rows].map((row) => [...row.cells].map((cell) => "
                                       "cell.innerText))" % calls)
        # The suspect stands first, where a narrow page shows it.
        self.assertEqual(head, ["call"] + ["rank %d" % i for i in (RANKS - 1, *range(RANKS - 1))])
        self.assertRegex(last[0], r"^AllReduce .*B #\d+$")
        self.assertEqual(last[1:], ["▸ not called"] + ["not done"] * (RANKS - 1))
        self.assertEqual(page.evaluate(calls + ".querySelector('th.odd').innerText"), "rank %d" % (RANKS - 1))
        if "TEST_UNDECLARED_OUTPUTS_DIR" in os.environ:  # for people
            page.screenshot(os.path.join(os.environ["TEST_UNDECLARED_OUTPUTS_DIR"], "hang.png"))
        self.assertEqual((page.problems, page.network), ([], []))


if __name__ == "__main__":
    running.main()
