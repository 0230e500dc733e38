"""What all commands that ask endpoints have in common: addresses, outputs, hostile answers, busy endpoints."""

import gzip
import json
import os
import re
import resource
import signal
import socket
import subprocess
import tempfile
import time

from tests import running
from tests.fleet.diagnose_case import MIB, PULSE, DiagnoseCase, reply

LIVE = ["%016x" % each for each in (0xa1, 0xa2)]
ENDED = ["%016x" % each for each in range(0xe1, 0xe4)]
# Of a command on a workstation; a page of a large node is some MiB.
MOST_MEMORY = 1 << 30


def communicators():
    return json.dumps({"time": time.time(), "health": {"status": "ok"}, "communicators": [
        {"comm": comm, "name": "dp", "nranks": 1, "hang": None, "straggler": None, "ranks": [
            {"rank": 0, "active": comm in LIVE, "process": {"state": "live", "pid": 1, "hostname": "node-1"}}]}
        for comm in ENDED + LIVE]}).encode()


def calls(comm):
    call = {"number": 1, "collective": 1, "op": "AllReduce", "datatype": "ncclFloat32", "bytes": 4, "group": 1,
            "stream": "1", "launched": time.time(), "state": "completed"}
    return json.dumps({"time": time.time(), "comm": comm, "name": "dp", "nranks": 1, "ranks": [
        {"rank": 0, "pid": 1, "hostname": "node-1", "calls": [call], "missing": None}]}).encode()


class Node:
    """An endpoint that refuses questions for calls as `refuses(comm, how often it was asked before)` says."""

    def __init__(self, snapshots, refuses):
        self.snapshots, self.refuses, self.asked = snapshots, refuses, []

    def __call__(self, handler):
        path = handler.path
        if path == "/api/v1/communicators":
            return reply(handler, communicators())
        if path == "/api/v1/snapshots":
            return reply(handler, self.snapshots)
        if path == "/api/v1/time":
            return reply(handler, json.dumps({"time": time.time()}).encode())
        if path == "/metrics":
            return reply(handler, b"up 1\n")
        comm = re.fullmatch("/api/v1/communicators/([0-9a-f]{16})/calls", path)[1]
        before = self.asked.count(comm)
        self.asked.append(comm)
        if self.refuses(comm, before):
            return reply(handler, b"busy\n", 503, [("Retry-After", "1")])
        return reply(handler, calls(comm))


