"""`pulse status`, the verdicts and their metrics, on living, hanging, stopped and dead processes: ranks
that run tests/gpu/proof_program on the stand-in for NCCL, with a shared endpoint."""

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import tempfile

import unittest

from tests import running
from tests.node import cluster
from tests.node.proof_job import Job, RANKS



def status(*arguments):
    """(exit status, output, errors)"""
    done = subprocess.run([cluster.PULSE, "status"] + list(arguments), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


class StatusTest(unittest.TestCase):

    def setUp(self):
        self.port = cluster.free_port()
        self.endpoint = "127.0.0.1:%d" % self.port
        # Short: an NCCL unique id holds the name of a file in it.
        folder = tempfile.TemporaryDirectory(prefix="st", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, *phases, **options):
        job = Job(self.folder, self.endpoint, *phases, **options)
        self.addCleanup(job.close)
        return job

    def page(self):
        answer = cluster.get(self.port, "/api/v1/communicators")
        return json.loads(answer[1]) if answer and answer[0] == 200 else None

    def hang(self):
        """The first hang on the page, or None."""
        page = self.page()
        return next((comm["hang"] for comm in page["communicators"] if comm["hang"]), None) if page else None

    def wait_for_hang(self, verdict):
        cluster.wait_until(lambda: (self.hang() or {}).get("verdict") == verdict, verdict)
        return self.hang()

    def server_last(self, job):
        """The ranks, that which serves last."""
        return sorted(job.ranks, key=lambda rank: self.serves(rank.pid))

    def serves(self, pid):
        process = cluster.Process.__new__(cluster.Process)
        process.process = type("P", (), {"pid": pid})
        return process.serves(self.port)

    def test_hang_then_stopped_then_killed(self):
        job = self.start("warm", "hang")
        self.assertEqual(job.report(), ["warm"] * RANKS)
        code, output, errors = status(self.endpoint)
        self.assertEqual((code, errors), (0, ""))
        self.assertIn("No hang and no straggler is suspected.", output)
        self.assertIn("idle", output)
        job.go_on()
        self.wait_for_hang("rank_not_called")
        last = RANKS - 1
        # On a busy machine one rank may have waited long enough before the other has.
        cluster.wait_until(lambda: len(self.hang()["waiting"]) == last, "both wait")
        hang = self.hang()
        self.assertEqual((hang["suspects"], hang["waiting"], hang["op"]), ([last], list(range(last)), "AllReduce"))
        code, output, _ = status("--endpoint=" + self.endpoint)
        self.assertEqual(code, 3, output)
        self.assertIn("\nHANG  Rank %d " % (RANKS - 1), output)
        # The call after the last one in the table.
        number = re.search(r"^>> .* AllReduce <=64KiB #(\d+)", output, re.MULTILINE)[1]
        self.assertIn("Rank %d (pid %d) has not called AllReduce #%d (up to 64KiB), and has nothing in flight" %
                      (last, job.ranks[last].pid, int(number) + 1), output.replace("\n     ", ""))
        self.assertRegex(output, r"\n>> +%d +%d .* idle " % (last, job.ranks[last].pid))
        self.assertRegex(output, r"\n +0 +%d .* waits " % job.ranks[0].pid)
        self.assertNotIn("\033", output)
        code, output, _ = status("--endpoint=http://%s/metrics" % self.endpoint, "--json")
        self.assertEqual(code, 3)
        hangs = [comm["hang"] for comm in json.loads(output)["communicators"] if comm["hang"]]
        self.assertEqual(hangs[0]["suspects"], [last])
        found = cluster.values(self.port, "nccl_hang_start_timestamp_seconds", "verdict", "suspect_rank", "op")
        self.assertEqual(list(found), [("rank_not_called", str(last), "AllReduce")])

        # Who does not call is stopped, or a waiting rank is killed: not the one that serves.
        victim = self.server_last(job)[0]
        rank = job.ranks.index(victim)
        victim.send_signal(signal.SIGSTOP)
        cluster.wait_until(lambda: "is not running" in self.hang()["text"], "it is seen to stop")
        self.assertEqual(self.hang()["suspects"], [last])
        process = self.page()["communicators"][0]["ranks"][rank]["process"]
        self.assertEqual((process["pid"], process["run_state"]), (victim.pid, "stopped"))
        victim.kill()
        if rank == last:
            self.assertEqual(self.wait_for_hang("process_gone")["suspects"], [rank])
        else:
            cluster.wait_until(lambda: "ended while it waited" in self.hang()["text"], "it is seen to end")
            self.assertEqual(self.hang()["suspects"], [last])
        code, output, _ = status("--endpoint=" + self.endpoint)
        self.assertEqual(code, 3)
        self.assertRegex(output, r"\n(?:>>|  ) +%d +%d .* gone " % (rank, victim.pid))

    def test_server_killed_in_a_hang(self):
        job = self.start("warm", "hang")
        job.report()
        job.go_on()
        job.report()
        victim = self.server_last(job)[-1]
        rank = job.ranks.index(victim)
        victim.kill()
        # The new server has never seen it: what is known is that it is not there.
        def named():
            hang = self.hang()
            return hang and hang["verdict"] in ("rank_not_seen", "rank_not_called") and hang
        hang = cluster.wait_until(named, "the others are diagnosed")
        self.assertNotIn(self.hang()["verdict"], ("no_progress", "process_stopped"))
        expected = [rank] if hang["verdict"] == "rank_not_seen" else [RANKS - 1]
        self.assertEqual(hang["suspects"], expected)

    def test_no_all_clear_while_blind(self):
        """One rank killed, the others stopped; an agent has their last state, and nothing else."""
        agent = cluster.Agent.of(self, self.endpoint)
        job = self.start("warm", "hang")
        self.assertEqual(job.report(), ["warm"] * RANKS)
        self.assertEqual(status("--endpoint=" + self.endpoint)[0], 0)
        job.ranks[0].kill()
        for rank in job.ranks[1:]:
            rank.send_signal(signal.SIGSTOP)

        def is_seen():
            health = self.page()["health"]
            return (health["lost_processes"], health["stopped_processes"]) == (1, RANKS - 1)
        cluster.wait_until(is_seen, "the end and the stop are seen")
        for arguments in ([], ["--json"]):
            code, output, _ = status("--endpoint=" + self.endpoint, *arguments)
            self.assertEqual(code, 4, output)
            self.assertNotIn("No hang", output)
        code, output, _ = status("--endpoint=" + self.endpoint)
        self.assertIn("1 process ended without finalizing: pid %d." % job.ranks[0].pid, output)
        self.assertIn("%d processes are not running" % (RANKS - 1), output)

    def test_straggler(self):
        job = self.start("warm", "straggler")
        job.report()
        job.go_on()

        def straggler():
            return next((comm["straggler"] for comm in self.page()["communicators"]
                         if comm["straggler"] and comm["name"] == "delay-20"), None)
        found = cluster.wait_until(straggler, "the late rank is named")
        self.assertEqual(found["rank"], RANKS - 1)
        code, output, _ = status("--endpoint=" + self.endpoint)
        self.assertEqual(code, 0, output)
        self.assertIn("waits for rank %d" % (RANKS - 1), output)
        seconds = cluster.values(self.port, "nccl_straggler_seconds_total", "comm", "rank")
        late = max(seconds, key=seconds.get)
        self.assertEqual(late[1], str(RANKS - 1))

    def test_watch_and_color_on_a_terminal(self):
        job = self.start("warm", "hang")
        job.report()
        leader, follower = pty.openpty()
        self.addCleanup(os.close, leader)
        watch = subprocess.Popen(
            [cluster.PULSE, "status", "--watch", "--interval=250ms", "--endpoint=" + self.endpoint],
            stdout=follower, stderr=follower, env=dict(os.environ, TERM="xterm", NO_COLOR=""))
        os.close(follower)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.kill)
        shown = b""
        told = False
        for _ in range(100000):
            ready, _, _ = select.select([leader], [], [], cluster.PATIENCE_S)
            self.assertTrue(ready, shown)
            shown += os.read(leader, 65536)
            if not told and b"No hang and no straggler" in shown:
                told = True
                job.go_on()
            if b"\033[1;31mHANG\033[0m" in shown:
                break
        self.assertTrue(told)
        self.assertIn(b"\033[H\033[2J", shown)


