"""The replay itself: what a plugin is given, through a plugin that writes down every call.

What NCCL does is stated here a second time, from the same facts (header of plugin/replay/reduction.h and
driver.h), over the trace as JSON.
"""

import collections
import glob
import lzma
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

from tests import running
from tests.reference import reference
from tests.replay.replayed_run import PULSE, RUNFILES, trace_files, trace_folder

RECORDER = os.path.join(RUNFILES, "tests/replay/librecording_plugin.so")
NO_PLUGIN = os.path.join(RUNFILES, "tests/replay/libno_plugin.so")

BITS = {"group": 0x1, "coll": 0x2, "p2p": 0x4, "proxyOp": 0x8, "proxyStep": 0x10, "proxyCtrl": 0x20,
        "kernelCh": 0x40, "groupApi": 0x100, "collApi": 0x200, "p2pApi": 0x400, "kernelLaunch": 0x800}
TYPES = {bit: name for name, bit in BITS.items()}

ALL = 0xfff
PATIENCE_S = 240  # for a broken build to end; a slow machine is no failure

Call = collections.namedtuple("Call", "thread time_ns kind handle arguments")


def parse_call(line):
    thread, time_ns, kind, *rest = line.split()
    if kind in ("init", "finalize"):
        return Call(int(thread), int(time_ns), kind, None, rest)
    return Call(int(thread), int(time_ns), kind, int(rest[0]), rest[1:])


class ReplayTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def environment(self, settings):
        return dict(os.environ, RECORDING_PLUGIN_FILE=self.path("calls"),
                    **{"RECORDING_PLUGIN_" + name: str(value) for name, value in settings.items()})

    def replay(self, folder, *flags, library=RECORDER, **settings):
        """Runs `pulse replay` to its end; returns (status, stdout, stderr)."""
        result = subprocess.run([PULSE, "replay", "--library=" + library, *flags, folder], text=True,
                                capture_output=True, env=self.environment(settings), timeout=PATIENCE_S)
        return result.returncode, result.stdout, result.stderr

    def calls(self):
        """Calls by process, in the order of the processes."""
        processes = []
        for path in sorted(glob.glob(self.path("calls") + ".*"), key=lambda p: int(p.split(".")[-1])):
            with open(path) as lines:
                processes.append([parse_call(line) for line in lines])
            os.remove(path)
        return processes

    def recorded(self, run, *flags, **settings):
        status, out, err = self.replay(trace_folder(run), "--speed=0", *flags, **settings)
        self.assertEqual(status, 0, err)
        return self.calls()


