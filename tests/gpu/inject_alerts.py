"""`pulse watch` over the endpoints of inject_nodes.py's jobs, and a real Prometheus with the rules of deploy/prometheus: what
it alerts."""

import json
import os
import subprocess
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INTERVAL_S = 2
# What stands for a minute in the rules.
HUNG_S = 10
# Of those on the watcher itself.
WAITS = {"1m": "1h", "2m": "1h"}
SLOW = ("NcclSlowRank", "NcclSlowNode")


class Alerts:
    """Whole repository's checkout is needed: the rules, and the server of tests/deploy."""

    def __init__(self, folder, program, pulse):
        sys.path.insert(0, ROOT)
        os.chdir(ROOT)
        from tests.deploy import prometheus_server  # pylint: disable=import-outside-toplevel
        os.makedirs(folder)
        self.server = prometheus_server.Prometheus(folder, program=program, interval_s=INTERVAL_S, hung_s=HUNG_S,
                                                   waits=WAITS)
        self.folder = folder
        watcher = "127.0.0.1:%d" % prometheus_server.free_port()
        self.pulse, self.watcher, self.watch = pulse, watcher, None
        self.server.scrape("nccl-pulse-watch", [watcher])
        self.lock = threading.Lock()
        self.targets = {}

    def add(self, job, addresses):
        with self.lock:
            self.targets[job] = list(addresses)
            self._write()

    def remove(self, job):
        with self.lock:
            self.targets.pop(job, None)
            self._write()

    def _write(self):
        path = os.path.join(self.folder, "nccl-pulse.json")
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump([{"targets": [each for targets in self.targets.values() for each in targets]}], file)
        os.rename(path + ".new", path)
        if self.watch is None and any(self.targets.values()):
            self.watch = subprocess.Popen([self.pulse, "watch", "--targets=" + path, "--listen=" + self.watcher],
                                          stderr=subprocess.DEVNULL)

    def firing(self, job_id):
        """[(name, severity, host, rank)] of the alerts that fire for a job, without those on the exporter itself."""
        answer = json.loads(self.server._get("/api/v1/alerts"))["data"]["alerts"]  # pylint: disable=protected-access
        return sorted({(each["labels"]["alertname"], each["labels"].get("severity", ""),
                        each["labels"].get("Hostname", ""), each["labels"].get("global_rank", ""))
                       for each in answer
                       if each["state"] == "firing" and each["labels"].get("job_id") == job_id})

    def page(self, job_id):
        """The critical ones."""
        return [each for each in self.firing(job_id) if each[1] == "critical"]

    def naming(self, job_id):
        """Those on a hang that name a rank or a node."""
        return [each for each in self.firing(job_id) if each[0] not in SLOW and (each[2] or each[3])]

    def slow(self, job_id):
        return [each for each in self.firing(job_id) if each[0] in SLOW]

    def end(self):
        self.server.end()
        if self.watch is not None:
            self.watch.terminate()
            self.watch.wait()


def judge(alerts, ranks, host_of):
    """What is wrong with the alerts on a job; "": they name these ranks alone. Any of them is right."""
    right = {("", str(rank)) for rank in ranks} | {(host_of(rank), str(rank)) for rank in ranks} | {
        (host_of(rank), "") for rank in ranks}
    others = [each for each in alerts if (each[2], each[3]) not in right]
    return "" if alerts and not others else "Prometheus alerts %s" % (alerts or "nothing")
