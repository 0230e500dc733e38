"""pulse diagnose against endpoints that answer, and against all that may stand there instead."""

import base64
import json
import os
import re
import socket
import subprocess
import tempfile
import threading
import urllib.parse

from tests import running
from tests.fleet.diagnose_case import MIB, DiagnoseCase, reply


class VerdictTest(DiagnoseCase):

    def test_hang(self):
        pages, culprits = self.pages("host stuck")
        endpoints = [self.serve(page) for page in pages]
        status, verdict = self.diagnose(endpoints)
        self.assertEqual(status, 3)
        self.assertEqual(verdict["finding"], "hang")
        self.assertEqual([rank["process"]["global_rank"] for root in verdict["roots"]
                          for rank in root["ranks"]], [str(rank) for rank in culprits])
        self.assertIn("py-spy", verdict["roots"][0]["first"])
        self.assertEqual(verdict["endpoints"]["heard"], len(pages))
        status, text, _ = self.run_pulse(*[each.name for each in endpoints])
        self.assertEqual(status, 3)
        first = text.split("\n")[0]
        self.assertRegex(first, r"^HANG  global rank %d on node-\d+ \(GPU \d+, pid \d+\) has not "
                                r"called (\w+ #\d+( (to|and) #\d+)? \(up to \w+\)|the others' operations); \d+ of \d+ processes "
                                r"wait, since \d\d:\d\d:\d\d UTC \(\d+ s\)\. Next: py-spy dump --pid" % culprits[0])

    def test_healthy(self):
        pages, _ = self.pages("healthy")
        status, verdict = self.diagnose([self.serve(page) for page in pages])
        self.assertEqual((status, verdict["finding"], verdict["roots"]), (0, "none", []))
        self.assertTrue(verdict["sentence"].startswith("OK"), verdict["sentence"])

    def test_ended(self):
        ended = 0
        for seed in range(8):
            pages, _ = self.pages("healthy end by _exit(0)", seed)
            status, verdict = self.diagnose([self.serve(page) for page in pages])
            if verdict["sentence"].startswith("ENDED"):
                self.assertEqual(status, 0, verdict["sentence"])
                ended += 1
        self.assertGreater(ended, 0)

    def test_hang_that_goes_on_between_two_looks(self):
        hung, _ = self.pages("host stuck")
        well, _ = self.pages("healthy")

        def change(index):
            asked = []

            def answer(handler):
                asked.append(1)
                reply(handler, hung[index] if len(asked) == 1 else well[index % len(well)])
            return answer
        status, verdict = self.diagnose([self.endpoint(change(i)) for i in range(len(hung))])
        self.assertEqual(status, 0, verdict["sentence"])
        self.assertGreater(verdict["went_on"], 0)


    def test_what_is_a_hang_on_an_endpoint_already_is_said(self):
        pages, _ = self.pages("host stuck")
        endpoints = [self.serve(page) for page in pages]
        status, verdict = self.diagnose(endpoints, "--hang-after=10m")
        self.assertEqual((status, verdict["finding"], verdict["roots"]), (0, "none", []))
        self.assertRegex(verdict["notes"][0],
                         r"^\d+ communicators have made no progress for up to \d+ s\. This command reports a "
                         r"hang after 10 min \(--hang-after\), its endpoints sooner\. Run it again\.$")
        _, verdict = self.diagnose(endpoints)
        self.assertNotIn("Run it again", "".join(verdict["notes"]))

    def test_straggler_for_whom_one_look_knows_too_few_calls(self):
        looks = [self.pages("straggler at the GPU, many layers", seed=65, later=i) for i in range(5)]

        def goes_on(index):
            asked = []

            def answer(handler):
                asked.append(1)
                pages, _ = looks[min(len(asked), len(looks)) - 1]
                reply(handler, pages[index])
            return answer
        endpoints = [self.endpoint(goes_on(i)) for i in range(len(looks[0][0]))]
        _, verdict = self.diagnose(endpoints)
        self.assertGreater(verdict["looks"], 1)
        named = [rank["process"]["global_rank"] for each in verdict["stragglers"] for rank in each["ranks"]]
        self.assertEqual(named, [str(rank) for rank in looks[0][1]])
        host = verdict["stragglers"][0]["ranks"][0]["process"]["hostname"]
        first = "nvidia-smi -q -d PERFORMANCE (throttled?) and top (other load?) on %s" % host
        self.assertEqual(verdict["stragglers"][0]["first"], first)
        self.assertRegex(verdict["sentence"], r"^SLOW  global rank %d on %s \(GPU \d+, pid \d+\) arrives last at .* Next: %s\. No hang is suspected" % (
            looks[0][1][0], host, re.escape(first)))

    def test_one_look_is_enough_where_nobody_is_late(self):
        pages, _ = self.pages("healthy")
        _, verdict = self.diagnose([self.serve(page) for page in pages])
        self.assertEqual(verdict["looks"], 1)

    def test_ranks_that_no_endpoint_knows_are_no_all_clear(self):
        pages, _ = self.pages("healthy")
        self.assertGreater(len(pages), 1)
        status, verdict = self.diagnose([self.serve(pages[0])])
        self.assertEqual((status, verdict["finding"], verdict["roots"]), (4, "incomplete", []))
        self.assertRegex(verdict["sentence"], r"^INCOMPLETE .* At least \d+ ranks? (is|are) not known "
                                              r"to any endpoint that answered\.$")

    def test_who_is_not_heard_has_not_gone_on(self):
        pages, _ = self.pages("host stuck")

        def once():
            asked = []

            def answer(index, handler):
                asked.append(1)
                is_first = len(asked) <= len(pages)
                reply(handler, pages[index] if is_first else b"", 200 if is_first else 500)
            return answer
        answer = once()
        status, text, _ = self.run_pulse(*[
            "--endpoint=" + self.endpoint(lambda handler, i=i: answer(i, handler)).name
            for i in range(len(pages))])
        self.assertEqual(status, 2, text)
        self.assertNotIn("went on", text)


