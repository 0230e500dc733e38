"""pulse diagnose --listen: verdicts for Alertmanager's webhook and for a browser, and whatever else is sent
there."""

import concurrent.futures
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import threading

from tests import running
from tests.fleet.diagnose_case import PULSE, DiagnoseCase, reply

ALERT = {"version": "4", "status": "firing", "alerts": [
    {"status": "resolved", "labels": {"job_id": "over"}},
    {"status": "firing", "labels": {"alertname": "NcclHang", "job_id": "4711"}}]}


class ListenTest(DiagnoseCase):

    def listen(self, *arguments, stdout=subprocess.PIPE):
        """Port, and the process."""
        process = subprocess.Popen([PULSE, "diagnose", "--listen=127.0.0.1:0", *arguments],
                                   stdout=stdout, stderr=subprocess.PIPE, text=True)
        if process.stdout is not None:
            self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        first = process.stderr.readline()
        self.assertRegex(first, r"^pulse: verdicts at http://127\.0\.0\.1:\d+/ and")
        return int(first.split("http://127.0.0.1:")[1].split("/")[0]), process

    def ask(self, port, path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.getheader("Content-Type"), response.read().decode()
        finally:
            connection.close()

    def hung_job(self):
        pages, culprits = self.pages("host stuck")
        endpoints = [self.serve(page) for page in pages]
        return endpoints, culprits[0], ["--endpoint=" + each.name for each in endpoints]

    def test_text_page_and_json(self):
        _, culprit, arguments = self.hung_job()
        port, process = self.listen(*arguments)
        status, kind, text = self.ask(port, "/")
        self.assertEqual((status, kind), (200, "text/plain; charset=utf-8"))
        self.assertTrue(text.startswith("HANG  global rank %d on " % culprit), text)
        status, kind, page = self.ask(port, "/", Accept="text/html,*/*")
        self.assertEqual((status, kind), (200, "text/html; charset=utf-8"))
        self.assertIn("<pre>HANG  global rank %d on " % culprit, page)
        status, kind, text = self.ask(port, "/api/v1/diagnosis?job_id=&other=1")
        self.assertEqual((status, kind), (200, "application/json"))
        self.assertEqual(json.loads(text)["finding"], "hang")
        self.assertEqual(self.ask(port, "/healthz")[::2], (200, "pulse diagnose: ok\n"))
        self.assertIn("all jobs: HANG  global rank", process.stdout.readline())
        self.assertIn("all jobs: HANG  global rank", self.ask(port, "/last")[2])

    def test_webhook(self):
        pages, _ = self.pages("host stuck")
        endpoints = [self.serve(page) for page in pages]
        port, process = self.listen(*["--endpoint=" + each.name for each in endpoints])
        status, _, text = self.ask(port, "/alertmanager", "POST", json.dumps(ALERT))
        self.assertEqual(status, 200)
        self.assertIn("HANG", text)
        self.assertIn("job 4711: HANG", process.stdout.readline())
        # Of another job the endpoints know nothing.
        other = dict(ALERT, alerts=[{"status": "firing", "labels": {"job_id": "12"}}])
        self.assertNotIn("HANG", self.ask(port, "/alertmanager", "POST", json.dumps(other))[2])
        self.assertIn("job 12: ", process.stdout.readline())
        unnamed = dict(ALERT, alerts=[{"status": "firing", "labels": {}}])
        self.assertIn("HANG", self.ask(port, "/alertmanager", "POST", json.dumps(unnamed))[2])
        alert = dict(ALERT, alerts=ALERT["alerts"][:1])
        self.assertIn("resolved", self.ask(port, "/alertmanager", "POST", json.dumps(alert))[2])

    def test_what_nobody_understands(self):
        _, _, arguments = self.hung_job()
        port, process = self.listen(*arguments)
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
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"POST /alertmanager HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.assertIn(b" 411 ", client.recv(4096))
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /" + 9000 * b"x")
            self.assertIn(b" 431 ", client.recv(4096))
        self.assertIsNone(process.poll())

    def test_a_crowd_costs_one_look_and_silent_clients_nothing(self):
        endpoints, culprit, arguments = self.hung_job()
        looks = []
        endpoints[0].answer = self.counted(endpoints[0].answer, looks)
        port, process = self.listen(*arguments)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        with concurrent.futures.ThreadPoolExecutor(max_workers=6) as pool:
            texts = list(pool.map(lambda _: self.ask(port, "/")[2], range(6)))
        for text in texts:
            self.assertIn("global rank %d" % culprit, text)
        # Two questions to each endpoint make one look; who came late may have made a second one.
        self.assertLessEqual(len(looks), 4)
        for client in silent:
            client.close()
        self.assertIsNone(process.poll())

    @staticmethod
    def counted(answer, looks):
        def counting(handler):
            looks.append(handler.path)
            answer(handler)
        return counting

    def test_clients_that_ask_nothing_make_room(self):
        _, _, arguments = self.hung_job()
        port, _ = self.listen(*arguments)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(16)]
        for client in silent:
            client.settimeout(60)
        for _ in range(3):
            self.assertEqual(self.ask(port, "/healthz")[::2], (200, "pulse diagnose: ok\n"))
        self.assertEqual(silent[0].recv(1), b"")  # it had waited longest
        silent[15].sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        self.assertIn(b" 200 ", silent[15].recv(4096))
        for client in silent:
            client.close()

    def test_one_more_than_can_be_answered_is_told_so(self):
        event = threading.Event()
        self.addCleanup(event.set)
        silent = self.endpoint(lambda handler: event.wait(60))
        port, _ = self.listen("--endpoint=" + silent.name)
        answer = b""
        for number in range(40):
            client = socket.create_connection(("127.0.0.1", port))
            self.addCleanup(client.close)
            client.sendall(b"GET /?job_id=%d HTTP/1.1\r\n\r\n" % number)
            # The others are waited for: each is a job of its own, and the endpoint does not answer.
            if select.select([client], [], [], 0.05)[0]:
                while part := client.recv(4096):
                    answer += part
                break
        self.assertGreaterEqual(number, 16)
        self.assertTrue(answer.startswith(b"HTTP/1.1 503 "), answer)
        self.assertIn(b"\r\nRetry-After: 3\r\n", answer)
        self.assertTrue(answer.endswith(b"others are being answered: ask again\n"), answer)

    def test_files_are_read_for_each_look(self):
        endpoints, culprit, _ = self.hung_job()
        path = os.path.join(os.environ["TEST_TMPDIR"], "targets.json")

        def write(text):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

        silent = self.endpoint(lambda handler: reply(handler, b"", status=500))
        write(json.dumps([{"targets": [silent.name]}]))
        port, _ = self.listen("--targets=" + path)
        self.assertIn("0 of 1 endpoints answered", self.ask(port, "/")[2])
        write(json.dumps([{"targets": [each.name for each in endpoints]}]))
        self.assertIn("global rank %d" % culprit, self.ask(port, "/?job_id=4711")[2])
        os.remove(path)
        status, _, text = self.ask(port, "/?job_id=1")
        self.assertEqual(status, 503)
        self.assertIn("targets.json", text)

    def test_each_question_has_its_own_answer(self):
        _, _, arguments = self.hung_job()
        port, _ = self.listen(*arguments)
        comm = "00000000000000c0"
        for job in ("4711", "12"):
            self.assertEqual(self.ask(port, "/?job_id=%s&comm=%s" % (job, comm))[0], 200)
        last = self.ask(port, "/last")[2]
        for job in ("4711", "12"):
            self.assertIn("job %s, the job of communicator %s: " % (job, comm), last)

    def test_standard_output_that_nobody_reads(self):
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
        port, process = self.listen(*arguments, stdout=full)
        os.close(full)
        self.assertIn("global rank %d" % culprit, self.ask(port, "/")[2])
        # A connection that its endpoint has closed does not end the program.
        with open("/proc/%d/status" % process.pid, encoding="ascii") as status:
            ignored = next(line for line in status if line.startswith("SigIgn:"))
        self.assertTrue(int(ignored.split()[1], 16) & 1 << (signal.SIGPIPE - 1))

    def test_refusals(self):
        _, _, arguments = self.hung_job()
        port, _ = self.listen(*arguments)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(b"GET /alertmanager HTTP/1.1\r\n\r\n")
            self.assertIn(b"\r\nAllow: POST\r\n", client.recv(4096))
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
            self.assertIn(b"\r\nAllow: GET, HEAD\r\n", client.recv(4096))
        # What else the client sends is taken: it reads the answer, and no reset.
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(b"POST /alertmanager HTTP/1.1\r\nContent-Length: 2000000\r\n\r\n")
            for _ in range(12):
                client.sendall(4096 * b"x")
            client.shutdown(socket.SHUT_WR)
            text = b""
            while part := client.recv(4096):
                text += part
            self.assertIn(b" 413 ", text)

    def test_nobody_answers(self):
        silent = self.endpoint(lambda handler: reply(handler, b"", status=500))
        port, process = self.listen("--endpoint=" + silent.name)
        status, _, text = self.ask(port, "/")
        self.assertEqual(status, 200)
        self.assertIn("0 of 1 endpoints answered", text)
        port, process = self.listen("--prometheus=http://" + silent.name)
        status, _, text = self.ask(port, "/")
        self.assertEqual(status, 503)
        self.assertIn("500", text)

    def test_addresses(self):
        _, _, arguments = self.hung_job()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            for address, text in (("127.0.0.1:%d" % taken.getsockname()[1], "in use"),
                                  ("nowhere", "--listen: "), ("unix:/tmp/x", "TCP address")):
                with self.subTest(address=address):
                    status, _, error = self.run_pulse("--listen=" + address, *arguments)
                    self.assertEqual(status, 1)
                    self.assertIn(text, error)
                    if address != "nowhere":
                        self.assertEqual(self.run_pulse("--listen", address, *arguments)[0], 1)
        status, _, error = self.run_pulse("--listen=", *arguments)
        self.assertEqual(status, 1)
        self.assertIn("--listen needs an address", error)


if __name__ == "__main__":
    running.main(at_once=3)