class Sequence(ReplayTest):
    """Everything asked for: the plugin gets what was recorded."""

    def test_every_call_in_order_on_its_thread(self):
        for run in ("h200x2-threads", "h200x2-net-mixed", "h200x2-graph"):
            processes = self.recorded(run, "--api=5")
            self.assertEqual(len(processes), len(trace_files(run)))
            for calls, path in zip(processes, trace_files(run)):
                self.check_same(reference.load(path), calls)

    def check_same(self, events, calls):
        self.assertEqual([e["cb"] for e in events], [c.kind for c in calls])
        threads, handles, types = {}, {0: 0}, {}
        for event, call in zip(events, calls):
            self.assertEqual(threads.setdefault(event["tid"], call.thread), call.thread)
            if event["cb"] == "init":
                comm_id, name, nnodes, nranks, rank, _ = call.arguments
                self.assertEqual(
                    (int(comm_id, 16), name, int(nnodes), int(nranks), int(rank)),
                    (int(event["commId"], 16), event["commName"] or "-", event["nNodes"],
                     event["nranks"], event["rank"]))
            elif event["cb"] == "start":
                handles[event["h"]] = call.handle
                types[event["h"]] = event["type"]
                _, bit, parent, rank, *details = call.arguments
                self.assertEqual(TYPES[int(bit, 16)], event["type"])
                self.assertEqual(int(parent), handles[event["parent"]])
                self.assertEqual(int(rank), event["rank"])
                self.check_details(event, details, handles)
            elif event["cb"] == "stop":
                self.assertEqual(call.handle, handles[event["h"]])
            elif event["cb"] == "state":
                self.assertEqual(call.handle, handles[event["h"]])
                self.assertEqual(int(call.arguments[0]), event["state"])
                if types[event["h"]] == "groupApi":
                    self.assertEqual(call.arguments[1], "null")
                else:
                    value = event.get("pTimer", event.get("transSize", event.get("appended", 0)))
                    self.assertEqual(int(call.arguments[1]), value)
        self.assertEqual(len(set(threads.values())), len(threads))

    def check_details(self, event, details, handles):
        if event["type"] == "coll":
            self.assertEqual(details, [
                event["func"], str(event["count"]), event["datatype"], event["algo"],
                event["proto"], str(event["seqNumber"]), str(event["nChannels"]),
                str(handles[event["parentGroup"]])])
        elif event["type"] == "p2p":
            self.assertEqual(details, [
                event["func"], str(event["count"]), event["datatype"], str(event["peer"]),
                str(event["nChannels"]), str(handles[event["parentGroup"]])])
        elif event["type"] == "kernelCh":
            self.assertEqual(details, [str(event["channelId"]), str(event["pTimer"])])
        elif event["type"] == "collApi":
            self.assertEqual(details, [event["func"], str(event["count"]),
                                       str(event["graphCaptured"])])

    def test_recorded_clock_shows_the_recorded_times(self):
        for speed in ("0", "1"):
            calls, = self.recorded("h200x2-threads", "--clock=recorded", "--speed=" + speed)
            times = [event["t"] for event in reference.load(trace_files("h200x2-threads")[0])]
            self.assertEqual([call.time_ns for call in calls], times)

    def test_speed(self):
        for speed, least_s, most_s in (("1", 0.6, 3), ("4", 0.15, 2)):
            start = time.monotonic()
            self.recorded("h200x2-graph", "--speed=" + speed)
            self.assertTrue(least_s < time.monotonic() - start < most_s, speed)

    def test_repetitions_are_new_communicators(self):
        for calls in self.recorded("h200x2-graph", "--repeat=3"):
            ids = [int(call.arguments[0], 16) for call in calls if call.kind == "init"]
            self.assertEqual([number ^ ids[0] for number in ids], [0, 1, 2])
            self.assertEqual(sum(call.kind == "finalize" for call in calls), 3)


