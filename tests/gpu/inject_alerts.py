"""A real Prometheus with the rules of deploy/prometheus over the endpoints of inject_nodes.py's jobs: what it alerts."""

import json
import os
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INTERVAL_S = 2
# As old as work in flight must be; 60 s as the rules stand.
HUNG_S = 10
# For alerts that wait until it is clear that no other one comes.
WAITS = {"2m": "8s", "4m": "16s", "10m": "90s"}
SLOW = ("NcclSlowRank", "NcclSlowNode", "NcclStraggler", "NcclNodeStraggler")


class Alerts:
    """Whole repository's checkout is needed: the rules, and the server of tests/deploy."""

    def __init__(self, folder, program):
        sys.path.insert(0, ROOT)
        os.chdir(ROOT)
        from tests.deploy import prometheus_server  # pylint: disable=import-outside-toplevel
        os.makedirs(folder)
        self.server = prometheus_server.Prometheus(folder, program=program, interval_s=INTERVAL_S, hung_s=HUNG_S,
                                                   waits=WAITS)
        self.folder = folder
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


def judge(alerts, ranks, host_of):
    """What is wrong with the alerts on a job; "": they name these ranks alone. Any of them is right."""
    right = {("", str(rank)) for rank in ranks} | {(host_of(rank), str(rank)) for rank in ranks} | {
        (host_of(rank), "") for rank in ranks}
    others = [each for each in alerts if (each[2], each[3]) not in right]
    return "" if alerts and not others else "Prometheus alerts %s" % (alerts or "nothing")
