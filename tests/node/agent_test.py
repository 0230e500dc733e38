"""pulse agent: before, during and after a job, what it keeps, and what happens when it ends."""

import json
import signal
import subprocess
import time

from tests import running
from tests.node.cluster import PULSE, Agent, AgentCase, Scraper, get, values, wait_until


class StartTest(AgentCase):

    def test_before_the_job(self):
        self.agent()
        self.assertEqual(values(self.port, "nccl_pulse_processes"), {(): 0})
        processes = self.start_ranks(3)
        self.assertTrue(self.nobody_serves(processes))
        self.assertEqual({process.url for process in processes}, {"http://%s/metrics" % self.listen})

    def test_while_the_job_runs(self):
        processes = self.start_ranks(4)
        scraper = Scraper(self.port)
        wait_until(lambda: scraper.pages > 3, "pages were read")
        self.agent()
        wait_until(lambda: self.nobody_serves(processes), "the job's server has left the port")
        for process in processes:
            process.ask("run 5")
        self.wait_for({process.rank: 15 for process in processes})
        scraper.stop()
        self.assertEqual(scraper.problems, [])
        self.assertTrue(self.nobody_serves(processes))

    def test_a_job_that_would_not_find_the_agent_keeps_its_server(self):
        """An agent asks for the next ports also, where jobs may have gone that found its own taken."""
        process = self.start(0, "127.0.0.1:%d" % (self.port + 1))
        self.agent()
        self.assertTrue(process.serves(process.port))

    def test_labels_of_a_job_stay_on_its_series(self):
        self.agent()
        self.start(0, NCCL_PULSE_LABELS="team=a")
        self.start(1)
        wait_until(lambda: set(values(self.port, "nccl_pulse_process_up", "global_rank", "team"))
                   == {("0", "a"), ("1", "")}, "both are there")

    def test_after_the_job(self):
        processes = self.start_ranks(2)
        for process in processes:
            process.end()
        self.agent()
        self.assertEqual(values(self.port, "nccl_pulse_processes"), {(): 0})

    def test_two_agents(self):
        first = self.agent()
        second = self.agent()
        self.assertEqual(second.status(), 2)
        self.assertIn("an agent serves already, process %d" % first.process.pid, second.log())

    def test_port_of_another_program(self):
        process = self.start(0, "127.0.0.1:0")
        agent = Agent.of(self, "127.0.0.1:%d" % process.port)
        self.assertEqual(agent.status(), 2)
        self.assertIn("cannot serve on 127.0.0.1:%d: Address already in use; `ss -lnp` names" % process.port, agent.log())

    def test_dropped_families(self):
        self.agent("--drop-families=nccl_pulse_processes")
        _, page = get(self.port)
        self.assertNotIn("nccl_pulse_processes", page)
        self.assertIn("nccl_pulse_segments_read_total", page)


class EndTest(AgentCase):

    def end_of_agent(self, how, status):
        agent = self.agent()
        processes = self.start_ranks(3)
        scraper = Scraper(self.port)
        wait_until(lambda: scraper.pages > 3, "pages were read")
        self.assertEqual(agent.end(how), status)
        self.server_of(processes)
        for process in processes:
            process.ask("run 5")
        self.wait_for({process.rank: 15 for process in processes})
        scraper.stop()
        self.assertEqual(scraper.problems, [])
        # And another takes over again.
        self.agent()
        self.wait_for({process.rank: 15 for process in processes})
        wait_until(lambda: self.nobody_serves(processes), "the job's server has left the port")

    def test_killed(self):
        self.end_of_agent(signal.SIGKILL, -signal.SIGKILL)

    def test_terminated(self):
        self.end_of_agent(signal.SIGTERM, 0)

    def test_hangup_is_survived(self):
        agent = self.agent()
        agent.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "no web configuration" in agent.log(), "it says so")
        self.assertEqual(get(self.port, "/healthz"), (200, "ok\n"))


class KeepTest(AgentCase):

    def ups(self):
        return {int(rank): int(up) for rank, up in values(self.port, "nccl_pulse_process_up", "global_rank").items()}

    def test_last_state_and_how_it_ended(self):
        self.agent()
        processes = self.start_ranks(4)
        processes[0].kill()
        processes[1].end("exit")
        processes[2].ask("finalize")
        processes[2].end("_exit")
        wait_until(lambda: self.ups() == {0: 0, 1: 0, 2: 0, 3: 1}, "all ends were seen")
        # Nothing of what was counted is lost.
        self.wait_for({0: 10, 1: 10, 2: 10, 3: 10})
        ends = values(self.port, "nccl_pulse_process_end_timestamp_seconds", "global_rank", "end")
        self.assertEqual(set(ends), {("0", "lost"), ("1", "exit"), ("2", "exit")})
        document = json.loads(get(self.port, "/api/v1/communicators")[1])
        communicator, = document["communicators"]
        self.assertEqual([rank["process"]["state"] for rank in communicator["ranks"]], ["lost", "exit", "exit", "live"])
        processes[3].end("_exit")
        wait_until(lambda: ("3", "lost") in values(
            self.port, "nccl_pulse_process_end_timestamp_seconds", "global_rank", "end"), "it ended")

    def test_the_rank_that_died_first(self):
        self.agent()
        processes = self.start_ranks(2)
        processes[1].kill()
        wait_until(lambda: self.ups() == {0: 1, 1: 0}, "the first end was seen")
        time.sleep(0.1)  # as a launcher, which ends the others
        processes[0].kill()
        wait_until(lambda: self.ups() == {0: 0, 1: 0}, "both ends were seen")
        said = subprocess.run([PULSE, "diagnose", self.listen, "--timeout=60s"], capture_output=True, text=True, check=False)
        self.assertRegex(said.stdout, r"^ENDED  .* First without finalizing: global rank 1 on .* ms before the others\. Next: ")

    def test_number_of_kept_processes(self):
        self.agent("--keep-processes=2")
        processes = self.start_ranks(4)
        for expected in ({0: 0, 1: 1, 2: 1, 3: 1}, {0: 0, 1: 0, 2: 1, 3: 1}, {1: 0, 2: 0, 3: 1}, {2: 0, 3: 0}):
            processes.pop(0).end()
            wait_until(lambda: self.ups() == expected, "the page shows its end")

    def test_time_of_kept_processes(self):
        self.agent("--keep=1s")
        process, = self.start_ranks(1)
        process.kill()
        self.wait_for({})

    def test_nothing_is_kept(self):
        self.agent("--keep_processes=0")
        process, other = self.start_ranks(2)
        process.kill()
        self.wait_for({other.rank: 10})
        self.assertEqual(self.ups(), {other.rank: 1})


if __name__ == "__main__":
    running.main(at_once=3)
