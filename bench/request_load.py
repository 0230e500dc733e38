"""The share of a core that a job's server costs while somebody asks it for everything.

  ./bazelw run //bench:request_load [-- --rate=100 --seconds=30 --histograms=2000]

One process of a job serves a page with so many histograms, made by peers; clients ask for each kind of page so many times
a second, compressed or not. Printed: what the server's thread used of one core, by the kernel's accounts, how many requests
were answered, and how old the pages were.
"""

import argparse
import http.client
import os
import subprocess
import threading
import time

from tests.node import cluster

PROTOBUF = ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
            "encoding=delimited")
KINDS = (("text", "/metrics", "text/plain"),
         ("OpenMetrics", "/metrics", "application/openmetrics-text"),
         ("protobuf", "/metrics", PROTOBUF), ("JSON", "/api/v1/communicators", "*/*"))
CLIENTS = 4  # of each kind


def cpu_seconds(pid):
    for task in os.listdir("/proc/%d/task" % pid):
        folder = "/proc/%d/task/%s/" % (pid, task)
        with open(folder + "comm", encoding="ascii") as name:
            if name.read().strip() != "pulse-http":
                continue
        with open(folder + "schedstat", encoding="ascii") as stat:
            return int(stat.read().split()[0]) / 1e9
    raise SystemExit("the process has no server's thread")


class Client(threading.Thread):

    def __init__(self, port, path, accept, encoding, pause_s, stopping):
        super().__init__(daemon=True)
        self.port, self.path, self.pause_s, self.stopping = port, path, pause_s, stopping
        self.headers = {"Accept": accept, "Accept-Encoding": encoding}
        self.answered = self.failed = self.oldest_s = 0

    def run(self):
        while not self.stopping.wait(self.pause_s):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            try:
                connection.request("GET", self.path, headers=self.headers)
                response = connection.getresponse()
                response.read()
                self.answered += response.status == 200
                self.oldest_s = max(self.oldest_s, int(response.headers.get("Age", 0)))
            except (OSError, http.client.HTTPException):
                self.failed += 1
            finally:
                connection.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rate", type=int, default=100, help="requests a second of each kind")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--histograms", type=int, default=2000)
    parser.add_argument("--encoding", default="gzip")
    options = parser.parse_args()
    port = cluster.free_port()
    process = cluster.Process(0, "127.0.0.1:%d" % port, cwd=cluster.RUNFILES)
    process.ask("run 10")
    peers = []
    for _ in range(options.histograms // 500):
        peers.append(subprocess.Popen(
            [os.path.join(cluster.RUNFILES, "tests/node/hostile_peer"), str(port), "small", "500"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        peers[-1].stdout.readline()
    idle_start, idle_cpu = time.monotonic(), cpu_seconds(process.pid)
    time.sleep(3)
    idle = (cpu_seconds(process.pid) - idle_cpu) / (time.monotonic() - idle_start)
    stopping = threading.Event()
    clients = {name: [Client(port, path, accept, options.encoding, CLIENTS / options.rate, stopping)
                      for _ in range(CLIENTS)] for name, path, accept in KINDS}
    start, cpu_start = time.monotonic(), cpu_seconds(process.pid)
    for group in clients.values():
        for client in group:
            client.start()
    half = None
    while time.monotonic() - start < options.seconds:
        time.sleep(0.1)
        if half is None and time.monotonic() - start > options.seconds / 2:
            half = time.monotonic(), cpu_seconds(process.pid)
    end, cpu_end = time.monotonic(), cpu_seconds(process.pid)
    print("idle: %.2f %% of a core" % (100 * idle))
    print("asked: %.2f %% of a core over %d s, %.2f %% in the second half" % (
        100 * (cpu_end - cpu_start) / (end - start), options.seconds,
        100 * (cpu_end - half[1]) / (end - half[0])))
    for name, group in clients.items():
        print("  %-12s %6.1f answers a second, %d failed, oldest page %d s" % (
            name, sum(client.answered for client in group) / (end - start),
            sum(client.failed for client in group), max(client.oldest_s for client in group)))
    stopping.set()
    for peer in peers:
        peer.kill()
    process.kill()


if __name__ == "__main__":
    main()
