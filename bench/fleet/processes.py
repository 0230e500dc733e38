"""The processes of a simulation: the endpoints of a made-up job, a Prometheus, and a store that takes
what it writes. Each is a context; nothing is left behind."""

import ctypes
import http.client
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request

from bench.fleet.files import ENDPOINTS

# For what is broken to end; a slow machine is no failure.
PATIENCE_S = 180


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _end_with_parent():
    """In a child: whatever ends the simulation ends this, too."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def cpu_s(pid):
    """Processor time that a process has taken so far."""
    with open("/proc/%d/stat" % pid, encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fine_cpu_s(pid):
    """The same, to the nanosecond, of the threads that there are."""
    total = 0
    for thread in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/schedstat" % (pid, thread), encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def resident_bytes(pid):
    with open("/proc/%d/statm" % pid, encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Endpoints:
    """bench/fleet/endpoints. addresses: {host: address}"""

    def __init__(self, nodes, gpus_per_node, communicators, life_s, sharded=False):
        self.arguments = ["--nodes=%d" % nodes, "--gpus_per_node=%d" % gpus_per_node,
                          "--communicators=%d" % communicators, "--life=%ds" % life_s,
                          "--sharded=%s" % str(sharded).lower()]

    def __enter__(self):
        self.process = subprocess.Popen([ENDPOINTS, *self.arguments], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addresses = {}
        for line in self.process.stdout:
            word, *rest = line.split()
            if word == "ready":
                return self
            self.addresses[rest[0]] = rest[1]
        self.__exit__()
        raise RuntimeError("the endpoints do not start")

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def _ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def cpu_s(self):
        """Of the servers; without what stands for the job."""
        return float(self._ask("cpu")[1])

    def page(self, host, accept, encoding):
        connection = http.client.HTTPConnection(self.addresses[host], timeout=PATIENCE_S)
        try:
            connection.request("GET", "/metrics",
                               headers={"Accept": accept, "Accept-Encoding": encoding})
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if (response.status != 200 or
                response.getheader("Content-Encoding", "identity") != encoding or
                not response.getheader("Content-Type").startswith(accept.split(";")[0])):
            raise RuntimeError("%s does not serve %s: %s" % (host, accept, response.headers))
        return body


class Store:
    """Takes what is written to it, and forgets it."""

    def __enter__(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):  # pylint: disable=invalid-name
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d/api/v1/push" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Prometheus:
    """A real one. folder: for its data and its log."""

    def __init__(self, program, folder, configuration, flags=()):
        self.configuration = configuration
        self.data = os.path.join(folder, "data")
        self.log_path = os.path.join(folder, "log")
        self.url = "http://127.0.0.1:%d" % _free_port()
        self.command = [program, "--config.file=" + configuration,
                        "--storage.tsdb.path=" + self.data, "--web.enable-admin-api",
                        "--web.listen-address=" + urllib.parse.urlsplit(self.url).netloc,
                        "--log.level=warn", *flags]

    def __enter__(self):
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log,
                                            preexec_fn=_end_with_parent)
        try:
            self.wait_until(self._is_ready, "Prometheus is ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def wait_until(self, condition, what, patience_s=PATIENCE_S):
        deadline = time.monotonic() + patience_s
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("waited in vain until %s; Prometheus says:\n%s" %
                                   (what, self.log()[-2000:]))
            time.sleep(0.2)

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def reload(self, configuration):
        """Takes another configuration, a dictionary, and waits until it has."""
        with open(self.configuration, "w", encoding="utf-8") as file:
            json.dump(configuration, file)
        groups, targets = bool(configuration["rule_files"]), bool(configuration["scrape_configs"])
        self.process.send_signal(signal.SIGHUP)
        self.wait_until(lambda: (bool(self.rule_groups()), bool(self.targets())) == (groups, targets),
                        "its configuration is another one")

    def _is_ready(self):
        try:
            self._request("/-/ready")
            return True
        except OSError:
            return False

    def _request(self, path, **parameters):
        with urllib.request.urlopen(
                self.url + path, urllib.parse.urlencode(parameters).encode() or None,
                timeout=PATIENCE_S) as answer:
            return answer.read()

    def _api(self, path, **parameters):
        return json.loads(self._request("/api/v1/" + path, **parameters))["data"]

    def query(self, expression, **parameters):
        """{labels: value}, now; or at `time`."""
        return {frozenset(series["metric"].items()): float(series["value"][1])
                for series in self._api("query", query=expression, **parameters)["result"]}

    def names(self):
        """Of all that was ever stored."""
        return self._api("label/__name__/values")

    def targets(self):
        return self._api("targets")["activeTargets"]

    def rule_groups(self):
        return self._api("rules")["groups"]

    def snapshot(self):
        """Writes the head as a block; returns its folder."""
        name = json.loads(self._request("/api/v1/admin/tsdb/snapshot", skip_head="false"))
        folder = os.path.join(self.data, "snapshots", name["data"]["name"])
        (block,) = os.listdir(folder)
        return os.path.join(folder, block)

    def own_metrics(self):
        """{(name, labels as they stand there): value}"""
        text = self._request("/metrics").decode()
        return {(name, labels): float(value) for name, labels, value in
                re.findall(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE)}
