"""What processes of a job do to themselves: crashes, ends amid callbacks, exec, children, clock steps. Nothing
of another process is lost, doubled or held, and nothing is left behind."""

import json
import os
import signal
import unittest
import unittest.mock

from tests import running
from tests.node.cluster import (PATIENCE_S, Agent, NodeCase, Process, Scraper, get, open_files, ranks, samples,
                                values, wait_until)

BUSY_COMMUNICATORS = ("00000000b0510000", "00000000b0510001")


class EndTest(NodeCase):
    """In the middle of callbacks, once as a member and once as the server."""

    def end_so(self, how, status):
        processes = self.start_ranks(3)
        server = self.server_of(processes)
        processes.remove(server)
        scraper = Scraper(self.port)
        wait_until(lambda: scraper.pages > 3, "pages were read")
        for ending in (processes.pop(), server):
            scraper.forget(ending)
            # Its busy communicators go with it, and count as rank 0 of their own.
            scraper.dead.add("0")
            ending.tell("busy " + how)
            self.assertEqual(ending.process.wait(timeout=PATIENCE_S), status, ending.log())
            wait_until(lambda: values(self.port, "nccl_pulse_process_up", "pid").keys() and
                       str(ending.pid) not in values(self.port, "nccl_pulse_process_up", "pid"),
                       "it has left the page")
        last, = processes
        last.ask("run 5")
        wait_until(lambda: ranks(self.port) == {last.rank: 15}, "the page shows the last one alone")
        scraper.stop()
        self.assertEqual(scraper.problems, [])

    def test_exit(self):
        self.end_so("exit", 7)

    def test_underscore_exit(self):
        self.end_so("_exit", 7)

    def test_quick_exit(self):
        self.end_so("quick_exit", 7)

    def test_segmentation_fault(self):
        # Sanitizers, where the tests are built with one, would end the process themselves.
        with unittest.mock.patch.dict(os.environ, {name: os.environ.get(name, "") + ":handle_segv=0" for name in (
                "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")}):
            self.end_so("segv", -signal.SIGSEGV)

    def test_abort(self):
        self.end_so("abort", -signal.SIGABRT)

    def test_exit_many_times(self):
        """The moment differs each time."""
        self.start(50)
        for rank in range(10):
            process = self.start(rank)
            process.tell("busy " + ("exit", "quick_exit")[rank % 2])
            self.assertEqual(process.process.wait(timeout=PATIENCE_S), 7, process.log())
        wait_until(lambda: values(self.port, "nccl_pulse_processes") == {(): 1}, "they are gone")

    def test_kill_leaves_an_agent_what_can_be_read(self):
        agent = Agent.of(self, self.listen)
        process = self.start(3)
        self.assertEqual(process.ask("busy stay"), "ok")
        process.kill()
        wait_until(lambda: values(self.port, "nccl_pulse_process_up", "global_rank") == {"3": 0}, "it is kept")
        first = samples(self.port)
        calls = {key: value for key, value in first.items() if key[0] == "nccl_operations_total"}
        for comm in BUSY_COMMUNICATORS:
            called = sum(value for (_, labels), value in calls.items() if dict(labels)["comm"] == comm)
            # Each thread was between two of its callbacks.
            launched = values(self.port, "nccl_launches_total", "comm")[comm]
            self.assertGreaterEqual(launched, 200)
            self.assertLessEqual(abs(called - launched), 1)
        json.loads(get(self.port, "/api/v1/communicators")[1])
        # And nothing moves any more.
        wait_until(lambda: values(self.port, "nccl_pulse_scrape_duration_seconds_count")[()] >
                   first[("nccl_pulse_scrape_duration_seconds_count", frozenset())], "a new page")
        again = samples(self.port)
        self.assertEqual({key: again[key] for key in calls}, calls)


class ExecTest(NodeCase):
    """The same pid and rank, another memory: what a restarted process with a pid used again is, too."""

    def test_member_and_server(self):
        processes = self.start_ranks(3)
        server = self.server_of(processes)
        member = next(process for process in processes if process is not server)
        expected = {process.rank: 10 for process in processes}
        for process in (member, server):
            process.tell("exec")
            expected.pop(process.rank)
            self.wait_for(expected)
            self.assertEqual(process.ask("open").count("nccl-pulse"), 0)
            self.assertFalse(process.serves(self.port))
            process.url = process.ask("init")
            self.assertEqual(process.port, self.port)
            process.ask("run 3")
            expected[process.rank] = 3
            self.wait_for(expected)
        self.assertEqual(sum(process.serves(self.port) for process in processes), 1)

    def test_amid_callbacks(self):
        processes = self.start_ranks(2)
        server = self.server_of(processes)
        other = next(process for process in processes if process is not server)
        server.tell("busy exec")
        self.wait_for({other.rank: 10})
        self.assertEqual(server.ask("open").count("nccl-pulse"), 0)

    def test_agent_has_it_once(self):
        agent = Agent.of(self, self.listen)
        process, = self.start_ranks(1)
        process.tell("exec")
        wait_until(lambda: values(self.port, "nccl_pulse_process_up", "pid") == {str(process.pid): 0}, "it is kept")
        process.ask("init")
        process.ask("run 3")
        self.wait_for({0: 3})
        self.assertEqual(values(self.port, "nccl_pulse_process_up", "pid"), {str(process.pid): 1})