class BadAnswersTest(DiagnoseCase):
    """Each beside an endpoint that is well: it is named, with the reason, and there is no all-clear."""

    def expect(self, bad, reason, *arguments, status=4, well=None):
        page, _ = self.pages("healthy")
        well = well or self.serve(page[0])
        got, verdict = self.diagnose([well, bad], *arguments)
        self.assertEqual(got, status)
        self.assertEqual(verdict["finding"], "incomplete")
        self.assertEqual(verdict["endpoints"]["heard"], 1)
        unheard = {name: each["why"] for each in verdict["endpoints"]["unheard"] for name in each["endpoints"]}
        self.assertIn(reason, unheard[bad.name])
        self.assertIn("1 of 2 endpoints did not answer", verdict["sentence"])
        return unheard[bad.name]

    def test_refused(self):
        gone = self.serve(b"")
        gone.shutdown()
        gone.server_close()
        self.expect(gone, "Connection refused")

    def test_silent(self):
        event = threading.Event()
        self.addCleanup(event.set)
        self.expect(self.endpoint(lambda handler: event.wait(60)), "does not answer in time", "--timeout=2s")

    def test_half_an_answer(self):
        def half(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            handler.wfile.write(b"x" * 10)
        self.expect(self.endpoint(half), "ended too early")

    def test_huge_answer(self):
        def huge(handler):
            handler.send_response(200)
            handler.end_headers()
            for _ in range(64):
                handler.wfile.write(b"x" * MIB)
        self.expect(self.endpoint(huge), "larger than 8 MiB")

    def test_packed_huge_answer(self):
        page = subprocess.run(["gzip", "-c"], input=bytes(100 * MIB), stdout=subprocess.PIPE, check=True).stdout
        self.expect(self.serve(page, Content_Encoding="gzip"), "more than 48 MiB")

    def test_garbage(self):
        self.expect(self.serve(b"<html>hello</html>"), "something else than NCCL Pulse's snapshots")

    def test_not_http(self):
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)

        def speak():
            client, _ = server.accept()
            client.recv(1000)
            client.sendall(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
            client.close()
        speaker = threading.Thread(target=speak, daemon=True)
        speaker.start()
        self.addCleanup(speaker.join)
        bad = type("Bad", (), {"scheme": "http", "name": "127.0.0.1:%d" % server.getsockname()[1]})
        self.expect(bad, "not HTTP")

    def test_other_version(self):
        # Field 1, the mark; field 2, version 9.
        self.expect(self.serve(b"\x08\xd0\x98\xcd\xaa\x04\x10\x09"), "version 9 of the snapshots; this program knows 1")

    def test_older_program(self):
        self.expect(self.endpoint(lambda handler: reply(handler, b"", 404)), "an older version")

    def test_stale(self):
        page, _ = self.pages("healthy")
        self.expect(self.serve(page[0], Age="30"), "older than 3 s")

    def test_no_processor_time(self):
        self.expect(self.endpoint(lambda handler: reply(handler, b"", 503, [("Retry-After", "40")])), "503")

    def test_expired_certificate(self):
        bad = self.endpoint(lambda handler: reply(handler, b""), os.path.join(self.folder, "expired"))
        self.expect(bad, "certificate has expired", "--ca-cert=%s/ca.pem" % self.folder)

    def test_certificate_of_another_authority(self):
        bad = self.endpoint(lambda handler: reply(handler, b""), os.path.join(self.folder, "server"))
        self.expect(bad, "its certificate is not trusted", "--ca-cert=%s/other_ca.pem" % self.folder)

    def test_tls_against_plain(self):
        bad = self.serve(b"")
        bad.scheme = "https"
        self.expect(bad, "TLS", "--insecure")


class CredentialsTest(DiagnoseCase):

    def file(self, text):
        path = os.path.join(tempfile.mkdtemp(dir=self.folder), "credentials")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def guarded(self, wanted):
        page, _ = self.pages("healthy")

        def answer(handler):
            right = handler.headers["Authorization"] == wanted
            reply(handler, page[0] if right else b"", 200 if right else 401)
        return self.endpoint(answer, os.path.join(self.folder, "server"))

    def test_password_over_tls(self):
        endpoint = self.guarded("Basic " + base64.b64encode(b"ann:abc").decode())
        trust = "--ca-cert=%s/ca.pem" % self.folder
        status, verdict = self.diagnose([endpoint], trust, "--credentials-file=" + self.file("ann:abc\n"))
        self.assertEqual(verdict["endpoints"]["heard"], 1, verdict)
        self.assertNotEqual(status, 2)
        status, verdict = self.diagnose([endpoint], trust, "--credentials-file=" + self.file("ann:x"))
        self.assertEqual(status, 2)
        self.assertIn("does not accept these credentials (401)", verdict["endpoints"]["unheard"][0]["why"])

    def test_token(self):
        endpoint = self.guarded("Bearer abc.def")
        status, verdict = self.diagnose([endpoint], "--insecure", "--bearer-file=" + self.file("abc.def\n"))
        self.assertEqual(verdict["endpoints"]["heard"], 1, verdict)
        self.assertNotEqual(status, 2)

    def test_own_certificate(self):
        page, _ = self.pages("healthy")
        certificate = os.path.join(self.folder, "server")
        endpoint = self.endpoint(lambda handler: reply(handler, page[0]), certificate,
                                 os.path.join(self.folder, "ca.pem"))
        trust = "--ca-cert=%s/ca.pem" % self.folder
        own = ["--cert=%s/client.pem" % self.folder, "--key=%s/client.key" % self.folder]
        _, text, _ = self.run_pulse("--endpoint=" + endpoint.name, trust, *own)
        self.assertIn("1 of 1 endpoints answered", text)
        _, text, _ = self.run_pulse("--endpoint=" + endpoint.name, trust)
        self.assertRegex(text, r"^UNKNOWN  No endpoint answered\.\n\n  NO ANSWER  1: .+\n$")
        _, text, _ = self.run_pulse("--endpoint=" + endpoint.name, trust, *own, "--server-name=elsewhere")
        self.assertIn("its certificate is not trusted", text)
        status, _, err = self.run_pulse("--endpoint=" + endpoint.name, trust, own[0])
        self.assertEqual((status, "belong together" in err), (1, True), err)

    def test_authorities_mean_tls(self):
        endpoint = self.guarded("Basic " + base64.b64encode(b"ann:abc").decode())
        for trust in ("--insecure", "--ca-cert=%s/ca.pem" % self.folder):
            _, text, _ = self.run_pulse("--endpoint=" + endpoint.name, trust,
                                        "--credentials-file=" + self.file("ann:abc\n"))
            self.assertIn("1 of 1 endpoints answered", text)

    def test_credentials_file(self):
        for text, reason in (("ann", "user:password"), ("a:b\nc", "more than one line")):
            status, _, err = self.run_pulse("--endpoint=x:1", "--credentials-file=" + self.file(text))
            self.assertEqual(status, 1)
            self.assertIn(reason, err)


class SourcesTest(DiagnoseCase):

    def test_this_host_where_no_address_is_given(self):
        (page, *_), _ = self.pages("healthy")
        pages = {"/healthz": b"ok\n", "/api/v1/snapshots": page}

        def answer(handler):
            body = pages.get(handler.path.split("?")[0])
            reply(handler, body or b"", 200 if body else 404)
        for port in range(9417, 9409, -1):
            try:
                self.endpoint(answer, port=port)
                break
            except OSError:
                continue  # somebody else's
        else:
            self.skipTest("all eight ports are taken")
        _, out, err = self.run_pulse("--ras=off")
        said = out.strip().splitlines()[-1]
        self.assertTrue(said.startswith("Only this host was asked: localhost:"), out + err)
        self.assertIn("localhost:%d" % port, said)
        self.assertIn("For other nodes: pulse diagnose NODE ...", said)
        _, out, err = self.run_pulse("--ras=off", "--json")
        self.assertGreater(json.loads(out)["processes"], 0)
        self.assertIn("Only this host was asked", err)
        _, out, err = self.run_pulse("--ras=off", "--endpoint=127.0.0.1:%d" % port)
        self.assertNotIn("Only this host", out + err)

    def test_nobody_answers(self):
        gone = self.serve(b"")
        gone.shutdown()
        gone.server_close()
        status, out, _ = self.run_pulse("--endpoint=" + gone.name)
        self.assertEqual(status, 2)
        self.assertIn("No endpoint answered", out)
        self.assertIn("Connection refused", out)

    def test_port_is_that_of_exporters(self):
        _, out, _ = self.run_pulse("--endpoint=host.invalid", "--endpoint=http://other.invalid")
        self.assertIn("host.invalid:9410, other.invalid:80", out)

    def test_unknown_name(self):
        status, out, _ = self.run_pulse("--endpoint=host.invalid:9410")
        self.assertEqual(status, 2)
        self.assertIn("host.invalid:9410", out)

    def test_targets_file(self):
        pages, culprits = self.pages("process gone")
        endpoints = [self.serve(page) for page in pages]
        path = os.path.join(self.folder, "targets.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump([{"targets": [each.name for each in endpoints]}], file)
        status, out, err = self.run_pulse("--targets=" + path)
        self.assertEqual(status, 3, out + err)
        self.assertIn("HANG  global rank %d on" % culprits[0], out)
        self.assertRegex(out, r"ended at \d\d:\d\d:\d\d UTC without finalizing its communicators")

    def test_prometheus(self):
        pages, culprits = self.pages("GPU stuck")
        endpoints = [self.serve(page) for page in pages]
        queries = []

        def prometheus(handler):
            url = urllib.parse.urlparse(handler.path)
            if url.path == "/api/v1/query":
                queries.append(urllib.parse.parse_qs(url.query)["query"][0])
                # Two targets have one instance: relabelling gave both the node's name.
                result = [{"metric": {"job": "nccl", "instance": "i%d" % i}, "value": [0, "1"]}
                          for i in range((len(endpoints) + 1) // 2)]
                reply(handler, json.dumps(
                    {"status": "success", "data": {"resultType": "vector", "result": result}}).encode())
            elif url.path == "/api/v1/targets":
                targets = [{"labels": {"job": "nccl", "instance": "i%d" % (i // 2)},
                            "scrapeUrl": "http://%s/metrics" % each.name}
                           for i, each in enumerate(endpoints)]
                reply(handler, json.dumps({"status": "success", "data": {"activeTargets": targets}}).encode())
            else:
                reply(handler, b"", 404)
        server = "--prometheus=http://" + self.endpoint(prometheus).name
        comm = json.loads(self.run_pulse(server, "--job-id=4711", "--json")[1])["roots"][0]["communicators"][0]
        self.assertIn('nccl_communicator_info{job_id="4711"}', queries[0])
        for flag in ("--job-id=4711", "--comm=" + comm):
            status, out, err = self.run_pulse(server, flag)
            self.assertEqual(status, 3, out + err)
            self.assertIn("global rank %d on" % culprits[0], out.split("\n")[0])
            self.assertIn("%d of %d endpoints answered" % (len(pages), len(pages)), out)

    def test_question_to_prometheus(self):
        """All endpoints of the jobs that share communicators, by a job or by a communicator."""
        comm = "00000000000000c1"
        of = {"a0": ("A", comm), "b0": ("B", comm), "b1": ("B", "00000000000000c2"), "c0": ("C", "00000000000000c3"),
              "d0": ("", "00000000000000c4")}
        queries = []

        def prometheus(handler):
            queries.extend(urllib.parse.parse_qs(urllib.parse.urlparse(handler.path).query).get("query", []))
            reply(handler, b'{"status":"success","data":{"result":[]}}')
        server = "--prometheus=http://" + self.endpoint(prometheus).name
        tests = []
        for flag, expected in (("--job-id=A", ("a0", "b0", "b1")), ("--comm=" + comm, ("a0", "b0", "b1")),
                               ("--comm=00000000000000c4", ("d0",))):
            first = len(queries)
            self.run_pulse(server, flag)
            tests.append({"expr": queries[first], "eval_time": "1m", "exp_samples": [
                {"labels": '{instance="%s", %s}' % (each, 'job_id="%s"' % of[each][0] if of[each][0] else ""), "value": 1}
                for each in expected]})
        series = [{"series": 'nccl_communicator_info{instance="%s", job_id="%s", comm="%s"}' % (instance, *job),
                   "values": "1 1"} for instance, job in of.items()]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=self.folder) as file:
            json.dump({"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": tests}]}, file)
            file.flush()
            checked = subprocess.run(["promtool", "test", "rules", file.name], text=True, capture_output=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_bad_prometheus(self):
        def says(body, status=200):
            return self.endpoint(lambda handler: reply(handler, body, status))
        for server, reason in (
                (says(b"<html>"), "not as Prometheus does"),
                (says(b"no org id\n", 401), "it asks for a password or a token (401): no org id"),
                (says(b'{"status":"error","error":"parse error"}', 400), "parse error"),
                (says(b'{"status":"success"}'), "no result"),
                (says(b'{"status":5}'), "refuses the query"),
                (says(b'{"status":"success","data":{"result":[7]}}'), "no label instance"),
                (says(b'{"status":"success","data":{"result":[{"metric":{"instance":"i","job":5}}],'
                      b'"activeTargets":[{"labels":{"job":5},"scrapeUrl":"http://x"}]}}'),
                 "No endpoint answered"),
                (says(b'{"status":"error","error":"\\u001b[2J"}', 400), "?[2J"),
                (says(b'{"status":"success","data":{"result":[]}}'), "has no series")):
            status, out, err = self.run_pulse("--prometheus=http://" + server.name)
            self.assertEqual(status, 2, err)
            self.assertIn(reason, out + err)
            if not out:
                self.assertIn(server.name, err)


if __name__ == "__main__":
    running.main(at_once=3)
