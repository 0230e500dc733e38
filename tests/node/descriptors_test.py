"""A program that closes descriptors which it has not opened: what it opens afterwards is left alone, and its
measurements come back to the page. Each of ours in turn, in the process that serves and in a member."""

import os

from tests import running
from tests.kit import temporary_folder
from tests.node.cluster import NodeCase, Process, Scraper, open_files, ranks, values, wait_until

WARNING = "the program has closed descriptor"


def ours(process):
    """{number: what it refers to}"""
    return {number: target for number, target in open_files(process.pid).items()
            if target.startswith("socket:") or "nccl-pulse" in target}


class DescriptorsTest(NodeCase):

    def setUp(self):
        super().setUp()
        self.file = os.path.join(temporary_folder(self), "checkpoint")

    def pair(self, serves):
        """The process that is hit, which serves or is a member, and the other one."""
        processes = self.start_ranks(2)
        server = self.server_of(processes)
        return sorted(processes, key=lambda process: (process is server) != serves)

    def expect_both(self, process, other, count):
        """At whichever port each of them is by now."""
        for each in (process, other):
            each.ask("run 1")
        expected = {process.rank: count, other.rank: count}

        def shown():
            found = {}
            for port in range(self.port, self.port + 3):
                found.update(ranks(port))
            return found

        wait_until(lambda: shown() == expected, "both are served: %s" % shown())

    def hit(self, serves, index):
        """False where there are not so many."""
        process, other = self.pair(serves)
        descriptors = sorted(ours(process).items())  # by number: in the order in which they were opened
        if index >= len(descriptors):
            return False
        number, what = descriptors[index]
        with open(self.file, "w", encoding="ascii") as file:
            file.write("header\n")
        self.assertEqual(process.ask("put %d %s" % (number, self.file)), "ok")
        self.expect_both(process, other, 11)
        # More series need more memory.
        process.ask("busy stay")
        self.assertEqual(os.readlink("/proc/%d/fd/%d" % (process.pid, number)), self.file, what)
        with open(self.file, encoding="ascii") as file:
            self.assertEqual(file.read(), "header\n", what)
        self.assertLessEqual(process.log().count(WARNING), 1, process.log())
        self.assertNotIn(WARNING, other.log())
        for each in (process, other):
            each.kill()
        return True

    def hit_all(self, serves):
        index = 0
        while self.hit(serves, index):
            self.port += 10
            self.listen = "127.0.0.1:%d" % self.port
            index += 1
        self.assertGreaterEqual(index, 5)

    def test_one_of_the_server(self):
        self.hit_all(True)

    def test_one_of_a_member(self):
        self.hit_all(False)

    def all_at_once(self, serves):
        process, other = self.pair(serves)
        self.assertEqual(process.ask("close_from 3"), "ok")
        wait_until(lambda: WARNING in process.log(), "it is said")
        self.expect_both(process, other, 11)

    def test_all_of_the_server(self):
        self.all_at_once(True)

    def test_all_of_a_member(self):
        self.all_at_once(False)

    def test_nobody_takes_signals_of_the_job(self):
        process, other = self.pair(True)
        numbers = sorted(ours(process))
        for number in numbers:
            self.assertEqual(process.ask("event %d" % number), "ok")
        wait_until(lambda: WARNING in process.log(), "it is said")
        self.expect_both(process, other, 11)
        for number in numbers:
            with open("/proc/%d/fdinfo/%d" % (process.pid, number), encoding="ascii") as info:
                self.assertRegex(info.read(), r"eventfd-count: +7\b")

    def test_numbers_are_high(self):
        for process in self.start_ranks(2):
            for number, what in ours(process).items():
                self.assertGreater(number, 40, what)

    def test_what_a_job_without_output_prints_goes_nowhere(self):
        process = Process(0, self.listen, init=False)
        self.addCleanup(process.close)
        self.assertEqual(process.ask("close 2"), "ok")
        self.assertEqual(process.ask("init").rsplit(":", 1)[1], "%d/metrics" % self.port)
        process.ask("run 10")
        scraper = Scraper(self.port)
        wait_until(lambda: scraper.pages > 3, "pages were read")
        for _ in range(20):
            self.assertEqual(process.ask("print 2 20000"), "0")
        pages = scraper.pages
        wait_until(lambda: scraper.pages > pages, "and are read")
        scraper.stop()
        self.assertEqual(scraper.problems, [])
        self.assertNotIn(2, ours(process))
        self.assertEqual(values(self.port, "nccl_pulse_processes"), {(): 1})


if __name__ == "__main__":
    running.main(at_once=4)
