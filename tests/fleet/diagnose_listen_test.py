"""pulse diagnose --listen: verdicts for Alertmanager's webhook and for a browser, and whatever else is sent
there."""

import concurrent.futures
import http.client
import json
import socket
import subprocess

from tests import running
from tests.fleet.diagnose_test import PULSE, DiagnoseCase, reply

ALERT = {"version": "4", "status": "firing", "alerts": [
    {"status": "resolved", "labels": {"job_id": "over"}},
    {"status": "firing", "labels": {"alertname": "NcclHang", "job_id": "4711"}}]}


class ListenTest(DiagnoseCase):

    def listen(self, *arguments):
        """Port, and the process."""
        process = subprocess.Popen([PULSE, "diagnose", "--listen=127.0.0.1:0", *arguments],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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
        self.assertEqual(self.ask(port, "/healthz")[::2], (200, "ok\n"))
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


if __name__ == "__main__":
    running.main()
