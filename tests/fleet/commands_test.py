"""What all commands that ask endpoints have in common: addresses, outputs, hostile answers, busy endpoints."""

import gzip
import json
import os
import re
import resource
import shlex
import signal
import socket
import subprocess
import time

from tests import running
from tests.fleet.diagnose_case import MIB, PULSE, DiagnoseCase, reply
from tests.kit import temporary_folder

LIVE = ["%016x" % each for each in (0xa1, 0xa2)]
ENDED = ["%016x" % each for each in range(0xe1, 0xe4)]
# Of a command on a workstation; a page of a large node is some MiB.
MOST_MEMORY = 1 << 30


# (exit status, command lines with | between, words of its errors, or of its output if it is right). {node}: an endpoint; {idle}: one
# without a job; {taken}: an address where somebody listens; {out}: a folder that exists; {new}: a file that doesn't; {secret} and {none}:
# files of a password and of no target.
USAGE = (
    (0, "", "pulse demo"),
    (0, "--version", "pulse "),
    (0, "--help", "trace"),
    (0, "help | help help", "usage: pulse COMMAND"),
    (0, "help trace", "--duration"),
    (0, "help connect", "--credentials-file=FILE"),
    (0, "demo --help", "Ctrl-C"),
    (0, "status --help", "usage: pulse status"),
    (1, "dance", "usage: pulse"),
    (1, "help dance", "usage: pulse"),
    (1, "stauts", 'did you mean "status"?'),
    (1, "hepl", 'did you mean "help"?'),
    (1, "settings x", "settings takes no argument"),
    (1, "demo x", "takes no argument"),
    (1, "install a b", "install takes one argument, the folder"),
    (2, "install /nowhere", "pulse: there is no folder /nowhere; create it"),
    (1, "status x y", "status takes one endpoint; `pulse diagnose` takes several"),
    (1, "status x --endpoint=y", "takes one endpoint"),
    (1, "status --interval=1ms", "--interval=1ms is not between 250ms and 1h"),
    (1, "status --interval=5", "--interval=5 has no unit: write --interval=5s"),
    (1, "status --interval 5", "write --interval=5s"),
    (1, "status --watch 5", "--watch takes no time: write --watch --interval=5s"),
    (1, "status --watch=5", "write --watch --interval=5s"),
    (1, "status --watch 500ms", "write --watch --interval=500ms"),
    (1, "status --watch 1024 x", "takes one endpoint"),  # a port
    (1, "status --color=red", "--color=red"),
    (1, "status --interval=soon", "--interval=soon: not a duration such as 5s"),
    (1, "status --json=maybe", "--json=maybe: it takes no value, or true or false"),
    (1, "status --all --endpoint", "--endpoint needs a value"),
    (1, "status --endpoint=", "--endpoint= has no address: write --endpoint=HOST:PORT"),
    (1, "status --endpont=x", "did you mean --endpoint?"),
    (1, "diagnose --job=5", "did you mean --job-id?"),
    (1, "capture --output=x", "did you mean --out?"),
    (1, "diagnose --hosts=a,b", "write the hosts behind the command, without a flag"),
    (1, "status --web-config=x", "--web-config is not a flag of `pulse status`"),
    (1, "status -w", "pulse: -w is not a flag of `pulse status`\npulse: `pulse help status` lists the flags\n"),
    (1, "status a:b:c", '"a:b:c": write an IPv6 address in brackets'),
    (1, "status host:99999", "the port is not between 1 and 65535: write HOST:PORT"),
    (1, "status --credentials-file=x --bearer-file=y", "a password or a token for the endpoints, not both"),
    (1, "status --timeout=1h", "--timeout=1h is not between 100ms and 5m"),
    (1, "status --cert=x localhost:1", "--cert and --key belong together"),
    (1, "status --ca-cert=/nowhere", "--ca-cert=/nowhere"),
    (1, "status --calls-of=12", "--calls-of"),
    (1, "status --calls --json | status --calls --watch", "--calls"),
    (2, "status nowhere.invalid", "no answer from nowhere.invalid:9410"),
    (1, "diagnose ftp://x | diagnose --endpoint=ftp://x", "neither http nor https"),
    (1, "diagnose x:1 --comm=12", "16 hexadecimal digits"),
    (1, "diagnose --targets={none}", "it names no target"),
    (1, "diagnose --targets=/nope", "cannot read /nope: No such file or directory"),
    (1, "diagnose x:1 --timeout=1ms", "--timeout"),
    (1, "diagnose x:1 --ca-cert=/nowhere", "/nowhere"),
    (1, "diagnose x:1 --ras=http://x/y | diagnose x:1 --ras=x:y", "host:port"),
    (2, "diagnose 127.0.0.1:1 --ras=", ""),
    (2, "diagnose --flight-recorder=/nowhere", "no file or folder begins with /nowhere"),
    (2, "diagnose --prometheus=http://{idle}", "; other ways: `pulse help connect`"),
    (5, "capture {node} --out={out}", "exists already, and is kept; choose another --out"),
    (5, "capture {node} --out=/nowhere/x", "there is no folder /nowhere; create it"),
    (1, "capture --format=pdf", "must be bundle or flight-recorder"),
    (1, "capture --stack-command=py-spy", "--stack-command needs {pid}"),
    (1, "capture here.tar.gz", "here.tar.gz is not an address; a file to write goes to --out, addresses to --targets"),
    (1, "capture 127.0.0.1:1 ./here", "./here is not an address"),
    (1, "capture targets.json", "targets.json is not an address"),
    (1, "capture --credentials-file={secret}", "need the endpoints' addresses"),
    (1, "capture --time-limit=10ms", "--time-limit"),
    (1, "capture --hang-after=500ms", "--hang-after"),
    (1, "capture --stack-timeout=1h", "--stack-timeout"),
    (2, "capture 127.0.0.1:1 --endpoint=127.0.0.1:2", "no endpoint answers; nothing is written"),
    (1, "trace job.tar.gz", "goes to --out, a capture to --from"),
    (1, "trace --duration=0s | trace --duration=-1s | trace --duration=601s", "between 100ms and 10m"),
    (1, "trace --duration=2", "--duration=2 has no unit: write --duration=2s"),
    (1, "trace --seconds=2 | trace --for=2s", "; did you mean --duration?"),
    (1, "set LOG_LEVEL=info --seconds=5 | set LOG_LEVEL=info --duration=5s", "; did you mean --for?"),
    (1, "trace --every=x", "--every=x: not a whole number"),
    (1, "trace --every=-1 | trace --every=16777217", "is not between 1 and 16777216"),
    (1, "trace --every=1 --from=/nowhere", "--every needs "),
    (1, "trace --from=x --dns=localhost | trace --from=x --endpoint=localhost | trace --from=x localhost", "not both"),
    (5, "trace {node} --out={secret}", "exists already, and is kept; choose another --out"),
    (4, "trace {idle} --duration=100ms --out={new}", "no call was seen; does `pulse status` show the job?"),
    (1, "watch", "no endpoint is given: use --prometheus"),
    (1, "watch x:1 --hang-after=100ms", "1s and 1h"),
    (1, "watch --targets=/nothing", "cannot read"),
    (1, "watch x:1 --on-hang=sh", "not an absolute path"),
    (1, "watch x:1 --on-hang=/no/such", "No such file"),
    (1, "watch x:1 --on-hang=/etc/passwd | watch x:1 --on-hang=/tmp", "not an executable file"),
    (1, "watch x:1 --on-hang-pause=0", "--on-hang-pause=0 is not between"),
    (2, "watch x:1 --listen={taken}", "cannot serve on {taken}: Address already in use; `ss -lnp` names the program"),
    (2, "watch x:1 --listen=nowhere", "nowhere"),
    (2, "agent --listen={taken}", "; `ss -lnp` names the program"),
    (1, "agent --listen=9601", "--listen: '9601' is not an address to listen on"),
    (1, "agent --keep=-1s", "--keep=-1s is not between 0 and 8760h"),
    (1, "agent --keep_processes=-1 | agent --keep-processes=-1", "--keep-proc"),
    (1, "agent --file_sd_dir=x", "--file-sd-dir is no"),
    (1, "agent --histograms=x", "--histograms=x: must be both"),
    (1, "agent --drop-families=nccl_x", "no metric family nccl_x"),
    (1, "agent --web-config=/x", "web configuration /x: No such file"),
    (1, "set", "set needs NAME=VALUE; `pulse help set` lists the names"),
    (1, "set HANG_SECONDS", "no NAME=VALUE"),
    (1, "set LABELS=a=b", "cannot be set while a job runs; `pulse help set` lists the names"),
    (1, "set TIMED_LAUNCHES_PER_SECOND=0", "a number from 1 to 1000000"),
    (1, "set HANG_SECOND=5", 'did you mean HANG_SECONDS? "HANG_SECOND" cannot be set'),
    (1, "set nccl_pulse_hang_secnds=5", "did you mean NCCL_PULSE_HANG_SECONDS? "),
    (1, "set LOG_LEVL", "did you mean LOG_LEVEL? "),
    (1, "set HANG_SECONDS=ten", "a number from 1 to 86400"),
    (1, "set NETWORK_WINDOW=nan", "0.01 to 100"),
    (1, "set LOG_LEVEL=loud", "off, warn or info"),
    (1, "set HANG_SECONDS=5 hang_seconds=6", "is given twice"),
    (1, "set HANG_SECONDS=5 --for=50ms | set HANG_SECONDS=5 --for=1000h", "--for"),
    (1, "set HANG_SECONDS=5 --pid=me", "--pid=me"),
)


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
        self.out = os.path.join(temporary_folder(self), "out")

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

    def test_usage(self):
        os.mkdir(self.out)
        names = {"out": self.out, "node": self.node()[1].name, "pid": "{pid}", "new": self.out + ".pftrace"}
        nobody = b'{"time":1,"health":{"status":"ok"},"communicators":[]}'
        empty = self.pages("healthy")[0][0]
        names["idle"] = self.endpoint(lambda handler: reply(
            handler, empty if handler.path.startswith("/api/v1/snapshots") else nobody)).name
        for name, text in (("secret", "user:password\n"), ("none", "[]")):
            names[name] = os.path.join(self.out, name + ".json")
            with open(names[name], "w", encoding="utf-8") as file:
                file.write(text)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            names["taken"] = "127.0.0.1:%d" % taken.getsockname()[1]
            for wanted, line, words in ((wanted, line, words) for wanted, lines, words in USAGE for line in lines.split(" | ")):
                with self.subTest(line):
                    status, output, errors = self.pulse(*shlex.split(line.format(**names)))
                    self.assertEqual(status, wanted, output + errors)
                    self.assertIn(words.format(**names), errors if wanted else output)
                    self.assertEqual(output if wanted == 1 else "", "")
                    self.assertLess(errors.count("\n"), 3 if "did you mean" in words else 25)
        self.assertEqual(sorted(os.listdir(self.out)), ["none.json", "secret.json"])
        self.assertEqual(sorted(os.listdir(os.path.dirname(self.out))), ["out", "out.pftrace"])

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
