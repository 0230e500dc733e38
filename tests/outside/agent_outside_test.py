"""A hang of a job without the plugin, by the programs: the agent finds it, and metrics, watch and verdict follow."""

import itertools
import json
import os
import subprocess
import tarfile
import time
import unittest

from tests import running
from tests.deploy import alertmanager_server, servers
from tests.deploy.prometheus_server import Prometheus
from tests.fleet.ras_server import REPORT, Ras
from tests.kit import PULSE, RUNFILES, free_port, get, temporary_folder, wait_until
from tests.outside import pod, rank_without_plugin

NVML = os.path.join(RUNFILES, "tests/outside")


class AgentOutsideTest(unittest.TestCase):

    def setUp(self):
        self.folder = temporary_folder(self)
        self.nvml, self.ending = os.path.join(self.folder, "nvml"), 0

    def begin(self, ras, host="127.0.0.1", missing=(), **options):
        """Three ranks of a job that moves. `options`: of Popen."""
        self.ras, self.counts, self.host, self.missing = ras, [500, 499, 500], host, list(missing)
        self.addCleanup(self.ras.server.close)
        environment = dict(os.environ, NCCL_RAS_ADDR=self.ras.flag.split("=")[1], WORLD_SIZE="3")
        self.ranks = [rank_without_plugin.start(self, rank, environment, **options) for rank in range(3)]
        self.report()
        self.set_gpus([(100, 40)] * 3)

    def start(self, command, **options):
        process = subprocess.Popen(command, **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def report(self):
        ranks = [{"rank": rank, "host": self.host, "pid": process.pid, "cuda_dev": rank, "nvml_dev": rank,
                  "status": {"init_state": 0, "async_error": 0},
                  "collective_counts": {"Broadcast": 0, "AllReduce": count}}
                 for rank, (process, count) in enumerate(zip(self.ranks, self.counts))]
        self.ras.answers["STATUS"] = json.dumps({"nccl_version": "2.28.9", "communicators": [
            {"hash": "0x51", "secondary_hash": "0x1", "size": 3 + len(self.missing), "ranks": ranks,
             "missing_ranks": self.missing}]}).encode()

    def set_gpus(self, uses):
        with open(self.nvml + ".new", "w", encoding="utf-8") as file:
            for (kernels, memory), rank in zip(uses, self.ranks):
                file.write("%d %d %d %d\n" % (kernels, memory, rank.pid, self.ending))
        os.replace(self.nvml + ".new", self.nvml)

    def agent(self, *flags, **options):
        port = free_port()
        self.start([PULSE, "agent", "--listen=127.0.0.1:%d" % port, "--hang-after=3s", *flags],
                   env=dict(os.environ, LD_LIBRARY_PATH=NVML, SAID_NVML=self.nvml), **options)
        return port

    def capturing_agent(self, *flags):
        captures = os.path.join(self.folder, "captures")
        os.mkdir(captures)
        return captures, self.agent("--capture-dir=" + captures, "--time-limit=20s", *flags)

    def watch(self, agent):
        port = free_port()
        self.start([PULSE, "watch", "--listen=127.0.0.1:%d" % port, "127.0.0.1:%d" % agent])
        return port

    @staticmethod
    def lines_of(port, begin):
        return [line for line in (get(port) or (0, ""))[1].splitlines() if line.startswith(begin)]

    def test_a_hang_is_one_like_any_other(self):
        self.begin(Ras())
        captures, port = self.capturing_agent()
        wait_until(lambda: get(port, "/healthz"), "the agent serves")
        page = lambda: json.loads(wait_until(lambda: get(port, "/api/v1/communicators"))[1])
        wait_until(lambda: page()["without_plugin"], "the agent lists them")
        self.assertEqual([(each["pid"], each["global_rank"], each["gpus"]) for each in page()["without_plugin"]],
                         [(process.pid, str(rank), [rank]) for rank, process in enumerate(self.ranks)])
        shown = subprocess.run([PULSE, "status", "127.0.0.1:%d" % port], capture_output=True, text=True, check=False)
        self.assertIn("pid %d, rank 2, GPU 2, NCCL 2.28.9, for " % self.ranks[2].pid, shown.stdout)
        self.set_gpus([(100, 0), (0, 0), (100, 0)])
        hangs = lambda: self.lines_of(port, "nccl_hang_start_timestamp_seconds{")
        wait_until(hangs, "the agent finds it")
        self.assertIn('verdict="rank_not_called"', hangs()[0])
        self.assertIn('rank="1"', hangs()[0])
        # A rank without the plugin has no numbers.
        self.assertEqual(self.lines_of(port, "nccl_launches_total{"), [])
        found = subprocess.run([PULSE, "diagnose", "127.0.0.1:%d" % port], capture_output=True, text=True, check=False)
        self.assertEqual(found.returncode, 3, found.stdout)
        self.assertIn("has launched less than the others", found.stdout)
        watch = self.watch(port)
        jobs = lambda: self.lines_of(watch, "nccl_job_hang_start_timestamp_seconds{")
        wait_until(jobs, "the watch finds it")
        for label in ('source="outside"', 'rank="1"', 'pid="%d"' % self.ranks[1].pid, 'verdict="rank_not_called"'):
            self.assertIn(label, jobs()[0])
        self.check_capture(captures)
        # It goes on.
        self.set_gpus([(100, 40)] * 3)
        wait_until(lambda: not hangs(), "it is withdrawn")
        wait_until(lambda: not jobs(), "the watch withdraws it")

    def test_the_page_names_the_rank(self):
        prometheus = servers.path_or_skip("prometheus")
        self.begin(Ras())
        webhook, alertmanager = alertmanager_server.start(self)
        port = self.agent()
        watch = self.watch(port)
        server = Prometheus(temporary_folder(self), program=prometheus, alertmanager=alertmanager.name, hung_s=4)
        self.addCleanup(server.end)
        server.scrape("nccl-pulse", ["127.0.0.1:%d" % port])
        server.scrape("nccl-pulse-watch", ["127.0.0.1:%d" % watch])
        self.set_gpus([(100, 0), (0, 0), (100, 0)])
        pages = lambda: [alert["labels"] for path, alert in list(webhook.alerts) if path == "/page"]
        wait_until(pages, "somebody is called")
        page = pages()[0]
        self.assertEqual([page.get(name) for name in ("alertname", "source", "global_rank", "pid", "gpu", "verdict")],
                         ["NcclJobHungLong", "outside", "1", str(self.ranks[1].pid), "1", "rank_not_called"])
        self.assertEqual(server.failing_rules(), [])

    def check_capture(self, captures):
        kept = lambda: [name for name in os.listdir(captures) if name.endswith(".tar.gz")]
        wait_until(kept, "it is captured")
        with tarfile.open(os.path.join(captures, kept()[0])) as archive:
            files = {name.partition("/")[2]: archive.extractfile(name).read().decode() for name in archive.getnames()
                     if archive.getmember(name).isfile()}
        self.assertEqual(files["ras.json"], self.ras.answers["STATUS"].decode(), files["missing.txt"])
        gpus = json.loads(files["gpus.json"])
        self.assertEqual([each["pids"] for each in gpus], [[rank.pid] for rank in self.ranks])
        self.assertEqual({percent for _, percent in gpus[1]["kernel_percent"]}, {0})
        self.assertEqual({percent for _, percent in gpus[2]["kernel_percent"]}, {100})
        for rank in self.ranks:
            state = files["processes/%d/state.txt" % rank.pid]
            self.assertRegex(state, r"\nState: S \(sleeping\)\n")
            self.assertRegex(state, r"\ncgroup:\n.*:/")
            self.assertRegex(state, r"\nthreads:\n%d S \S+ python" % rank.pid)

    def test_captures_ask_in_the_network_of_a_container(self):
        # Another job's, in the network of the agent and the captures.
        other = Ras()
        self.addCleanup(other.server.close)
        ras, enter = pod.start(self, other.server.getsockname()[1])
        silent = {"rank": 3, "host": "192.0.2.8", "pid": 7, "cuda_dev": 0, "nvml_dev": 0,
                  "status": {"unresponsive": True, "considered_dead": False}}
        self.begin(ras, pod.ADDRESS, [silent], preexec_fn=enter)
        self.set_gpus([(100, 0), (0, 0), (100, 0)])
        captures, port = self.capturing_agent("--enter-namespaces")
        self.check_capture(captures)

        def capture(name, *flags):
            out = os.path.join(self.folder, name)
            subprocess.run([PULSE, "capture", "127.0.0.1:%d" % port, "--out=" + out, *flags], check=False, timeout=100,
                           env=dict(os.environ, NCCL_RAS_ADDR=other.flag.split("=")[1]), stdout=subprocess.DEVNULL)
            read = {}
            for file in ("ras.json", "missing.txt"):
                if os.path.exists(os.path.join(out, file)):
                    with open(os.path.join(out, file), encoding="utf-8") as opened:
                        read[file] = opened.read()
            return read.get("ras.json"), read["missing.txt"].splitlines()

        elsewhere = "3 processes use RAS in another network namespace. Next: kubectl exec POD -- pulse diagnose"
        def is_told(report, lines):
            self.assertIsNone(report)
            return any(elsewhere in line for line in lines)

        # A busy machine may leave out processes whose files in /proc do not answer in time.
        attempts = itertools.count()
        wait_until(lambda: is_told(*capture("outside%d" % next(attempts))), "the capture tells of all three")
        self.assertEqual(capture("inside", "--enter-namespaces")[0], ras.answers["STATUS"].decode())

        def diagnose(*flags):
            run = subprocess.run([PULSE, "diagnose", "127.0.0.1:%d" % port, "--json", *flags], check=False, timeout=100,
                                 env=dict(os.environ, NCCL_RAS_ADDR=other.flag.split("=")[1]), stdout=subprocess.PIPE)
            verdict = json.loads(run.stdout)
            return verdict["ras"], [note for note in verdict["notes"] if elsewhere in note]

        wait_until(lambda: is_told(*diagnose()), "diagnose tells of all three")
        found, notes = diagnose("--enter-namespaces")
        self.assertEqual((found["report"].strip(), notes), (ras.answers["STATUS"].decode(), []))
        log = os.path.join(self.folder, "log")
        with open(log, "w", encoding="utf-8") as file:
            self.agent(stderr=file)
        said = lambda: [line for line in open(log, encoding="utf-8") if elsewhere in line]
        wait_until(said, "the agent says which it can't ask")
        self.assertEqual(other.heard, [])
        # The address of the flag is asked whatever runs here, and nothing with `off`.
        self.assertEqual(capture("flag", other.flag)[0], REPORT)
        self.assertEqual(capture("off", "--enter-namespaces", "--ras=off")[0], None)

    def test_diagnose_beside_an_agent_says_a_note_once(self):
        # A network of its own: the command asks every endpoint of its host.
        ras, enter = pod.start(self, 28028)
        self.begin(ras, preexec_fn=enter)
        self.counts = [500] * 3
        self.report()
        self.ras.answers["STATUS"] = self.ras.answers["STATUS"].replace(b'"Broadcast": 0', b'"Broadcast": 10', 1)
        self.set_gpus([(100, 0)] * 3)
        environment = dict(os.environ, LD_LIBRARY_PATH=NVML, SAID_NVML=self.nvml)
        self.start([PULSE, "agent", "--listen=127.0.0.1:9410", "--hang-after=3s"], env=environment, preexec_fn=enter)

        def diagnose(*addresses):
            return subprocess.run([PULSE, "diagnose", *addresses], env=environment, preexec_fn=enter, check=False,
                                  capture_output=True, text=True).stdout

        note = "Ranks 1 and 2 have launched 0 Broadcast, another one 10."
        wait_until(lambda: note in diagnose("127.0.0.1:9410"), "the agent says it")
        self.assertEqual(diagnose().count(note), 1)

    def test_a_healthy_job_is_never_asked(self):
        # Processes of the job before, whose driver is slow, share no GPU.
        ending = self.start(["true"])
        os.waitid(os.P_PID, ending.pid, os.WEXITED | os.WNOWAIT)
        self.ending = ending.pid
        self.begin(Ras())
        self.counts = [500] * 3
        self.report()
        port = self.agent()
        quiet = self.agent("--without-plugin=off")
        self.set_gpus([(100, 0), (0, 0), (100, 0)])
        wait_until(lambda: self.lines_of(port, "nccl_hang_start_timestamp_seconds{"), "the agent finds it")
        self.assertEqual(self.lines_of(quiet, "nccl_hang_start_timestamp_seconds{"), [])
        self.set_gpus([(100, 40)] * 3)
        wait_until(lambda: not self.lines_of(port, "nccl_hang_start_timestamp_seconds{"), "it is withdrawn")
        asked = len(self.ras.heard)
        time.sleep(6)  # three rounds: nothing is to be seen of them
        self.assertEqual(len(self.ras.heard), asked)


if __name__ == "__main__":
    running.main(at_once=3)
