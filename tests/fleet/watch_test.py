"""pulse watch: its pages, Alertmanager's webhook, how it finds endpoints, and whatever else is sent there."""

import concurrent.futures
import gzip
import json
import os
import select
import socket
import subprocess
import threading
import time

from tests import running
from tests.fleet.diagnose_case import DiagnoseCase
from tests.kit import PATIENCE_S, PULSE, fetch, free_port, reply, wait_until

ALERT = {"version": "4", "status": "firing", "alerts": [
    {"status": "resolved", "labels": {"job_id": "over"}},
    {"status": "firing", "labels": {"alertname": "NcclJobHung", "job_id": "4711"}}]}


class WatchTest(DiagnoseCase):

    def watch(self, *arguments, stderr=subprocess.PIPE):
        """Port, and the process."""
        port = free_port()
        process = subprocess.Popen([PULSE, "watch", "--listen=127.0.0.1:%d" % port, *arguments], stderr=stderr, text=True)
        if process.stderr is not None:
            self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_until(lambda: self.is_open(port), "it listens")
        return port, process

    @staticmethod
    def is_open(port):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        except ConnectionRefusedError:
            return False

    def ask(self, port, path, method="GET", body=None, **headers):
        response, answer = fetch(port, path, method, body, **headers)
        return response.status, response.getheader("Content-Type"), answer.decode()

    def hung_job(self):
        """(endpoints, the culprit's rank, arguments)"""
        pages, culprits = self.pages("host stuck")
        endpoints = [self.endpoint(self.answering(page)) for page in pages]
        return endpoints, culprits[0], [each.name for each in endpoints]

    @staticmethod
    def answering(page):
        """An endpoint with ranks that have stood for 30 s, or that others wait for."""
        def answer(handler):
            now = time.time()
            if handler.path == "/api/v1/summary":
                page_ = json.dumps({"time": now, "health": "hang", "processes": 8, "stands": [
                    {"communicator": "00000000000000c0", "since": now - 30, "hang_after": 10, "verdict": "no_progress", "usual": False}],
                                    "late": [], "jobs": [{"job_id": "4711", "workload": "4711", "processes": 8}],
                                    "communicators": ["000000c0"], "left_out": 0}).encode()
                reply(handler, page_)
            else:
                reply(handler, page)
        return answer

    def test_all_jobs(self):
        endpoints, culprit, arguments = self.hung_job()
        port, process = self.watch(*arguments)
        series = 'nccl_job_hang_start_timestamp_seconds{job_id="4711"'
        wait_until(lambda: series in self.ask(port, "/metrics")[2], "the hang is known")
        status, kind, text = self.ask(port, "/metrics")
        self.assertEqual((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
        (line,) = [line for line in text.splitlines() if line.startswith(series)]
        self.assertIn('global_rank="%d"' % culprit, line)
        self.assertIn('nccl_watch_endpoints{state="answered"} %d\n' % len(endpoints), text)
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, check=False,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual((checked.returncode, checked.stdout), (0, ""))
        status, kind, page = self.ask(port, "/", Host="watcher:1234")
        self.assertEqual((status, kind), (200, "text/html; charset=utf-8"))
        self.assertIn("HANG  global rank %d on " % culprit, page)
        # To the culprit's node, and from there back.
        self.assertRegex(page, r'<br><a href="http://127\.0\.0\.1:\d+/#watch=http%3A%2F%2Fwatcher%3A1234%2F">page of ')
        self.assertIn("info: job 4711: HANG  global rank %d" % culprit, process.stderr.readline() + process.stderr.readline())

    def test_its_log_has_an_address_that_a_browser_opens(self):
        process = subprocess.Popen([PULSE, "watch", "--listen=:0", "localhost:1"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertRegex(process.stderr.readline(), r"all jobs at http://localhost:\d+/$")

    def test_one_endpoint_and_a_new_job(self):
        _, _, arguments = self.hung_job()
        port, _ = self.watch(*arguments[:1])
        wait_until(lambda: ", 1 endpoint answered<table>" in self.ask(port, "/")[2], "a round is over")
        self.assertIn('nccl_watch_jobs{state="new"} ', self.ask(port, "/metrics")[2])

    def test_a_page_cannot_be_made_to_lead_elsewhere(self):
        _, _, arguments = self.hung_job()
        port, _ = self.watch(*arguments)
        wait_until(lambda: "<table>" in self.ask(port, "/")[2], "a round is over")
        for host in ('a"><script>', "a b", "a/b"):
            page = self.ask(port, "/", Host=host)[2]
            self.assertNotIn("#watch=", page)
            self.assertNotIn("<script", page)

    def test_a_look_as_text_page_and_json(self):
        _, culprit, arguments = self.hung_job()
        port, _ = self.watch(*arguments)
        status, kind, text = self.ask(port, "/?job_id=4711")
        self.assertEqual((status, kind), (200, "text/plain; charset=utf-8"))
        self.assertTrue(text.startswith("HANG  global rank %d on " % culprit), text)
        status, kind, page = self.ask(port, "/?job_id=4711", Accept="text/html,*/*")
        self.assertEqual((status, kind), (200, "text/html; charset=utf-8"))
        self.assertIn("<pre>HANG  global rank %d on " % culprit, page)
        status, kind, text = self.ask(port, "/api/v1/diagnosis?job_id=&other=1")
        self.assertEqual((status, kind), (200, "application/json"))
        self.assertEqual(json.loads(text)["finding"], "hang")
        self.assertEqual(self.ask(port, "/healthz")[::2], (200, "pulse watch: ok\n"))

    def test_webhook(self):
        _, _, arguments = self.hung_job()
        port, _ = self.watch(*arguments)
        status, _, text = self.ask(port, "/alertmanager", "POST", json.dumps(ALERT))
        self.assertEqual(status, 200)
        self.assertIn("HANG", text)
        # Of another job the endpoints know nothing.
        other = dict(ALERT, alerts=[{"status": "firing", "labels": {"job_id": "12"}}])
        self.assertNotIn("HANG", self.ask(port, "/alertmanager", "POST", json.dumps(other))[2])
        unnamed = dict(ALERT, alerts=[{"status": "firing", "labels": {}}])
        self.assertIn("HANG", self.ask(port, "/alertmanager", "POST", json.dumps(unnamed))[2])
        alert = dict(ALERT, alerts=ALERT["alerts"][:1])
        self.assertIn("resolved", self.ask(port, "/alertmanager", "POST", json.dumps(alert))[2])

    def test_what_nobody_understands(self):
        _, _, arguments = self.hung_job()
        port, process = self.watch(*arguments)
        for path, method, body, status in (
                ("/nothing", "GET", None, 404), ("/alertmanager", "GET", None, 405),
                ("/", "POST", "{}", 405), ("/", "DELETE", None, 405),
                ("/?comm=12", "GET", None, 400), ("/?job_id=%zz", "GET", None, 400),
                ("/?job_id=" + 300 * "x", "GET", None, 400),
                ("/alertmanager", "POST", "{", 400), ("/alertmanager", "POST", "[]", 400),
                ("/alertmanager", "POST", '{"alerts":7}', 400),
                ("/alertmanager", "POST", 70000 * "[", 400),
                ("/alertmanager", "POST", (1 << 20) * "xx", 413)):
            with self.subTest(path=path[:40], method=method):
                try:
                    self.assertEqual(self.ask(port, path, method, body)[0], status)
                except (BrokenPipeError, ConnectionResetError):
                    self.assertEqual(status, 413)  # it is not read
        self.assertIsNone(process.poll())

    def test_a_crowd_costs_one_look_and_silent_clients_nothing(self):
        endpoints, culprit, arguments = self.hung_job()
        looks = []
        answer = endpoints[0].answer

        def counting(handler):
            looks.append(handler.path)
            answer(handler)
        port, _ = self.watch(*arguments)
        # Its own look is over, and the next one is some seconds away.
        wait_until(lambda: "nccl_job_hang_start_timestamp_seconds{" in self.ask(port, "/metrics")[2], "it has looked")
        endpoints[0].answer = counting
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(31)]
        with concurrent.futures.ThreadPoolExecutor(max_workers=6) as pool:
            texts = list(pool.map(lambda _: self.ask(port, "/?job_id=4711")[2], range(6)))
        for text in texts:
            self.assertIn("global rank %d" % culprit, text)
        # Two questions make one look; who came late may have made a second one, and the watcher one of its own.
        self.assertLessEqual(looks.count("/api/v1/snapshots"), 6)
        for client in silent:
            client.close()

    def test_one_more_than_can_be_answered_is_told_so(self):
        event = threading.Event()
        self.addCleanup(event.set)
        silent = self.endpoint(lambda handler: event.wait(60))
        port, _ = self.watch(silent.name)
        answer = b""
        for number in range(64):
            client = socket.create_connection(("127.0.0.1", port))
            self.addCleanup(client.close)
            client.sendall(b"GET /?job_id=%d HTTP/1.1\r\n\r\n" % number)
            # The others are waited for: each is a job of its own, and the endpoint does not answer.
            if select.select([client], [], [], 0.05)[0]:
                while part := client.recv(4096):
                    answer += part
                    if answer.endswith(b"again\n"):
                        break
                break
        self.assertGreaterEqual(number, 16)
        self.assertTrue(answer.startswith(b"HTTP/1.1 503 "), answer)
        self.assertIn(b"\r\nRetry-After: 3\r\n", answer)

    def test_files_are_read_again(self):
        endpoints, culprit, _ = self.hung_job()
        path = os.path.join(os.environ["TEST_TMPDIR"], "targets.json")

        def write(text):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

        silent = self.endpoint(lambda handler: reply(handler, b"", status=500))
        write(json.dumps([{"targets": [silent.name]}]))
        port, _ = self.watch("--targets=" + path)
        wait_until(lambda: 'state="silent"} 1\n' in self.ask(port, "/metrics")[2], "it is silent")
        self.assertIn("it answers with status 500", self.ask(port, "/")[2])
        write(json.dumps([{"targets": [each.name for each in endpoints]}]))
        wait_until(lambda: 'global_rank="%d"' % culprit in self.ask(port, "/metrics")[2], "the others are asked")
        os.remove(path)
        wait_until(lambda: "nccl_watch_find_failed 1\n" in self.ask(port, "/metrics")[2], "the file is missed")
        self.assertIn("cannot read " + path, self.ask(port, "/")[2])
        self.assertIn('state="answered"} %d\n' % len(endpoints), self.ask(port, "/metrics")[2])

    def test_directories(self):
        endpoints, culprit, _ = self.hung_job()
        groups = json.dumps([{"targets": [each.name for each in endpoints]}]).encode()
        for body, found in ((groups, len(endpoints)), (b"[]", 0)):
            directory = self.endpoint(lambda handler, body=body: reply(handler, body))
            port, _ = self.watch("--http-sd=http://%s/targets" % directory.name)
            wait_until(lambda: 'state="answered"} %d\n' % found in self.ask(port, "/metrics")[2], found)
            self.assertIn("nccl_watch_find_failed 0\n", self.ask(port, "/metrics")[2])
        refusing = self.endpoint(lambda handler: reply(handler, b"", status=401))
        port, _ = self.watch("--http-sd=" + refusing.name)
        wait_until(lambda: "it asks for a password or a token (401)" in self.ask(port, "/")[2], "it says so")
        # A name with addresses: here one.
        port, _ = self.watch("--dns=localhost:%d" % endpoints[0].server_address[1])
        wait_until(lambda: 'state="answered"} 1\n' in self.ask(port, "/metrics")[2], "the name is found")
        status, out, _ = self.run_pulse("--dns=localhost:%d" % endpoints[0].server_address[1])
        self.assertIn("endpoints answered", out)

    def test_standard_error_that_nobody_reads(self):
        _, culprit, arguments = self.hung_job()
        out, full = os.pipe()
        self.addCleanup(os.close, out)
        os.set_blocking(full, False)
        try:
            while True:
                os.write(full, 4096 * b"x")
        except BlockingIOError:
            pass
        os.set_blocking(full, True)
        port, _ = self.watch(*arguments, stderr=full)
        os.close(full)
        self.assertIn("global rank %d" % culprit, self.ask(port, "/?job_id=4711")[2])

    # What endpoints send, all of them together. The limit is that of deploy/kubernetes/watch before it had room for
    # as much as they can send.
    MOST_MEMORY_KIB = 256 << 10

    @staticmethod
    def resources(process):
        """(largest memory in KiB, processor time in seconds)"""
        with open("/proc/%d/status" % process.pid, encoding="ascii") as file:
            peak = int(next(line.split()[1] for line in file if line.startswith("VmHWM")))
        with open("/proc/%d/stat" % process.pid, encoding="ascii") as file:
            times = file.read().rpartition(")")[2].split()[11:13]
        return peak, sum(map(int, times)) / os.sysconf("SC_CLK_TCK")

    def rounds(self, port, count):
        """Waits for so many rounds."""
        seen = set()

        def is_done():
            seen.update(line for line in self.ask(port, "/metrics")[2].splitlines()
                        if line.startswith("nccl_watch_round_timestamp_seconds "))
            return len(seen) > count
        wait_until(is_done, "rounds go on")

    def beside_hostile(self, count, answer, most_seconds_of_round=None):
        """Watches an honest job that hangs, and `count` endpoints of another one that answer with `answer`."""
        _, culprit, arguments = self.hung_job()
        summary = self.answering(b"")

        def hostile(handler):
            handler.path = handler.path[handler.path.index("/api"):]
            if handler.path != "/api/v1/summary":
                return answer(handler)
            summary(handler)
        name = self.endpoint(hostile).name
        # Before the honest ones, and as part of their job.
        port, process = self.watch(*("%s/%d" % (name, i) for i in range(count)), *arguments, stderr=subprocess.DEVNULL)
        self.rounds(port, 1)
        before = self.resources(process)[1]
        self.rounds(port, 1)
        peak, after = self.resources(process)
        self.assertLess(peak, self.MOST_MEMORY_KIB)
        if most_seconds_of_round is not None:
            self.assertLess(after - before, most_seconds_of_round)
        wait_until(lambda: 'global_rank="%d"' % culprit in self.ask(port, "/metrics")[2], "the honest job is judged")
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 0)

    @staticmethod
    def packed(page):
        body = gzip.compress(page, 1)
        return lambda handler: reply(handler, body, headers=[("Content-Encoding", "gzip")])

    def test_large_answers_that_never_end(self):
        done = threading.Event()
        self.addCleanup(done.set)
        part = b"x" * ((8 << 20) - 4096)

        def answer(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", str(8 << 20))
            handler.end_headers()
            handler.wfile.write(part)
            done.wait(PATIENCE_S)
        self.beside_hostile(100, answer)

    def test_small_answers_that_take_much_time(self):
        self.beside_hostile(30, self.packed(self.pages("healthy")[0][0] + b"\x28\x01" * 12_000_000),
                            most_seconds_of_round=5)

    def test_sigterm_ends_a_round_that_waits(self):
        asked, done = threading.Event(), threading.Event()
        self.addCleanup(done.set)

        def answer(_):
            asked.set()
            done.wait()
        for arguments in ([self.endpoint(answer).name], ["--prometheus=http://" + self.endpoint(answer).name]):
            asked.clear()
            _, process = self.watch("--timeout=5m", *arguments, stderr=subprocess.DEVNULL)
            self.assertTrue(asked.wait(PATIENCE_S))
            process.terminate()
            self.assertEqual(process.wait(PATIENCE_S), 0)

    def program(self, lines):
        path = os.path.join(os.environ["TEST_TMPDIR"], self.id())
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + lines)
        os.chmod(path, 0o755)
        return path

    def test_a_program_is_started_in_a_hang(self):
        _, culprit, arguments = self.hung_job()
        program = self.program("cat > $0.part && mv $0.part $0.out")
        port, process = self.watch("--on-hang=" + program, "--on-hang-as-root", *arguments)
        wait_until(lambda: os.path.exists(program + ".out"), "it has read the verdict")
        with open(program + ".out", encoding="utf-8") as file:
            verdict = json.load(file)
        self.assertEqual(verdict["job_id"], "4711")
        self.assertEqual(len(verdict["endpoints"]), len(arguments))
        self.assertIn("global rank %d" % culprit, verdict["diagnosis"]["sentence"])
        os.remove(program + ".out")
        # It looks again, which is no other hang.
        wait_until(lambda: time.sleep(1) or "HANG" in self.ask(port, "/?job_id=4711")[2], "it stands")
        self.assertFalse(os.path.exists(program + ".out"))
        process.terminate()
        self.assertEqual(process.wait(timeout=PATIENCE_S), 0)

    def test_a_program_that_hangs_holds_up_no_end(self):
        _, _, arguments = self.hung_job()
        program = self.program("touch $0.out; exec sleep 10")
        _, process = self.watch("--on-hang=" + program, "--on-hang-as-root", *arguments)
        wait_until(lambda: os.path.exists(program + ".out"), "it runs")
        process.terminate()
        self.assertEqual(process.wait(timeout=PATIENCE_S), 0)


if __name__ == "__main__":
    running.main(at_once=3)