class Reduction(ReplayTest):
    """Less asked for, or an older version: the plugin gets less."""

    def starts(self, run, *flags, **settings):
        """Number of starts by type, over all processes."""
        processes = self.recorded(run, *flags, **settings)
        counter = collections.Counter()
        for calls in processes:
            counter.update(TYPES[int(c.arguments[1], 16)] for c in calls if c.kind == "start")
        return counter

    def recorded_starts(self, run, *types):
        counter = collections.Counter()
        for path in trace_files(run):
            counter.update(e["type"] for e in reference.load(path) if e["cb"] == "start")
        return collections.Counter({t: n for t, n in counter.items() if t in types})

    def test_masks(self):
        for mask, types in (
                ("0", ()),
                ("0x20", ("proxyCtrl",)),
                ("0x100", ("groupApi",)),
                ("0x200", ("groupApi", "collApi")),
                ("0x800", ("groupApi", "kernelLaunch")),
                ("0x2", ("groupApi", "collApi", "group", "coll")),
                ("0x4", ("groupApi", "p2pApi", "group", "p2p")),
                ("0x8", ("groupApi", "collApi", "p2pApi", "group", "coll", "p2p", "proxyOp")),
                ("0x10", ("groupApi", "collApi", "p2pApi", "group", "coll", "p2p", "proxyOp",
                          "proxyStep")),
                ("0x40", ("groupApi", "collApi", "p2pApi", "group", "coll", "p2p", "kernelCh"))):
            self.assertEqual(self.starts("h200x2-net-mixed", "--api=6", MASK=mask),
                             self.recorded_starts("h200x2-net-mixed", *types), mask)

    def test_version_4(self):
        calls = self.recorded("h200x2-net-mixed", "--api=4")[0]
        types = {c.handle: TYPES[int(c.arguments[1], 16)] for c in calls if c.kind == "start"}
        self.assertEqual(set(types.values()), {"group", "coll", "p2p", "proxyOp", "proxyStep",
                                               "proxyCtrl", "kernelCh"})
        for call in calls:
            if call.kind == "start" and types[call.handle] in ("coll", "p2p"):
                self.assertEqual(types[int(call.arguments[2])], "group")
                if types[call.handle] == "p2p":
                    self.assertEqual(call.arguments[-1], str(0xa5))  # not written by NCCL
            if call.kind == "state":
                self.assertLess(int(call.arguments[0]), 23)

    def test_version_3(self):
        calls = self.recorded("h200x2-net-mixed", "--api=3")[0]
        kinds = collections.Counter(TYPES[int(c.arguments[1], 16)] for c in calls
                                    if c.kind == "start")
        self.assertGreater(kinds["kernelCh"], 0)
        self.assertFalse(kinds["collApi"])
        for call in calls:
            if call.kind == "state":
                self.assertIn(int(call.arguments[0]), range(8, 19))
            if call.kind == "start" and int(call.arguments[1], 16) == BITS["coll"]:
                self.assertEqual(call.arguments[-2:], ["-", "0"])  # no name, no hash

    def test_versions_2_and_1(self):
        for version, function in ((2, "AllReduce"), (1, "4")):
            calls = self.recorded("h200x2-net-mixed", "--api=%d" % version)[0]
            starts = [c for c in calls if c.kind == "start"]
            self.assertLess(max(int(c.arguments[1], 16) for c in starts), BITS["kernelCh"])
            first = next(c for c in starts if int(c.arguments[1], 16) == BITS["coll"])
            self.assertEqual(first.arguments[4], function)

    def test_captured_operations_come_once_without_kernel_channels(self):
        for calls in self.recorded("h200x2-graph", "--api=5", MASK="0x2"):
            colls = [c for c in calls if c.kind == "start" and int(c.arguments[1], 16) == 0x2]
            self.assertEqual([int(c.arguments[9]) for c in colls], [0, 1] + 10 * [2])
            # Each inside its own call's GroupApi, on the thread that called.
            open_groups, open_colls = set(), set()
            for call in calls:
                bit = int(call.arguments[1], 16) if call.kind == "start" else 0
                if bit == BITS["groupApi"]:
                    open_groups.add(call.handle)
                elif bit == BITS["coll"]:
                    self.assertEqual(len(open_groups), 1)
                    open_colls.add(call.handle)
                elif call.kind == "stop":
                    open_groups.discard(call.handle)
                    open_colls.discard(call.handle)
            self.assertFalse(open_colls)

    def test_null_handles(self):
        calls = self.recorded("h200x2-net-mixed", "--api=5", NULL=BITS["coll"])[0]
        self.assertNotIn(0, [c.handle for c in calls if c.kind in ("stop", "state")])
        parents = {bit: [c.arguments[2] for c in calls
                         if c.kind == "start" and int(c.arguments[1], 16) == BITS[bit]]
                   for bit in ("proxyOp", "kernelCh", "proxyStep")}
        self.assertIn("0", parents["proxyOp"])
        self.assertIn("0", parents["kernelCh"])
        self.assertNotIn("0", parents["proxyStep"])

    def test_states_of_steps_need_their_operation(self):
        calls = self.recorded("h200x2-net-mixed", "--api=5", NULL=BITS["proxyOp"])[0]
        steps = {c.handle for c in calls
                 if c.kind == "start" and int(c.arguments[1], 16) == BITS["proxyStep"]}
        self.assertTrue(steps)
        self.assertFalse(steps & {c.handle for c in calls if c.kind == "state"})
        self.assertTrue(steps & {c.handle for c in calls if c.kind == "stop"})


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
        process = subprocess.Popen([PULSE, *arguments], text=True, env=self.environment(settings),
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
        process = self.start("replay", "--library=" + RECORDER, "--speed=0.1",
                             trace_folder("h200x2-nvlink-mixed"))
        self.assertIn("http://nowhere:1/", process.stdout.readline())
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and not self.are_amid_calls(2):
            time.sleep(0.01)
        self.stop(process)
        self.assertEqual(process.returncode, 130)
        processes = self.calls()
        self.assertEqual(len(processes), 2)
        for calls in processes:
            self.assertEqual(sum(c.kind == "init" for c in calls),
                             sum(c.kind == "finalize" for c in calls))

    def are_amid_calls(self, processes):
        """Whether so many have started something."""
        started = 0
        for path in glob.glob(self.path("calls") + ".*"):
            with open(path, encoding="utf-8") as file:
                started += " start " in file.read()
        return started == processes

    def test_hold(self):
        process = self.start("replay", "--library=" + RECORDER, "--speed=0", "--hold=60",
                             trace_folder("h200x2-graph"))
        lines = iter(process.stdout.readline, "")
        self.assertTrue(any(line.endswith("; holding\n") for line in lines))
        self.assertIsNone(process.poll())
        self.stop(process)
        self.assertEqual(process.returncode, 130)

    def test_children_go_with_their_parent(self):
        process = self.start("replay", "--library=" + RECORDER, "--speed=0", "--hold=60",
                             trace_folder("h200x2-graph"))
        lines = iter(process.stdout.readline, "")
        self.assertTrue(any(line.endswith("; holding\n") for line in lines))
        pids = [int(path.split(".")[-1]) for path in glob.glob(self.path("calls") + ".*")]
        self.assertEqual(len(pids), 2)
        process.kill()
        process.wait()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and any(map(self.alive, pids)):
            time.sleep(0.05)
        self.assertFalse([pid for pid in pids if self.alive(pid)])

    @staticmethod
    def alive(pid):
        try:
            with open("/proc/%d/stat" % pid) as stat:
                return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    def test_demo_loops_until_ctrl_c(self):
        process = self.start("demo", "--recorded", "--library=" + RECORDER)
        lines = iter(process.stdout.readline, "")
        self.assertTrue(any("http://nowhere:1/" in line for line in lines))
        # New communicators each time would stay on the page: it would swell.
        errors = iter(process.stderr.readline, "")
        self.assertTrue(any("run 2" in line for line in errors))
        self.stop(process)
        self.assertEqual(process.returncode, 0)
        for calls in self.calls():
            made = [call.arguments[0] for call in calls if call.kind == "init"]
            self.assertEqual(len(made), len(set(made)))
            self.assertEqual(len(made), sum(call.kind == "finalize" for call in calls))
            self.check_gpu_time_goes_on(calls)

    def check_gpu_time_goes_on(self, calls):
        """A kept communicator's timestamps do not run backwards from one run to the next."""
        times = [int(call.arguments[-1]) for call in calls
                 if call.kind == "start" and TYPES.get(int(call.arguments[1], 16)) == "kernelCh"]
        self.assertTrue(times)
        # Blocks of one launch differ by microseconds, streams by less than a second.
        latest = 0
        for time_ns in times:
            self.assertGreater(time_ns, latest - 10**9)
            latest = max(latest, time_ns)


class Help(ReplayTest):

    def test_help(self):
        for arguments, words in (([], "pulse demo"), (["help"], "usage: pulse COMMAND"),
                                 (["--help"], "replay"), (["replay", "--help"], "--speed"),
                                 (["help", "replay"], "--speed"), (["demo", "--help"], "Ctrl-C"),
                                 (["--version"], "pulse ")):
            result = subprocess.run([PULSE, *arguments], text=True, capture_output=True,
                                    timeout=PATIENCE_S)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn(words, result.stdout)
        for arguments, words in ((["dance"], "usage: pulse"), (["help", "dance"], "usage: pulse"),
                                 (["stauts"], 'did you mean "status"?')):
            result = subprocess.run([PULSE, *arguments], text=True, capture_output=True,
                                    timeout=PATIENCE_S)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn(words, result.stderr)


if __name__ == "__main__":
    running.main()
