"""pulse diagnose asks NCCL's RAS for ranks that no endpoint knows, and takes whatever may listen at its port."""

import socket
import time
import unittest

from tests import running
from tests.fleet.diagnose_case import MIB, DiagnoseCase
from tests.fleet.ras_server import REPORT, Ras

SHORT = "--timeout=2s"

class RasTest(DiagnoseCase):

    def ras(self, *arguments, **options):
        ras = Ras(*arguments, **options)
        self.addCleanup(ras.server.close)
        return ras

    def ask(self, *arguments, endpoints=1):
        """Of so many of a job's endpoints; there are more."""
        pages, _ = self.pages("healthy")
        self.assertGreater(len(pages), 1)
        return self.diagnose([self.serve(page) for page in pages[:endpoints]], *arguments)

    def test_ranks_that_no_endpoint_knows(self):
        ras = self.ras()
        status, verdict = self.ask(ras.flag, SHORT)
        self.assertEqual((status, verdict["finding"]), (4, "incomplete"))
        self.assertEqual(verdict["ras"], {"address": ras.flag[len("--ras="):], "error": None, "report": REPORT})
        self.assertEqual(ras.heard, ["CLIENT PROTOCOL 2", "SET FORMAT json", "TIMEOUT 1", "STATUS"])

    def test_text(self):
        ras = self.ras()
        pages, _ = self.pages("healthy")
        _, text, _ = self.run_pulse("--endpoint=" + self.serve(pages[0]).name, ras.flag)
        self.assertIn("\nNCCL's RAS at 127.0.0.1:", text)
        self.assertIn('"host": "172.16.64.213", "pid": 3487984', text)

    def test_where_all_ranks_are_known_nobody_is_asked(self):
        ras = self.ras()
        status, verdict = self.ask(ras.flag, endpoints=None)
        self.assertEqual((status, verdict["ras"], ras.heard), (0, None, []))

    def test_nobody_listens(self):
        ras = self.ras()
        ras.server.shutdown(socket.SHUT_RDWR)
        ras.server.close()
        for flag in (ras.flag, "--ras=off", "--ras=[::1]:1"):
            status, verdict = self.ask(flag)
            self.assertEqual((status, verdict["ras"]), (4, None))

    def test_somebody_else_listens(self):
        for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 1000, b"SERVER PROTOCO", b"x" * MIB):
            ras = self.ras(answers={"CLIENT PROTOCOL": answer})
            self.assertIsNone(self.ask(ras.flag, SHORT)[1]["ras"])

    def test_an_old_nccl_is_not_asked_for_text(self):
        """Its text report can crash the rank that answers."""
        ras = self.ras(is_old=True)
        found = self.ask(ras.flag)[1]["ras"]
        self.assertEqual(ras.heard, ["CLIENT PROTOCOL 2", "SET FORMAT json"])
        self.assertIn("NCCL is older than 2.28.7", found["error"])
        self.assertIsNone(found["report"])

    def test_it_refuses(self):
        ras = self.ras(answers={"TIMEOUT": b"ERROR: Invalid timeout value\n"})
        self.assertEqual(self.ask(ras.flag)[1]["ras"]["error"], "it does not answer as NCCL's RAS does")

    def test_it_never_ends(self):
        ras = self.ras(closes=False)
        begin = time.monotonic()
        found = self.ask(ras.flag, SHORT)[1]["ras"]
        self.assertEqual((found["error"], found["report"]), ("the report is not whole", REPORT))
        self.assertLess(time.monotonic() - begin, 60)
        silent = self.ras(report="", closes=False)
        found = self.ask(silent.flag, SHORT)[1]["ras"]
        self.assertEqual((found["error"], found["report"]), ("it does not answer in time", None))

    def test_it_says_too_much(self):
        ras = self.ras(report="a line\n" * (3 * MIB // 7))
        found = self.ask(ras.flag)[1]["ras"]
        self.assertEqual(found["error"], "the report is not whole")
        self.assertLessEqual(len(found["report"]), MIB + 1)

    def test_it_cannot_steer_a_terminal(self):
        ras = self.ras(report="\x1b[2Jfine\r\n\x07end\n")
        self.assertEqual(self.ask(ras.flag)[1]["ras"]["report"], "?[2Jfine?\n?end\n")

    def test_a_hang_sends_no_other_command(self):
        """DIAGNOSTICS runs checks in the job's processes."""
        ras = self.ras()
        pages, _ = self.pages("host stuck")
        status, _ = self.diagnose([self.serve(page) for page in pages], ras.flag, SHORT)
        self.assertEqual((status, ras.heard), (3, []))


if __name__ == "__main__":
    running.main(at_once=4)