class ChildTest(NodeCase):

    def test_child_that_uses_nccl_is_a_process_of_its_own(self):
        server, member = self.start_ranks(2)
        for process in (server, member):
            pid, url = process.ask("fork_init").split(" ")
            self.kill_at_the_end(int(pid))
            self.assertIn(url, (process.url, "nowhere"))  # where the server answers late
            process.ask("run 1")
        self.wait_for({0: 11, 1: 11, 100: 1, 101: 1})
        self.assertEqual(values(self.port, "nccl_pulse_processes"), {(): 4})
        # The children take over when their parents are gone.
        for process in (server, member):
            process.kill()
        wait_until(lambda: ranks(self.port) == {100: 1, 101: 1} or not ranks(self.port), "the parents have left")

    def test_spawned_program_holds_nothing(self):
        for process in self.start_ranks(2):
            pid = int(process.ask("spawn"))
            self.kill_at_the_end(pid)
            wait_until(lambda: os.readlink("/proc/%d/exe" % pid) !=
                       os.readlink("/proc/%d/exe" % process.pid), "it is another program")
            for target in open_files(pid).values():
                self.assertNotRegex(target, "socket:|nccl-pulse")
            with open("/proc/%d/maps" % pid, encoding="ascii") as maps:
                self.assertNotIn("nccl-pulse", maps.read())


class JobsTest(NodeCase):

    def test_two_jobs_share_the_page_and_nothing_else(self):
        jobs = {}
        for comm in ("a1", "b2"):
            jobs[comm] = [Process(rank, self.listen, init=False, SLURM_JOB_ID=comm) for rank in range(2)]
            for process in jobs[comm]:
                self.addCleanup(process.close)
                process.url = process.ask("init " + comm)
                process.ask("run %d" % (10 if comm == "a1" else 20))

        def shown():
            return values(self.port, "nccl_operations_total", "comm", "rank")

        def of(comm, count):
            return {("%016x" % int(comm, 16), str(rank)): count for rank in range(2)}

        wait_until(lambda: shown() == {**of("a1", 10), **of("b2", 20)}, "both are there")
        self.assertEqual(set(values(self.port, "nccl_communicator_info", "comm", "job_id")),
                         {("%016x" % int(comm, 16), comm) for comm in jobs})
        # The first job, which serves, ends; the other is not touched.
        for process in jobs["a1"]:
            process.end()
        wait_until(lambda: shown() == of("b2", 20), "the other job is there alone")


class ClockTest(NodeCase):

    DAY = 86400

    def test_steps_move_timestamps_and_nothing_else(self):
        processes = self.start_ranks(2)
        before = samples(self.port)

        def timestamp(rank, name="nccl_last_launch_timestamp_seconds", label="rank"):
            return values(self.port, name, label).get(str(rank), 0)

        true = timestamp(0)
        calls = 10
        for step in (self.DAY, -self.DAY):
            for process in processes:
                self.assertEqual(process.ask("clock %d" % step), "ok")
                self.assertEqual(process.ask("run 10"), "ok")
            calls += 10
            self.wait_for({0: calls, 1: calls})
            for rank in range(2):
                for name, label in (("nccl_last_launch_timestamp_seconds", "rank"),
                                    ("nccl_pulse_last_poll_timestamp_seconds", "global_rank")):
                    wait_until(lambda: abs(timestamp(rank, name, label) - true - step) < 3600,
                               "%s has moved by %d s" % (name, step))
        now = samples(self.port)
        durations = 0
        for (name, labels), value in now.items():
            if name.endswith(("_duration_seconds_sum", "_completion_seconds_sum",
                              "_wait_seconds_total", "_observed_seconds_total")):
                durations += 1
                self.assertLess(value, 3600, (name, labels))
                self.assertGreaterEqual(value, before.get((name, labels), 0), (name, labels))
        self.assertGreater(durations, 2)
        self.assertEqual({name for name, _ in before.keys() - now.keys()}, set())
        # Clients, hand-over and takeover do not wait by that clock.
        server = self.server_of(processes)
        server.kill()
        other = next(process for process in processes if process is not server)
        self.wait_for({other.rank: calls})


class NoUnixSocketsTest(NodeCase):

    def test_such_a_process_serves_itself(self):
        first, = self.start_ranks(1)
        alone = Process(1, self.listen, init=False)
        self.addCleanup(alone.close)
        if alone.ask("no_unix") != "ok":
            self.skipTest("the kernel takes no seccomp filters here")
        alone.url = alone.ask("init")
        self.assertGreater(alone.port, self.port)
        alone.ask("run 3")
        self.wait_for({1: 3}, alone.port)
        self.wait_for({first.rank: 10})
        # It has no name at its port, and hinders nobody from going further.
        late = self.start(2)
        self.assertEqual(late.port, self.port)


class AgentTest(NodeCase):

    def test_killed_and_restarted_again_and_again(self):
        processes = self.start_ranks(3)
        scraper = Scraper(self.port)
        total = 10
        for _ in range(3):
            agent = Agent.of(self, self.listen)
            total += 1
            for process in processes:
                process.ask("run 1")
            self.wait_for({process.rank: total for process in processes})
            wait_until(lambda: not any(process.serves(self.port) for process in processes),
                       "the job's server has left the port")
            agent.end(signal.SIGKILL)
        self.server_of(processes)
        # One that ends while there is no agent is nobody's to keep.
        gone = processes.pop()
        scraper.forget(gone)
        gone.kill()
        agent = Agent.of(self, self.listen)
        self.wait_for({process.rank: total for process in processes})
        self.assertEqual(set(values(self.port, "nccl_pulse_process_up", "pid")),
                         {str(process.pid) for process in processes})
        scraper.stop()
        self.assertEqual(scraper.problems, [])


if __name__ == "__main__":
    running.main()
