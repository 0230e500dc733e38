"""The replay as a program: what it says when something is wrong, and how it is stopped."""

import glob
import lzma
import os
import re
import signal
import subprocess

from tests import running
from tests.kit import wait_until
from tests.replay.replay_case import NO_PLUGIN, PATIENCE_S, RECORDER, ReplayTest
from tests.replay.replayed_run import REPLAY, trace_files, trace_folder


class Problems(ReplayTest):
    """Each has a message of its own and an exit status of its own."""

    def check(self, status, message, folder, *flags, **options):
        found, _, err = self.replay(folder, "--speed=0", *flags, **options)
        self.assertEqual(found, status, err)
        self.assertRegex(err, message)

    def write(self, name, content):
        os.makedirs(self.path("traces"), exist_ok=True)
        mode = "wb" if isinstance(content, bytes) else "w"
        with open(os.path.join(self.path("traces"), name), mode) as file:
            file.write(content)
        return self.path("traces")

    def test_folders(self):
        self.check(2, "cannot open the trace folder .*nowhere", self.path("nowhere"))
        os.makedirs(self.path("empty"))
        self.check(3, "no \\*.jsonl or \\*.jsonl.xz file in .*empty", self.path("empty"))

    def test_broken_lines(self):
        init = ('{"t":1,"tid":1,"cb":"init","ctx":1,"commId":"1","commName":"","nNodes":1,'
                '"nranks":1,"rank":0,"mask":0,"pid":1}\n')
        for line, reason in (
                ('{"t":1,', "parse error"),
                ("[]", "not a JSON object"),
                ('{"tid":1,"cb":"stop","h":1}', 'field "t" is missing'),
                ('{"t":1,"tid":1,"cb":"halt"}', 'unknown callback "halt"'),
                ('{"t":1,"tid":1,"cb":"stop","h":7}', "names handle 7, which never started"),
                ('{"t":1,"tid":1,"cb":"finalize","ctx":9}', "ctx 9 was never initialized"),
                ('{"t":"now","tid":1,"cb":"finalize","ctx":1}', 'field "t" is not an integer'),
                ('{"t":1,"tid":1,"cb":"start","ctx":1,"type":"dance","parent":0,"rank":0,"h":1}',
                 'unknown event type "dance"')):
            folder = self.write("process0.jsonl", init + line + "\n")
            self.check(4, r"process0\.jsonl:2: .*" + re.escape(reason), folder)

    def test_broken_files(self):
        with open(trace_files("h200x2-graph")[0], "rb") as whole:
            content = whole.read()
        self.check(4, "not a whole xz file", self.write("process0.jsonl.xz", content[:-100]))
        self.check(4, "holds no callback", self.write("process0.jsonl.xz", lzma.compress(b"")))

    def test_libraries(self):
        folder = trace_folder("h200x2-graph")
        self.check(5, "cannot load the library: .*nowhere.so", folder, library="/nowhere.so")
        self.check(6, "does not export ncclProfiler_v5", folder, "--api=5", library=NO_PLUGIN)
        self.check(6, "exports none of", folder, library=NO_PLUGIN)

    def test_usage(self):
        folder = trace_folder("h200x2-graph")
        for flags in (["--api=8"], ["--clock=sundial"], ["--speed=-1"], ["--hold=-1"],
                      ["--no_such_flag"], ["--repeat=some"], [folder]):
            status, _, err = self.replay(folder, *flags)
            self.assertEqual(status, 1, flags)
            self.assertTrue(err, flags)

    def test_crash(self):
        self.check(7, r"process\d\.jsonl\.xz \(pid \d+\) was killed by signal 6 \(Aborted\)",
                   trace_folder("h200x2-graph"), ABORT=100)


class Interruption(ReplayTest):

    def start(self, *arguments, **settings):
        process = subprocess.Popen([REPLAY, *arguments], text=True, env=self.environment(settings),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    def stop(self, process):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(err, "")
        return out

    def test_ctrl_c_finalizes(self):
        process = self.start("--library=" + RECORDER, "--speed=0.1", trace_folder("h200x2-net-mixed"))
        self.assertIn("http://nowhere:1/", process.stdout.readline())
        wait_until(lambda: self.are_amid_calls(2), "both make calls")
        self.stop(process)
        self.assertEqual(process.returncode, 130)
        processes = self.calls()
        self.assertEqual(len(processes), 2)
        for calls in processes:
            self.assertEqual(sum(c.kind == "init" for c in calls), sum(c.kind == "finalize" for c in calls))

    def are_amid_calls(self, processes):
        """Whether so many have started something."""
        started = 0
        for path in glob.glob(self.path("calls") + ".*"):
            with open(path, encoding="utf-8") as file:
                started += " start " in file.read()
        return started == processes

    def test_hold(self):
        process = self.start("--library=" + RECORDER, "--speed=0", "--hold=60", trace_folder("h200x2-graph"))
        lines = iter(process.stdout.readline, "")
        self.assertTrue(any(line.endswith("; holding\n") for line in lines))
        self.assertIsNone(process.poll())
        self.stop(process)
        self.assertEqual(process.returncode, 130)

    def test_children_go_with_their_parent(self):
        process = self.start("--library=" + RECORDER, "--speed=0", "--hold=60", trace_folder("h200x2-graph"))
        lines = iter(process.stdout.readline, "")
        self.assertTrue(any(line.endswith("; holding\n") for line in lines))
        pids = [int(path.split(".")[-1]) for path in glob.glob(self.path("calls") + ".*")]
        self.assertEqual(len(pids), 2)
        process.kill()
        process.wait()
        wait_until(lambda: not any(map(self.alive, pids)), "they have ended")

    @staticmethod
    def alive(pid):
        try:
            with open("/proc/%d/stat" % pid) as stat:
                return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False


if __name__ == "__main__":
    running.main()
