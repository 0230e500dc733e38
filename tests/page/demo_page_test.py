"""What a newcomer sees: the page of `pulse demo` in a browser."""

import os
import subprocess
import unittest

from tests import running
from tests.node import cluster
from tests.page.browser import Browser

CALLS = "document.querySelector('details.communicator tbody tr')?.cells[5].innerText"


class DemoPageTest(unittest.TestCase):

    def setUp(self):
        self.port = cluster.free_port()
        self.demo = subprocess.Popen(
            [cluster.PULSE, "demo"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ, NCCL_PULSE_LISTEN="127.0.0.1:%d" % self.port))
        self.addCleanup(self.demo.stderr.close)
        self.addCleanup(self.demo.wait)
        self.addCleanup(self.demo.kill)
        cluster.wait_until(lambda: "dp" in str(cluster.get(self.port, "/api/v1/communicators")),
                           "the job is on the page")
        self.browser = Browser()
        self.addCleanup(self.browser.close)

    def test_it_moves_and_names_the_late_and_the_silent_rank(self):
        page = self.browser.open("http://127.0.0.1:%d/" % self.port)
        first = page.wait(CALLS)
        page.wait("%s !== '%s'" % (CALLS, first))  # the page asks every 2 s
        self.assertIn("3 communicators, 4 processes", page.text("#counts"))
        page.wait("document.title.startsWith('SLOW ')")
        self.assertRegex(page.text("#verdict"), r"waits for rank 2")
        page.wait("document.title.startsWith('HANG ')")
        self.assertRegex(page.text("#verdict"), r"\"dp\" has made no progress")
        self.assertRegex(page.text("#verdict"), r"Rank 1 \(pid \d+, GPU 1\) has not called AllReduce")
        suspect = "document.querySelector('details.communicator tr.suspect')"
        self.assertEqual(page.wait(suspect + " && %s.cells[0].innerText" % suspect), "▶▶ suspect 1")
        page.wait("!/^(HANG|NO ANSWER) /.test(document.title)")
        # On a busy machine the ranks may elect another server, whose port is closed for a moment: the page asks again.
        self.assertEqual((page.problems, [entry for entry in page.network if "ERR_CONNECTION_REFUSED" not in entry],
                          self.demo.poll()), ([], [], None))


if __name__ == "__main__":
    # A round takes a minute: that which is seen in a browser and that which is not pass at the same time.
    from tests.node.demo_case import DemoTest  # pylint: disable=unused-import
    running.main(at_once=4)
