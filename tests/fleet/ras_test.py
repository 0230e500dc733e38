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
        self.assertEqual(ras.heard, ["CLIENT PROTOCOL 2", "TIMEOUT 1", "VERBOSE STATUS"])

    def test_text(self):
        ras = self.ras()
        pages, _ = self.pages("healthy")
        _, text, _ = self.run_pulse("--endpoint=" + self.serve(pages[0]).name, ras.flag)
        self.assertIn("\nNCCL's RAS at 127.0.0.1:", text)
        self.assertIn("\n  |   Process 3487984 on node 172.16.64.213 managing GPU 5\n", text)

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

    # Lines as NCCL 2.31.2 and 2.32 write them; `comm` stands for a communicator of the job.
    FAULTS = """\
node-1:4242 NCCL DIAG === RAS Diagnostics ===
node-1:4242 NCCL DIAG [OK]   GPU inventory: 8x NVIDIA H100 per node consistent across 8 ranks in comm 0xCOMM
node-1:4242 NCCL DIAG [INFO] CUDA driver version: unavailable across 8 ranks in comm 0xCOMM
node-1:4242 NCCL DIAG [INFO] ECC: uncorrected volatile errors on rank(s) {3} (worst=2) across 8 ranks in comm 0xCOMM
node-1:4242 NCCL DIAG [INFO] ECC: no uncorrected volatile errors across 7 of 8 ranks in comm 0xCOMM (ECC counters ...)
node-1:4242 NCCL DIAG [INFO] NVLink: inactive link(s) on rank(s) {5} across 8 ranks in comm 0xCOMM\x1b[2J
node-1:4242 NCCL DIAG [INFO] NVLink: inactive link(s) on rank(s) {1} across 8 ranks in comm 0x123
node-1:4242 NCCL DIAG [INFO] NVLink: diagnostics incomplete, gathered 3/8 ranks in comm 0xCOMM/0x1/0x2 (RAS ...)
node-1:4242 NCCL DIAG [INFO] NCCL environment: NCCL_KEY=secret on rank(s) {1} in comm 0xCOMM
node-1:4242 NCCL DIAG [INFO] Paths: self+NVL(6/8)+NET across 8 ranks in comm 0xCOMM
node-1:4242 NCCL DIAG [INFO] Net device mlx5_0:1: state=DOWN/POLLING across 2 nodes in comm 0xCOMM (port is not active)
node-1:4242 NCCL DIAG [INFO] Xid/SXid: no kernel-log source was available on host node-2
node-1:4242 NCCL DIAG [INFO] Xid 79 detected 2 times on host node-1. For the recommended response, see the documentation
node-1:4242 NCCL DIAG [OK]   Xid 13 detected 1 time on host node-1. No user action is required for this Xid.
node-1:4242 NCCL DIAG RAS diagnostics completed in 3.4 ms across 8 RAS peers
"""

    def hang(self):
        pages, _ = self.pages("host stuck")
        endpoints = [self.serve(page) for page in pages]
        return endpoints, self.diagnose(endpoints, "--ras=off")[1]["roots"][0]["ranks"][0]["comm"].lstrip("0")

    def faults_in_a_hang(self, hang, faults, **options):
        endpoints, comm = hang
        ras = self.ras(faults=faults and faults.replace("COMM", comm), **options)
        status, verdict = self.diagnose(endpoints, ras.flag, "--timeout=1s")
        self.assertEqual((status, verdict["finding"]), (3, "hang"))
        return [note for note in verdict["notes"] if note.startswith("NCCL's RAS: ")], ras.heard

    def test_faults_are_quoted_in_a_hang(self):
        hang = self.hang()
        comm = hang[1]
        notes, heard = self.faults_in_a_hang(hang, self.FAULTS)
        self.assertEqual(notes, [
            "NCCL's RAS: ECC: uncorrected volatile errors on rank(s) {3} (worst=2) across 8 ranks in comm 0x" + comm,
            "NCCL's RAS: NVLink: inactive link(s) on rank(s) {5} across 8 ranks in comm 0x%s?[2J" % comm,
            "NCCL's RAS: Net device mlx5_0:1: state=DOWN/POLLING across 2 nodes in comm 0x%s (port is not active)" % comm,
            "NCCL's RAS: Xid 79 detected 2 times on host node-1. For the recommended response, see the documentation"])
        self.assertEqual(heard.count("DIAGNOSTICS"), 1)

    def test_faults_from_whatever_answers(self):
        line = "n:1 NCCL DIAG [INFO] NVLink: inactive link(s) on rank(s) {%d} in comm 0xCOMM\n"
        hang = self.hang()
        for faults, count, closes in ((None, 0, True), ("BUSY: diagnostics already in progress\n", 0, False),
                                      ("", 0, False), ("x" * MIB, 0, False), ("\n" * MIB, 0, True),
                                      ("n:1 NCCL DIAG [INFO] in comm 0x\nn:1 NCCL DIAG [\n NCCL DIAG \n", 0, True),
                                      ("".join(line % i for i in range(1000)), 16, True),
                                      # It names no communicator of this job.
                                      ("n:1 NCCL DIAG [INFO] Xid 79 detected 1 time on host n in comm\n", 0, True),
                                      (line % 1 + "n:1 NCCL DIAG [INFO] cut", 1, False)):
            notes, _ = self.faults_in_a_hang(hang, faults, closes=closes)
            self.assertEqual(len(notes), count, (faults or "")[:80])

    def test_nobody_is_asked_for_faults_where_nothing_hangs(self):
        ras = self.ras(faults=self.FAULTS)
        self.ask(ras.flag, SHORT)
        self.assertNotIn("DIAGNOSTICS", ras.heard)

    def test_flag(self):
        for text in ("http://x/y", "x:y", ""):
            status, _, error = self.run_pulse("--endpoint=127.0.0.1:1", "--ras=" + text)
            self.assertEqual(status, 2 if text == "" else 1, error)
            self.assertEqual("host:port" in error, text != "", error)


if __name__ == "__main__":
    running.main(at_once=4)
