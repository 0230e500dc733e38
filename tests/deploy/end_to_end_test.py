"""From collectives to alerts: the agent of a node, jobs on it, and a real Prometheus with our rules.

One Prometheus asks for protobuf (native histograms are switched on), another for OpenMetrics. A
recorded run is in balance all the time: nothing may be said of it. Beside it runs a job in which a
rank is late, and one that hangs: the alerts must say which rank it is.
"""

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

RECORDED = "h200x2-net-mixed"
RECORDED_RANKS = 2
LAST = RANKS - 1  # the rank that is late, or does not call
HANG = "nccl_job_hang_start_timestamp_seconds"
INTERVAL_S = 2  # between scrapes, and evaluations of the rules
# Of alerts about a job that is in balance.
EVALUATIONS = 5
# Of the recorded run: its calls, made within a fifth of a second from its start, take five scrapes, and rates take
# two of them. It goes on and on: what a starved machine has not seen comes again.
SPEED = 0.005


class EndToEndTest(unittest.TestCase):

    def folder(self, **where):
        folder = tempfile.TemporaryDirectory(**where)
        self.addCleanup(folder.cleanup)
        return folder.name

    def start(self, thing, end):
        self.addCleanup(end, thing)
        return thing

    def begin(self, *flags):
        """An agent, a watcher, and a Prometheus with each of these flags."""
        self.listen = "127.0.0.1:%d" % node.free_port()
        self.agent = self.start(node.Agent(self.listen, "--hang-after=10s"), node.Agent.close).wait_ready()
        self.both = [
            self.start(cluster.Prometheus(self.folder(), flags=each, interval_s=INTERVAL_S, hung_s=10),
                       cluster.Prometheus.end) for each in flags]
        watcher = "127.0.0.1:%d" % node.free_port()
        watch = subprocess.Popen([cluster.PULSE, "watch", self.listen, "--listen=" + watcher], stderr=subprocess.DEVNULL)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.terminate)
        for prometheus in self.both:
            prometheus.scrape("nccl-pulse", [self.listen])
            prometheus.scrape("nccl-pulse-watch", [watcher])

    def job(self, *phases, **options):
        # Short: an NCCL unique id holds the name of a file in it.
        return self.start(Job(self.folder(prefix="ee", dir="/tmp"), self.listen, *phases, **options),
                          Job.close)

    def healthy(self, prometheus):
        """Whether the target is scraped and every rule was evaluated, all without an error."""
        targets = prometheus.targets()
        for target in targets:
            # A loaded machine may be late.
            self.assertRegex(target["lastError"], "^$|deadline exceeded")
        self.assertEqual(prometheus.failing_rules(), [])
        return ([target["health"] for target in targets] == 2 * ["up"] and
                all(rule["health"] == "ok" for rule in prometheus.rules()))

    def wait_until_healthy(self):
        for prometheus in self.both:
            node.wait_until(lambda p=prometheus: self.healthy(p), "target and rules are healthy")
            self.assertEqual(prometheus.refused(), [])

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

    def check_balance(self):
        for prometheus in self.both:
            node.wait_until(lambda p=prometheus: p.query(
                "count_over_time((count(group by (pid) (rank:nccl_communicator:live)) == %d)[5m:2s])"
                " > %d" % (RECORDED_RANKS, EVALUATIONS)), "the recorded ranks are seen")
        # At any time: the recorded communicators come and go.
        self.assertTrue(node.wait_until(
            lambda: all(each.query("last_over_time(rank:nccl_waiting:ratio[5m])") for each in self.both),
            "waiting is seen"))
        self.check_recorded()

    def check_recorded(self):
        """No alert has ever fired for communicators of the recorded run."""
        for prometheus in self.both:
            recorded = {each["comm"] for each in prometheus.query("rank:nccl_communicator:live")
                        if each["pid"] not in self.pids}
            self.assertTrue(recorded)
            alerts = prometheus.query('ALERTS{alertname!~"Nccl(Pulse|Watch).*"}')
            self.assertEqual([each for each in alerts if each.get("comm") in recorded or
                              each.get("pid", "") not in ("", *self.pids)], [])
            if not self.pids:
                self.assertEqual(alerts, [])

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
        _, text = node.get(int(self.listen.rsplit(":", 1)[1]), "/api/v1/communicators")
        page = json.loads(text)
        return max([page["time"] - rank["in_flight_since"] for comm in page["communicators"]
                    for rank in comm["ranks"] if rank["in_flight_since"]], default=0)

    def test_hang_seconds_moves_the_alert(self):
        self.begin([])
        prometheus, = self.both
        self.set_hang_seconds(3600)
        hung = self.job("warm", "hang", hang_seconds="3600")  # of the two the shorter counts
        self.assertEqual(hung.report(), ["warm"] * RANKS)
        hung.go_on()
        node.wait_until(lambda: self.in_flight_s() > 15, "it hangs for longer than it is said to take by default")
        self.assertEqual(prometheus.query('ALERTS{alertname=~"NcclJobHung.*"}'), [])
        self.set_hang_seconds(30)
        self.check_hang(prometheus, hung)
        # From the first sample of its series on, it had lasted for so long.
        self.assertEqual(prometheus.query("timestamp(%s) - %s < 30" % (2 * (HANG,))), [])

    def test_from_collectives_to_alerts(self):
        self.begin(["--enable-feature=native-histograms"], [])
        self.native, self.classic = self.both
        self.start(cluster.Replay(RECORDED, SPEED, self.listen,
                                  NCCL_PULSE_TIMING="kernel"), cluster.Replay.end)
        self.pids = set()
        self.check_balance()
        self.wait_until_healthy()
        self.check_formats()

        late = self.job("warm", "straggler", delays="100", repeats="1000000")
        hung = self.job("warm", "hang")
        self.pids = {str(rank.pid) for job in (late, hung) for rank in job.ranks}
        for job in (hung, late):
            self.assertEqual(job.report(), ["warm"] * RANKS)
            job.go_on()
        for prometheus in self.both:
            self.check_straggler(prometheus, late)
            self.check_hang(prometheus, hung)
        hung.ranks[LAST].kill()
        for prometheus in self.both:
            self.check_gone(prometheus, hung)
        self.wait_until_healthy()
        self.check_recorded()

    def check_formats(self):
        """Native histograms in one, classic ones in the other, and text that promtool likes."""
        family = "nccl_operation_duration_seconds"
        self.assertTrue(self.native.query("histogram_count(%s)" % family))
        for part in ("_bucket", "_sum", "_count"):
            self.assertFalse(self.native.query(family + part))
        self.assertTrue(self.classic.query(family + "_bucket"))
        status, text = node.get(int(self.listen.rsplit(":", 1)[1]))
        self.assertEqual(status, 200)
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual((checked.returncode, checked.stdout), (0, ""))

    def check_straggler(self, prometheus, job):
        self.wait_for_alert(
            prometheus, "NcclSlowRank", r"^(Rank|Process) \d+ on \S+ .*is late: .* of its time \| Next: nvidia-smi",
            pid=str(job.ranks[LAST].pid))

    def check_hang(self, prometheus, job):
        pid = str(job.ranks[LAST].pid)
        # One alert for the job, not one for each communicator or verdict.
        self.wait_for_alert(
            prometheus, "NcclJobHung", r"^A job without ID hangs: rank \d+ \(.* has not called .* wait\. Next: py-spy dump --pid %s on " % pid,
            pid=pid, severity="warning")
        self.assertEqual([alert for alert in prometheus.alerts("NcclJobHung") if alert[0].get("pid") != pid], [])

    def check_gone(self, prometheus, job):
        self.wait_for_alert(prometheus, "NcclJobHung", r"^A job without ID hangs: rank \d+ \(.* ended without finalizing",
                            pid=str(job.ranks[LAST].pid), severity="warning")


if __name__ == "__main__":
    running.main(at_once=2)
