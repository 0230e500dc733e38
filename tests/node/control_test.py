"""`pulse set` and `pulse settings`, with real processes."""

import os
import re
import signal
import subprocess
import unittest

from tests import running
from tests.node import cluster
from tests.node.cluster import AgentCase, values, wait_until

TABLE = re.compile(r"^(\d+) +([A-Z_]+) +(\S+) +(.*)$", re.M)


def pulse(*arguments):
    done = subprocess.run([cluster.PULSE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=cluster.PATIENCE_S, check=False)
    return done.returncode, done.stdout


class ControlTest(AgentCase):

    def pids(self, processes):
        return ["--pid=%d" % process.pid for process in processes]

    def settings(self, process):
        """{setting: (value, from)}; other tests' processes may run beside."""
        return {name: (value, origin) for pid, name, value, origin
                in TABLE.findall(pulse("settings")[1]) if int(pid) == process.pid}

    def counts(self, process, metric="nccl_pulse_commands_total", label="result"):
        return {what: count for (pid, what), count
                in values(self.port, metric, "pid", label).items() if pid == str(process.pid)}

    def test_sets_shows_counts_and_logs(self):
        first, second = self.start_ranks(2)
        status, text = pulse("set", "TIMED_LAUNCHES_PER_SECOND=1000", "NCCL_PULSE_LOG_LEVEL=warn",
                             *self.pids([first, second]))
        self.assertEqual(status, 0, text)
        self.assertIn("%d: TIMED_LAUNCHES_PER_SECOND=1000 (was 100)" % first.pid, text)
        self.assertIn("%d: LOG_LEVEL=warn (was info)" % second.pid, text)
        shown = self.settings(first)
        self.assertEqual(shown["TIMED_LAUNCHES_PER_SECOND"],
                         ("1000", "set by uid %d, until the process ends" % os.geteuid()))
        self.assertEqual(shown["HANG_SECONDS"], ("10", "default"))
        wait_until(lambda: self.counts(second) == {"done": 2}, "they are counted")
        self.assertEqual(self.counts(second, "nccl_pulse_setting_changed", "setting"),
                         {"TIMED_LAUNCHES_PER_SECOND": 1, "LOG_LEVEL": 1})
        wait_until(lambda: "set: LOG_LEVEL=warn (was info), by user" in first.log(), "it is logged")
        status, text = pulse("set", "TIMED_LAUNCHES_PER_SECOND=default", "LOG_LEVEL=default", *self.pids([first]))
        self.assertEqual(status, 0, text)
        self.assertEqual(self.settings(first)["LOG_LEVEL"], ("info", "environment"))
        wait_until(lambda: not self.counts(first, "nccl_pulse_setting_changed", "setting"), "none is changed")
        self.assertEqual(self.settings(second)["TIMED_LAUNCHES_PER_SECOND"][0], "1000", "not the other one")

    def test_a_pid_of_another_program(self):
        process, = self.start_ranks(1)
        status, text = pulse("set", "HANG_SECONDS=5", "--pid=%d" % os.getpid())
        self.assertEqual(status, 2, text)
        self.assertIn("not an NCCL Pulse process", text)
        self.assertEqual(self.settings(process)["HANG_SECONDS"], ("10", "default"))
        self.assertEqual(self.counts(process), {})

    def test_what_the_start_has_decided(self):
        process = self.start(0, NCCL_PULSE_NETWORK_WINDOW="off", NCCL_PULSE_TIMING="off")
        for name in ("NETWORK_WINDOW=100", "TIMED_LAUNCHES_PER_SECOND=7"):
            status, text = pulse("set", name, *self.pids([process]))
            self.assertEqual(status, 2, text)
            self.assertIn("not set: ", text)

    def test_it_goes_back_by_itself(self):
        process, = self.start_ranks(1)
        status, text = pulse("set", "HANG_SECONDS=77", "--for=1500ms", *self.pids([process]))
        self.assertEqual(status, 0, text)
        self.assertRegex(self.settings(process)["HANG_SECONDS"][1], r"set until \d\d:\d\d:\d\d UTC by uid|default")
        wait_until(lambda: self.settings(process)["HANG_SECONDS"] == ("10", "default"), "it is over")
        wait_until(lambda: "HANG_SECONDS is 10 again" in process.log(), "it is logged")

    def test_a_stopped_process_is_named_and_not_waited_for(self):
        stopped, other = self.start_ranks(2)
        stopped.stop()
        try:
            status, text = pulse("set", "HANG_SECONDS=5", "--timeout=1s", *self.pids([stopped, other]))
            self.assertEqual(status, 4, text)
            self.assertIn("%d: it did not answer within 1000 ms: process %d is stopped" %
                          (stopped.pid, stopped.pid), text)
            self.assertIn("%d: HANG_SECONDS=5" % other.pid, text)
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
        wait_until(lambda: self.settings(stopped).get("HANG_SECONDS"), "it goes on")
        self.assertEqual(self.settings(stopped)["HANG_SECONDS"], ("10", "default"))
        wait_until(lambda: self.counts(stopped) == {"abandoned": 1}, "it is counted")

    def test_a_process_that_has_ended(self):
        gone, other = self.start_ranks(2)
        gone.end()
        status, text = pulse("set", "HANG_SECONDS=5", *self.pids([gone, other]))
        self.assertEqual(status, 4, text)
        self.assertIn("%d: not an NCCL Pulse process in this network namespace; `pulse settings`" % gone.pid, text)
        self.assertIn("%d: HANG_SECONDS=5" % other.pid, text)

    def test_a_child_of_fork_takes_no_commands(self):
        parent, = self.start_ranks(1)
        child = int(parent.ask("fork").split()[0])
        self.kill_at_the_end(child)
        self.assertEqual(pulse("set", "HANG_SECONDS=5", "--pid=%d" % child)[0], 2)
        self.assertEqual(pulse("set", "HANG_SECONDS=5", "--pid=%d" % parent.pid)[0], 0)

    def test_several_jobs_are_not_changed_unasked(self):
        jobs = {"17": 2, "18": 1}
        processes = {}
        for job, count in jobs.items():
            processes[job] = [self.start(rank, SLURM_JOB_ID=job) for rank in range(count)]
        agent = self.agent()
        status, text = pulse("set", "HANG_SECONDS=44")
        self.assertEqual(status, 1, text)
        self.assertIn("this would change 2 jobs: job 17 of user %d (2 processes), job 18 of user %d (1 process); "
                      "choose with --job-id=ID or --pid=PID, or change all with --all" %
                      (os.geteuid(), os.geteuid()), text)

        def hang_seconds():
            return [self.settings(process)["HANG_SECONDS"][0]
                    for process in (*processes["17"], *processes["18"], agent.process)]

        self.assertEqual(hang_seconds(), ["10"] * 4)
        status, text = pulse("set", "HANG_SECONDS=45", "--job-id=17")
        self.assertEqual(status, 0, text)
        self.assertEqual(hang_seconds(), ["45", "45", "10", "10"])
        status, text = pulse("set", "HANG_SECONDS=46", "--job-id=19")
        self.assertEqual(status, 2, text)
        self.assertIn("no process with NCCL Pulse of this job", text)
        status, text = pulse("set", "HANG_SECONDS=46", "--all")
        self.assertEqual(status, 0, text)
        self.assertEqual(hang_seconds(), ["46"] * 4)
        self.assertIn("exclude each other", pulse("set", "HANG_SECONDS=47", "--all", "--job-id=17")[1])
        # One job is no question, with an agent or without it.
        processes.pop("18")[0].end()
        status, text = pulse("set", "HANG_SECONDS=48")
        self.assertEqual(status, 0, text)
        self.assertEqual([self.settings(process)["HANG_SECONDS"][0]
                          for process in (*processes["17"], agent.process)], ["48"] * 3)

    def test_an_agent_has_the_hang_seconds_alone(self):
        agent = self.agent()
        pid = "--pid=%d" % agent.process.pid
        self.assertEqual(pulse("set", "HANG_SECONDS=33", pid)[0], 0)
        status, text = pulse("set", "LOG_LEVEL=off", pid)
        self.assertEqual(status, 2, text)
        self.assertIn("no process here has this setting", text)
        self.assertEqual(self.settings(agent.process)["HANG_SECONDS"][0], "33")
        self.assertIn("set: HANG_SECONDS=33 (was 10)", agent.log())


if __name__ == "__main__":
    running.main()
