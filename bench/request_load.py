"""The share of a core that a job's server costs while somebody asks it for everything.

  ./bazelw run //bench:request_load [-- --rate=100 --seconds=30 --ranks=8 --communicators=8]

A server with the limits of a job's serves the page of a made-up node with so many ranks and communicators. Clients ask for
each kind of page so many times a second, compressed or not. Printed: the page's histograms, what the server's thread used
of one core, by the kernel's accounts, how many requests were answered, and how old the pages were.
"""

import argparse
import http.client
import threading
import time

from bench.fleet.processes import Endpoints

PROTOBUF = ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
            "encoding=delimited")
KINDS = (("text", "/metrics", "text/plain"),
         ("OpenMetrics", "/metrics", "application/openmetrics-text"),
         ("protobuf", "/metrics", PROTOBUF), ("JSON", "/api/v1/communicators", "*/*"))
CLIENTS = 4  # of each kind


class Client(threading.Thread):

    def __init__(self, address, path, accept, encoding, pause_s, stopping):
        super().__init__(daemon=True)
        self.address, self.path, self.pause_s, self.stopping = address, path, pause_s, stopping
        self.headers = {"Accept": accept, "Accept-Encoding": encoding}
        self.answered = self.failed = self.oldest_s = 0

    def run(self):
        while not self.stopping.wait(self.pause_s):
            connection = http.client.HTTPConnection(self.address, timeout=30)
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
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--communicators", type=int, default=8)
    parser.add_argument("--encoding", default="gzip")
    options = parser.parse_args()
    with Endpoints(1, options.ranks, options.communicators, options.seconds + 600) as endpoints:
        measure(endpoints, options)


def measure(endpoints, options):
    host, address = next(iter(endpoints.addresses.items()))
    page = endpoints.page(host, "text/plain", "identity").decode()
    print("%d histograms" % page.count('le="+Inf"'))
    idle_start, idle_cpu = time.monotonic(), endpoints.cpu_s()
    time.sleep(3)
    idle = (endpoints.cpu_s() - idle_cpu) / (time.monotonic() - idle_start)
    stopping = threading.Event()
    clients = {name: [Client(address, path, accept, options.encoding, CLIENTS / options.rate,
                             stopping) for _ in range(CLIENTS)] for name, path, accept in KINDS}
    start, cpu_start = time.monotonic(), endpoints.cpu_s()
    for group in clients.values():
        for client in group:
            client.start()
    half = None
    while time.monotonic() - start < options.seconds:
        time.sleep(0.1)
        if half is None and time.monotonic() - start > options.seconds / 2:
            half = time.monotonic(), endpoints.cpu_s()
    end, cpu_end = time.monotonic(), endpoints.cpu_s()
    print("idle: %.2f %% of a core" % (100 * idle))
    print("asked: %.2f %% of a core over %d s, %.2f %% in the second half" % (
        100 * (cpu_end - cpu_start) / (end - start), options.seconds,
        100 * (cpu_end - half[1]) / (end - half[0])))
    for name, group in clients.items():
        print("  %-12s %6.1f answers a second, %d failed, oldest page %d s" % (
            name, sum(client.answered for client in group) / (end - start),
            sum(client.failed for client in group), max(client.oldest_s for client in group)))
    stopping.set()


if __name__ == "__main__":
    main()
