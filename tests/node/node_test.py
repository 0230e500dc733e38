"""One endpoint for a node's processes: hand-over, election, who is left out, and what a fork keeps."""

import json
import os
import signal
import socket
import tempfile
import unittest

from tests import running
from tests.node.cluster import NodeCase, Process, Scraper, values, wait_until


class OneEndpointTest(NodeCase):

    def test_all_processes_are_on_one_page(self):
        processes = self.start_ranks(4)
        for process in processes:
            self.assertEqual(process.url, "http://%s/metrics" % self.listen)
        self.assertEqual(sum(process.serves(self.port) for process in processes), 1)
        self.assertEqual(sum(process.serves(self.port + 1) for process in processes), 0)
        self.assertEqual(values(self.port, "nccl_pulse_processes"), {(): 4})
        self.assertEqual(values(self.port, "nccl_pulse_process_up", "pid"),
                         {str(process.pid): 1 for process in processes})
        # Each process is told apart on what belongs to it.
        self.assertEqual(values(self.port, "nccl_pulse_build_info", "global_rank").keys(), {"0", "1", "2", "3"})
        self.assertEqual(values(self.port, "nccl_pulse_processes_rejected_total", "reason"), {})

    def test_all_start_at_once(self):
        processes = [Process(rank, self.listen, init=False) for rank in range(8)]
        for process in processes:
            self.addCleanup(process.close)
        for process in processes:
            process.tell("init")
        for process in processes:
            process.url = process.process.stdout.readline().rstrip()
        self.assertEqual({process.url for process in processes}, {"http://%s/metrics" % self.listen})
        wait_until(lambda: values(self.port, "nccl_pulse_processes") == {(): 8}, "all are there")

    def test_processes_that_end_disappear(self):
        processes = self.start_ranks(3)
        server = self.server_of(processes)
        others = [process for process in processes if process is not server]
        others[0].end("exit")
        others[1].kill()
        self.wait_for({server.rank: 10})
        self.assertEqual(values(self.port, "nccl_pulse_processes"), {(): 1})

    def test_port_zero_is_an_endpoint_of_its_own(self):
        first, second = self.start(0, "127.0.0.1:0"), self.start(1, "127.0.0.1:0")
        self.assertNotEqual(first.port, second.port)
        for process in (first, second):
            process.ask("run 1")
            self.wait_for({process.rank: 1}, process.port)

    def test_unix_socket(self):
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            path = os.path.join(folder, "pulse.sock")
            processes = [self.start(rank, "unix:" + path) for rank in range(2)]

            def shown():
                with socket.socket(socket.AF_UNIX) as client:
                    try:
                        client.connect(path)
                    except OSError:
                        return None
                    client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                    text = b"".join(iter(lambda: client.recv(65536), b"")).decode()
                    return [line for line in text.splitlines() if line.startswith("nccl_pulse_processes ")]

            wait_until(lambda: shown() == ["nccl_pulse_processes 2"], "both are there")
            processes[0].kill()
            wait_until(lambda: shown() == ["nccl_pulse_processes 1"], "the other serves")
            processes[1].end()
            # On a busy machine a process may end before its server has removed the file; the next one removes it.
            wait_until(lambda: not os.path.exists(path) or self.start(2, "unix:" + path).end(), "the file is removed")

    def test_private_memory_is_served_by_its_own_process(self):
        first = self.start(0)
        # A limit on file sizes is what makes the kernel refuse shared memory here.
        private = Process(1, self.listen, init=False)
        self.addCleanup(private.close)
        import resource
        resource.prlimit(private.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        private.url = private.ask("init")
        self.assertEqual(first.port, self.port)
        self.assertGreater(private.port, self.port)
        wait_until(lambda: "shared memory is not available" in private.log(), "it says so")
        self.assertEqual(private.log().count("shared memory is not available"), 1)
        private.ask("run 3")
        self.wait_for({1: 3}, private.port)


class TakeoverTest(NodeCase):

    def take_over(self, end):
        processes = self.start_ranks(4)
        scraper = Scraper(self.port)
        wait_until(lambda: scraper.pages > 3, "pages were read")
        total = 10
        while len(processes) > 1:
            server = self.server_of(processes)
            scraper.forget(server)
            end(server)
            processes.remove(server)
            total += 5
            for process in processes:
                process.ask("run 5")
            self.wait_for({process.rank: total for process in processes})
            self.assertEqual(sum(process.serves(self.port) for process in processes), 1)
            pages = scraper.pages
            wait_until(lambda: scraper.pages > pages + 3, "pages were read")
        scraper.stop()
        self.assertEqual(scraper.problems, [])
        wait_until(lambda: "now serves the node's metrics" in processes[0].log(), "it says so")

    def test_server_is_killed(self):
        self.take_over(Process.kill)

    def test_server_ends(self):
        self.take_over(Process.end)

    def test_stopped_server_can_not_be_replaced_and_goes_on(self):
        processes = self.start_ranks(2)
        server = self.server_of(processes)
        server.stop()
        late = Process(7, self.listen, init=False)
        self.addCleanup(late.close)
        self.assertEqual(late.ask("init"), "nowhere")  # nobody has told it where it is served
        self.assertFalse(late.serves(self.port))
        os.kill(server.pid, signal.SIGCONT)
        late.ask("run 2")
        self.wait_for({0: 10, 1: 10, 7: 2})

    def test_stopped_server_that_is_killed_is_replaced(self):
        processes = self.start_ranks(2)
        server = self.server_of(processes)
        server.stop()
        late = self.start(7)
        server.kill()
        other = next(process for process in processes if process is not server)
        self.wait_for({other.rank: 10})
        late.ask("run 2")
        self.wait_for({other.rank: 10, 7: 2})


class ForeignPortTest(NodeCase):

    def test_next_port_is_the_nodes_endpoint_and_a_file_says_so(self):
        with socket.socket() as foreign, tempfile.TemporaryDirectory() as folder:
            foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            foreign.bind(("127.0.0.1", self.port))
            foreign.listen()
            processes = [self.start(rank, NCCL_PULSE_FILE_SD_DIR=folder) for rank in range(3)]
            ports = {process.port for process in processes}
            self.assertEqual(len(ports), 1)
            port = ports.pop()
            self.assertGreater(port, self.port)
            wait_until(lambda: values(port, "nccl_pulse_processes") == {(): 3}, "all are there")
            name, = os.listdir(folder)
            self.assertTrue(name.startswith("nccl-pulse-") and name.endswith("-%d.json" % port))
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                targets = json.load(file)
                # By which others see that it is of this host.
                self.assertRegex(targets[0]["labels"].pop("__meta_nccl_pulse_boot"), "^[0-9a-f-]{36}$")
                self.assertEqual(targets, [{
                    "targets": ["127.0.0.1:%d" % port],
                    "labels": {"__scheme__": "http",
                               "__meta_nccl_pulse_host": socket.gethostname()}}])
            # The next server names the same file; the last one to end in order removes it.
            self.server_of(processes, port).kill()
            left = [process for process in processes if process.process.poll() is None]
            self.server_of(left, port)
            wait_until(lambda: os.listdir(folder) == [name], "the file is there")
            for process in left:
                process.end()
            self.assertEqual(os.listdir(folder), [])


class ForkTest(NodeCase):

    def test_child_holds_nothing_and_hinders_nobody(self):
        processes = self.start_ranks(3)
        server = self.server_of(processes)
        children = {}
        for process in processes:
            self.assertIn("socket:", process.ask("open"))
            pid, *still_open = process.ask("fork").split(" ")
            children[process.rank] = int(pid)
            self.kill_at_the_end(int(pid))
            self.assertEqual(still_open, [], "of rank %d" % process.rank)
        # The children live on: neither the port nor a connection may be held by one.
        server.kill()
        left = [process for process in processes if process is not server]
        self.wait_for({process.rank: 10 for process in left})
        member = next(process for process in left if not process.serves(self.port))
        member.kill()
        left.remove(member)
        self.wait_for({left[0].rank: 10})


if __name__ == "__main__":
    running.main()
