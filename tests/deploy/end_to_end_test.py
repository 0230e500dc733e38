"""From collectives to alerts: the agent of a node, a job that hangs on it, `pulse watch`, and a real Prometheus with our rules."""

import json
import re
import subprocess
import tempfile
import unittest

from tests import running
from tests.deploy import cluster
from tests.deploy.prometheus_server import refused
from tests.node import cluster as node
from tests.node.proof_job import Job, RANKS

LAST = RANKS - 1  # the rank that does not call
HANG = "nccl_job_hang_start_timestamp_seconds"
INTERVAL_S = 2  # between scrapes, and evaluations of the rules


class EndToEndTest(unittest.TestCase):

    def folder(self, **where):
        folder = tempfile.TemporaryDirectory(**where)
        self.addCleanup(folder.cleanup)
        return folder.name

    def start(self, thing, end):
        self.addCleanup(end, thing)
        return thing

    def begin(self):
        """An agent, a watcher, and a Prometheus."""
        self.listen = "127.0.0.1:%d" % node.free_port()
        self.agent = self.start(node.Agent(self.listen, "--hang-after=10s"), node.Agent.close).wait_ready()
        self.prometheus = self.start(cluster.Prometheus(self.folder(), interval_s=INTERVAL_S, hung_s=10),
                                     cluster.Prometheus.end)
        watcher = "127.0.0.1:%d" % node.free_port()
        watch = subprocess.Popen([cluster.PULSE, "watch", self.listen, "--listen=" + watcher], stderr=subprocess.DEVNULL)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.terminate)
        self.prometheus.scrape("nccl-pulse", [self.listen])
        self.prometheus.scrape("nccl-pulse-watch", [watcher])

    def job(self, *phases, **options):
        # Short: an NCCL unique id holds the name of a file in it.
        return self.start(Job(self.folder(prefix="ee", dir="/tmp"), self.listen, *phases, **options), Job.close)

    def wait_for_alert(self, prometheus, name, says, **labels):
        """Until it fires with these labels and says so: ranks are seen to wait one after the other."""
        def fires():
            return any(labels.items() <= has.items() and re.search(says, self.text(annotations))
                       for has, annotations in prometheus.alerts(name))
        try:
            node.wait_until(fires, name)
        except AssertionError as error:
            raise AssertionError("no %s%s that says %r, only %s" % (
                name, labels, says, prometheus.alerts(name))) from error

    @staticmethod
    def text(annotations):
        return " ".join((annotations["summary"] + " | " + annotations["description"]).split())

    def test_only_a_late_group_may_be_evaluated_twice_at_one_timestamp(self):
        """Prometheus says the same where two rules record one series."""
        twice = ('level=warn file=/rules.yaml group=%s name=example msg="Error on ingesting results from rule evaluation '
                 'with different value but same timestamp" numDropped=1')
        metrics = "".join('prometheus_rule_group_iterations_missed_total{rule_group="/rules.yaml;%s"} %d\n' % missed
                          for missed in (("late", 12), ("punctual", 0)))
        self.assertEqual(refused("\n".join([twice % "late", twice % "punctual"]), metrics), [twice % "punctual"])

    def set_hang_seconds(self, value):
        subprocess.run([cluster.PULSE, "set", "HANG_SECONDS=%d" % value, "--pid=%d" % self.agent.process.pid],
                       check=True, stdout=subprocess.DEVNULL)

    def in_flight_s(self):
        """For how long the hung job's ranks have waited."""
        port = int(self.listen.rsplit(":", 1)[1])
        _, text = node.wait_until(lambda: node.get(port, "/api/v1/communicators"))
        page = json.loads(text)
        return max([page["time"] - rank["in_flight_since"] for comm in page["communicators"]
                    for rank in comm["ranks"] if rank["in_flight_since"]], default=0)

    def test_hang_seconds_moves_the_alert(self):
        self.begin()
        prometheus = self.prometheus
        self.set_hang_seconds(3600)
        hung = self.job("warm", "hang", hang_seconds="3600")  # of the two the shorter counts
        self.assertEqual(hung.report(), ["warm"] * RANKS)
        hung.go_on()
        node.wait_until(lambda: self.in_flight_s() > 15, "it hangs for longer than it is said to take by default")
        self.assertEqual(prometheus.query('ALERTS{alertname=~"NcclJobHung.*"}'), [])
        self.set_hang_seconds(20)
        self.check_hang(prometheus, hung)
        # From the first sample of its series on, it had lasted for so long.
        self.assertEqual(prometheus.query("timestamp(%s) - %s < 20" % (2 * (HANG,))), [])

    def check_hang(self, prometheus, job):
        pid = str(job.ranks[LAST].pid)
        # One alert for the job, not one for each communicator or verdict.
        self.wait_for_alert(
            prometheus, "NcclJobHung", r"^A job without ID hangs: rank \d+ \(.* has not called .* wait\. Next: py-spy dump --pid %s on " % pid,
            pid=pid, severity="warning")
        self.assertEqual([alert for alert in prometheus.alerts("NcclJobHung") if alert[0].get("pid") != pid], [])


if __name__ == "__main__":
    running.main(at_once=2)