class EndpointTest(unittest.TestCase):

    def test_nobody_answers(self):
        code, output, errors = status("--endpoint=127.0.0.1:1")
        self.assertEqual((code, output), (2, ""))
        self.assertIn("pulse: no answer from 127.0.0.1:1: Connection refused", errors)
        self.assertIn("Next: give the address in the job's log", errors)

    def test_another_program_answers(self):
        for answer, expected in ((b"SSH-2.0-x\r\n", "is not HTTP"),
                                 (b"HTTP/1.1 404 Not Found\r\n\r\n", "(404): an older version, or another program"),
                                 (b"HTTP/1.1 200 OK\r\n\r\nhello", "is not from NCCL Pulse"),
                                 (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
                                  "ended too early")):
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                listener.listen()
                asking = subprocess.Popen(
                    [cluster.PULSE, "status", "--endpoint=127.0.0.1:%d" % listener.getsockname()[1]],
                    stderr=subprocess.PIPE, text=True)
                connection, _ = listener.accept()
                connection.recv(4096)
                connection.sendall(answer)
                connection.close()
                _, errors = asking.communicate()
                self.assertEqual(asking.returncode, 2, errors)
                self.assertIn(expected, errors)

    def test_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            listen = "unix:" + os.path.join(folder, "pulse")
            agent = cluster.Agent.of(self, listen)
            for arguments in (["--endpoint=" + listen], [listen]):
                code, output, errors = status(*arguments)
                self.assertEqual((code, errors), (0, ""))
                self.assertIn("No communicator is in use.", output)
            agent.end()
            code, _, errors = status("--endpoint=" + listen)
            self.assertEqual(code, 2, errors)


if __name__ == "__main__":
    running.main(at_once=3)