class CommandsTest(DiagnoseCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "out")

    def start(self, *arguments, **options):
        return subprocess.Popen([PULSE, *arguments], text=True, **{
            "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})

    def pulse(self, *arguments, **options):
        """(exit status, output, errors)"""
        process = self.start(*arguments, **options)
        self.addCleanup(process.kill)
        output, errors = process.communicate(timeout=120)
        return process.returncode, output, errors

    def node(self, refuses=lambda comm, before: False):
        node = Node(self.pages("healthy")[0][0], refuses)
        return node, self.endpoint(node)

    def saved(self):
        folder = os.path.join(self.out, "endpoints")
        return sorted(name[:-5] for endpoint in os.listdir(folder)
                      for name in os.listdir(os.path.join(folder, endpoint, "calls")))

    def test_a_capture_asks_for_live_ranks_until_they_are_there(self):
        node, endpoint = self.node(lambda comm, before: before < (2 if comm in LIVE else 99))
        status, output, errors = self.pulse("capture", endpoint.name, "--ras=off", "--out=" + self.out)
        self.assertEqual(status, 0, output + errors)
        self.assertEqual(self.saved(), LIVE)
        self.assertIn("endpoints are busy: waiting for the calls of live ranks", errors)
        self.assertEqual(node.asked[:6], [LIVE[0]] * 3 + [LIVE[1]] * 3)
        # Once refused, ended ones cost no more time.
        self.assertEqual(node.asked[6:], ENDED[:1])

    def test_a_capture_of_an_endpoint_with_time(self):
        node, endpoint = self.node()
        status, output, errors = self.pulse("capture", endpoint.name, "--ras=off", "--out=" + self.out)
        self.assertEqual((status, errors), (0, ""), output)
        self.assertEqual(node.asked, LIVE + ENDED)
        self.assertEqual(self.saved(), LIVE + ENDED)

    def test_ctrl_c_writes_what_is_there(self):
        node, endpoint = self.node(lambda comm, before: comm != LIVE[0])
        process = self.start("capture", endpoint.name, "--ras=off", "--out=" + self.out)
        self.addCleanup(process.kill)
        while LIVE[1] not in node.asked:
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 4, errors)
        self.assertIn("INCOMPLETE: calls of 1 live rank are missing\n", errors)
        self.assertEqual(self.saved(), LIVE[:1], output)

    def test_a_trace_does_not_read_what_had_ended_before(self):
        node, endpoint = self.node(lambda comm, before: before < 2)
        status, output, errors = self.pulse("trace", endpoint.name, "--duration=100ms", "--out=" + self.out)
        self.assertEqual(status, 0, output + errors)
        self.assertEqual(set(node.asked), set(LIVE))
        self.assertIn("Reading the calls of", output)

    def commands(self, address):
        return {"status": ["status", address], "status --json": ["status", "--json", address],
                "diagnose": ["diagnose", address, "--ras=off"],
                "capture": ["capture", address, "--ras=off", "--out=" + self.out],
                "trace": ["trace", address, "--duration=100ms", "--out=" + self.out]}

    def remove_out(self):
        subprocess.run(["rm", "-rf", self.out], check=True)

    def test_the_address_in_a_log(self):
        _, endpoint = self.node()
        for address in ("http://%s/metrics" % endpoint.name, "http://%s/" % endpoint.name, endpoint.name + "/metrics",
                        "http://%s/api/v1/communicators?x=1#y" % endpoint.name):
            for name, arguments in self.commands(address).items():
                self.remove_out()
                status, _, errors = self.pulse(*arguments)
                self.assertIn(status, (0, 4), "%s %s: %s" % (name, address, errors))

    def test_an_address_where_nobody_is(self):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        for name, arguments in self.commands("127.0.0.1:%d" % port).items():
            status, _, errors = self.pulse(*arguments)
            self.assertEqual(status, 2, name)
            self.assertIn("Next: give the address in the job's log (NCCL_DEBUG=INFO", errors)
            self.assertIn("check NCCL_PROFILER_PLUGIN", errors)

    def test_a_job_that_nobody_knows(self):
        pages, _ = self.pages("healthy")
        _, output, _ = self.pulse("diagnose", self.serve(pages[0]).name, "--ras=off", "--job-id=abc")
        self.assertIn("No process of this job is known to the endpoints. Known jobs: 4711.", output)

    def test_an_output_that_cannot_be_written(self):
        _, endpoint = self.node()
        with open("/dev/full", "w", encoding="utf-8") as full:
            for name, arguments in {**self.commands(endpoint.name), "help": ["help"], "settings": ["settings"],
                                    "diagnose --json": ["diagnose", "--json", "--ras=off", endpoint.name]}.items():
                self.remove_out()
                status, _, errors = self.pulse(*arguments, stdout=full)
                if name == "settings" and status == 2:
                    continue  # nobody to ask
                self.assertEqual(status, 5, name)
                self.assertIn("pulse: cannot write to standard output", errors)
        status, _, errors = self.pulse("diagnose", endpoint.name, "--ras=off", stdout=None, preexec_fn=lambda: os.close(1))
        self.assertEqual(status, 5, errors)

    def test_a_header_for_a_prometheus(self):
        asked = []

        def mimir(handler):
            asked.append(handler.headers.get("X-Scope-OrgID"))
            if asked[-1] != "team-a":
                return reply(handler, b"no org id\n", 401)
            return reply(handler, b'{"status":"success","data":{"resultType":"vector","result":[]}}')
        url = "--prometheus=http://%s/prometheus" % self.endpoint(mimir).name
        self.assertIn("it asks for a password or a token (401): no org id", self.pulse("diagnose", url)[2])
        errors = self.pulse("diagnose", url, "--prometheus-header=X-Scope-OrgID: team-a")[2]
        self.assertIn("it has no series nccl_communicator_info", errors)
        for bad in ("team-a", "X-A: b\nX-C: d", ": x", "X A: b"):
            status, _, errors = self.pulse("diagnose", url, "--prometheus-header=" + bad)
            self.assertEqual(status, 1, errors)
            self.assertIn("--prometheus-header is not NAME: VALUE", errors)

    def test_targets(self):
        self.assertIn("cannot read /nope: No such file or directory", self.pulse("diagnose", "--targets=/nope")[2])

    # Every byte may come from anybody.

    def hostile(self, body, status=200, headers=()):
        return self.endpoint(lambda handler: reply(handler, body, status, headers)).name

    def test_answers_that_nest_too_deep(self):
        deep = b'{"time":1,"health":{"status":"ok"},"communicators":[],"x":' + b"[" * 4_000_000 + b"]" * 4_000_000 + b"}"
        address = self.hostile(deep)
        for name, arguments in {**self.commands(address), "http-sd": ["diagnose", "--http-sd=http://" + address],
                                "prometheus": ["diagnose", "--prometheus=http://" + address]}.items():
            status, _, errors = self.pulse(*arguments)
            self.assertIn(status, (2, 4), "%s: %s" % (name, errors[:1000]))

    def test_calls_that_nest_too_deep_cost_a_capture_no_more_than_these_calls(self):
        node, _ = self.node()

        def answer(handler):
            if handler.path.endswith(LIVE[0] + "/calls"):
                page = json.loads(calls(LIVE[0]))
                page["ranks"][0]["hostname"] = "@"
                return reply(handler, json.dumps(page).encode().replace(b'"@"', b"[" * 200_000 + b"]" * 200_000))
            return node(handler)
        for form in ("bundle", "flight-recorder"):
            self.remove_out()
            status, output, errors = self.pulse("capture", self.endpoint(answer).name, "--ras=off", "--out=" + self.out,
                                                "--format=" + form)
            self.assertEqual(status, 4, output + errors)
            self.assertIn("calls of 1 live rank are missing", errors)
        self.remove_out()
        self.pulse("capture", self.endpoint(answer).name, "--ras=off", "--out=" + self.out)
        self.assertEqual(self.saved(), [LIVE[1]] + ENDED)

    def test_small_answers_with_very_many_values(self):
        start = b'{"time":1,"health":{"status":"ok"},"communicators":['
        for value, count in ((b"{},", 15_000_000), (b"1,", 23_000_000), (b"[0],", 11_000_000)):
            body = gzip.compress(start + value * count + b"0]}", 1)
            address = self.hostile(body, headers=[("Content-Encoding", "gzip")])
            for name, arguments in self.commands(address).items():
                process = self.start(*arguments, preexec_fn=lambda: resource.setrlimit(
                    resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY)))
                self.addCleanup(process.kill)
                _, errors = process.communicate(timeout=120)
                self.assertIn(process.returncode, (2, 4), "%s: %s" % (name, errors[-1000:]))

    def test_an_error_with_a_long_body_that_steers_a_terminal(self):
        body = gzip.compress(b"\x1b]0;PWNED\x07\x1b[2J" + b"A" * (40 * MIB), 9)
        address = self.hostile(body, 500, [("Content-Encoding", "gzip")])
        for name, arguments in self.commands(address).items():
            status, output, errors = self.pulse(*arguments)
            self.assertEqual(status, 2, name)
            self.assertNotIn("\x1b", output + errors)
            self.assertLess(len(output + errors), 4096, name)


if __name__ == "__main__":
    running.main(at_once=4)
