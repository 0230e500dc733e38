"""The last calls of a job that hangs: by the endpoint, by `pulse status --calls`, and by `pulse capture`; ranks that run
tests/gpu/proof_program on the stand-in for NCCL, with a shared endpoint."""

import json
import os
import pickle
import shutil
import subprocess
import tarfile
import tempfile
import unittest
import urllib.parse

from tests import running
from tests.fleet.ras_server import REPORT, Ras
from tests.kit import Server, reply
from tests.node import cluster
from tests.node.proof_job import Job, RANKS
from tests.timeline import perfetto

LAST = RANKS - 1


def pulse(*arguments, **options):
    """(exit status, output, errors)"""
    done = subprocess.run([cluster.PULSE] + list(arguments), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, **options)
    return done.returncode, done.stdout, done.stderr


class CaptureTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.port = cluster.free_port()
        cls.endpoint = "127.0.0.1:%d" % cls.port
        # Short: an NCCL unique id holds the name of a file in it.
        cls.folder = tempfile.TemporaryDirectory(prefix="ca", dir="/tmp")
        cls.ras = Ras()
        # By its name the stand-in for NCCL isn't one. What has the name may be any library.
        nccl = os.path.join(cls.folder.name, "libnccl.so.2.28.9")
        with open("/proc/self/maps", encoding="ascii") as maps:
            shutil.copy(next(line.split()[-1] for line in maps if "/libm.so" in line), nccl)
        cls.job = Job(cls.folder.name, cls.endpoint, "warm", "hang", LD_PRELOAD=nccl,
                      NCCL_RAS_ADDR=cls.ras.flag.split("=")[1])
        cls.job.report()
        cls.job.go_on()
        cluster.wait_until(lambda: cls.find_hang() is not None, "it hangs")

    @classmethod
    def tearDownClass(cls):
        cls.job.close()
        cls.ras.server.close()
        cls.folder.cleanup()

    @classmethod
    def find_hang(cls):
        answer = cluster.get(cls.port, "/api/v1/communicators")
        page = json.loads(answer[1]) if answer and answer[0] == 200 else {"communicators": []}
        return next((comm for comm in page["communicators"]
                     if comm["hang"] and comm["hang"]["verdict"] == "rank_not_called"), None)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="co", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "out")

    def get_calls(self, comm):
        """(status, text); the endpoint may have no processor time left, and says when to come back."""
        def answer():
            found = cluster.get(self.port, "/api/v1/communicators/%s/calls" % comm)
            return found and found[0] != 503 and found
        return cluster.wait_until(answer)

    def test_the_endpoint(self):
        comm = self.find_hang()["comm"]
        status, text = self.get_calls(comm)
        self.assertEqual(status, 200)
        page = json.loads(text)
        self.assertEqual((page["comm"], page["verdict"], page["suspects"]), (comm, "rank_not_called", [LAST]))
        self.assertEqual([rank["rank"] for rank in page["ranks"]], list(range(RANKS)))
        self.assertEqual([rank["kept"] for rank in page["ranks"]], [256] * RANKS)
        newest = [rank["calls"][-1] for rank in page["ranks"]]
        for call in newest[:LAST]:
            self.assertEqual((call["op"], call["state"]), ("AllReduce", "in_flight"))
            self.assertEqual(call["collective"], newest[LAST]["collective"] + 1)
        self.assertEqual(newest[LAST]["state"], "completed")
        for path, wanted in (("0" * 16, 404), ("g" * 16, 400), ("12", 400), ("", 400), ("%s0" % comm, 400)):
            self.assertEqual(self.get_calls(path)[0], wanted, path)
        self.assertEqual(cluster.get(self.port, "/api/v1/communicators/%s" % comm)[0], 404)

    def test_status(self):
        code, output, errors = pulse("status", "--calls", "--interval=250ms", self.endpoint)
        self.assertEqual((code, errors), (3, ""))
        self.assertRegex(output, r"\nHANG  Rank %d \(" % LAST)
        table = output[output.index("last collectives"):]
        self.assertIn(">> rank %d" % LAST, table)
        last_line = table.rstrip().splitlines()[-1]
        self.assertRegex(last_line, r"AllReduce .* not done +not done +> not called$")
        unknown = pulse("status", "--calls-of=" + "0" * 16, self.endpoint)[2]
        self.assertIn("communicator %s: not known here; `pulse status --all` lists all" % ("0" * 16), unknown)

    def test_a_folder(self):
        command = "printf 'stack of %s\\n' {pid}"
        code, output, errors = pulse("capture", "--endpoint=" + self.endpoint, "--out=" + self.out,
                                     "--hang-after=2s", "--stack-command=" + command)
        self.assertEqual((code, errors), (0, ""))
        # Each has a rank in several communicators.
        self.assertIn("last calls of %d processes\n" % RANKS, output)
        self.assertRegex(output, r"\nMissing \(missing\.txt has the reasons\): %d x nccl_log\.txt" % RANKS)

        def content(*path):
            with open(os.path.join(self.out, *path), encoding="utf-8") as file:
                return file.read()
        suspect = self.job.ranks[LAST].pid
        self.assertIn("pid %d" % suspect, content("verdict.txt"))
        self.assertEqual(content("stacks", "%d.txt" % suspect), "stack of %d\n" % suspect)
        self.assertIn("NCCL_PULSE_HANG_SECONDS=2", content("processes", str(suspect), "settings.txt"))
        endpoint = "endpoints/0001-127.0.0.1_%d" % self.port
        self.assertIn("nccl_operations_total", content(endpoint, "metrics.txt"))
        self.assertIn("communicators", json.loads(content(endpoint, "communicators.json")))
        calls = json.loads(content(endpoint, "calls", self.find_hang()["comm"] + ".json"))
        self.assertEqual(len(calls["ranks"]), RANKS)
        missing = content("missing.txt")
        self.assertIn("NCCL_DEBUG_FILE is not set", missing)
        if subprocess.call("command -v nvidia-smi", shell=True, stdout=subprocess.DEVNULL) != 0:
            self.assertIn("nvidia-smi", missing)

    def test_an_archive_and_a_program_that_does_not_end(self):
        path = self.out + ".tar.gz"
        code, _, errors = pulse("capture", "--endpoint=" + self.endpoint, "--endpoint=127.0.0.1:1",
                                "--out=" + path, "--stack-command=echo {pid}; sleep 600",
                                "--stack-timeout=500ms", "--hang-after=2s")
        self.assertEqual((code, errors), (4, "pulse: INCOMPLETE: 1 endpoint did not answer\n"))
        with tarfile.open(path) as archive:
            names = archive.getnames()
            missing = archive.extractfile("out/missing.txt").read().decode()
        self.assertIn("out/verdict.json", names)
        self.assertIn("out/stacks/%d.txt" % self.job.ranks[LAST].pid, names, "what it said until then")
        self.assertIn("it was ended after 500 ms", missing)
        self.assertIn("endpoint 127.0.0.1:1: ", missing)

    def test_what_ras_of_the_processes_says_is_kept_or_of_the_flag(self):
        other = Ras("{}")
        self.addCleanup(other.server.close)
        for flags, report in (((), REPORT), ((other.flag,), "{}")):
            out = self.out + str(len(flags))
            status, _, errors = pulse("capture", "--endpoint=" + self.endpoint, "--out=" + out, *flags)
            self.assertEqual(status, 0, errors)
            with open(os.path.join(out, "ras.json"), encoding="utf-8") as file:
                self.assertEqual(file.read(), report)

    def test_endpoints_of_a_prometheus_and_a_token(self):
        asked = []

        def prometheus(handler):
            url = urllib.parse.urlparse(handler.path)
            asked.append((url.path, handler.headers.get("Authorization")))
            labels = {"job": "nccl", "instance": "i0", "job_id": "77"}
            data = {"resultType": "vector", "result": [{"metric": labels, "value": [0, "1"]}]}
            if url.path == "/api/v1/targets":
                data = {"activeTargets": [{"labels": {"job": "nccl", "instance": "i0"},
                                           "scrapeUrl": "http://%s/metrics" % self.endpoint}]}
            reply(handler, {"status": "success", "data": data})

        server = Server(prometheus)
        self.addCleanup(server.end)
        token = self.out + ".token"
        with open(token, "w", encoding="ascii") as file:
            file.write("secret\n")
        status, out, err = pulse("capture", "--prometheus=http://" + server.name, "--prometheus-bearer-file=" + token,
                                 "--timeout=20s", "--out=" + self.out)
        self.assertEqual(status, 0, out + err)
        self.assertEqual(os.listdir(os.path.join(self.out, "endpoints")), ["0001-127.0.0.1_%d" % self.port])
        self.assertEqual({each for _, each in asked}, {"Bearer secret"})
        # At ports that are guessed anybody may listen.
        status, out, err = pulse("capture", "--bearer-file=" + token, "--out=" + self.out + "2")
        self.assertEqual(status, 1, out + err)
        self.assertIn("guessed ports", err)

    def check_trace(self, *source):
        """The hang as `pulse trace` draws it: the culprit is found by name."""
        path = self.out + ".pftrace"
        code, output, errors = pulse("trace", "--out=" + path, "--hang-after=2s", *source)
        self.assertEqual((code, errors), (0, ""))
        with open(path, "rb") as file:
            trace = perfetto.Trace(file.read())
        os.remove(path)
        suspect = self.job.ranks[LAST].pid
        self.assertIn("1 rank HAS NOT CALLED", output)
        culprit = trace.find_tracks("<< SUSPECT: rank_not_called")
        job, = trace.find_tracks("NCCL job")
        self.assertEqual([track.parent for track in culprit], [job.uuid, culprit[0].uuid])
        self.assertIn("pid %d " % suspect, culprit[0].name)
        missing, = trace.on("HAS NOT CALLED")[0]
        self.assertEqual((missing.track > culprit[1].uuid, trace.path(missing.track)[1]), (True, culprit[0].name))
        self.assertIsNone(missing.end_ns)
        open_, _ = trace.on("NOT ENDED")
        # A rank whose thread had not looked before the call that hangs knows of earlier ones no more than of that.
        self.assertEqual({(one.notes["op"], one.end_ns) for one in open_}, {("AllReduce", None)})
        self.assertEqual(len({one.track for one in open_}), LAST)
        hang, = trace.on("verdicts")[0]
        self.assertIn("HANG rank_not_called", hang.name)
        _, marks = trace.on("calls")
        joined = [mark for mark in marks if set(mark.flows) & set(missing.flows)]
        self.assertEqual(len(joined), LAST, "the call that one rank did not make, on the others")
        return trace

    def test_trace(self):
        live = self.check_trace("--duration=0.1s", "--endpoint=" + self.endpoint)
        path = self.out + ".tar.gz"
        code, _, errors = pulse("capture", "--endpoint=" + self.endpoint, "--out=" + path, "--hang-after=2s")
        self.assertEqual((code, errors), (0, ""))
        kept = self.check_trace("--from=" + path)
        marks = [sorted((trace.path(mark.track), mark.notes["number"], mark.name, mark.time_ns)
                        for mark in trace.on("calls")[1]) for trace in (live, kept)]
        self.assertEqual(*[[mark[:3] for mark in each] for each in marks], "nothing has gone on since")
        # By a clock that is put right once in a while.
        for one, other in zip(*marks):
            self.assertAlmostEqual(one[3], other[3], delta=1e6)
        for trace in (live, kept):
            clock, = [mark for mark in trace.on("about this trace")[1] if mark.name.startswith("clock of")]
            self.assertLessEqual(clock.notes["ahead_at_least_ns"], 0)
            self.assertGreaterEqual(clock.notes["ahead_at_most_ns"], 0)

    def test_flight_recorder(self):
        code, _, errors = pulse("capture", "--endpoint=" + self.endpoint, "--out=" + self.out,
                                "--format=flight-recorder")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(sorted(os.listdir(self.out)),
                         ["missing.txt"] + ["nccl_trace_rank_%d" % rank for rank in range(RANKS)])
        comm = self.find_hang()["comm"]
        last = []
        for rank in range(RANKS):
            with open(os.path.join(self.out, "nccl_trace_rank_%d" % rank), "rb") as file:
                dump = pickle.load(file)
            self.assertEqual(dump["pg_config"][comm]["ranks"], str(list(range(RANKS))))
            last.append([entry for entry in dump["entries"] if entry["process_group"][0] == comm][-1])
        self.assertEqual(last[0]["profiling_name"], "nccl:all_reduce")
        self.assertGreater(last[0]["collective_seq_id"], last[LAST]["collective_seq_id"])
        self.assertNotEqual(last[0]["state"], "completed")
        self.assertEqual(last[LAST]["state"], "completed")

    def test_a_full_disk_leaves_nothing(self):
        # Every file that is written is too large for it: as on a full disk, but for the words.
        limit = ["prlimit", "--fsize=512"]
        for end in ("", ".tar.gz"):
            done = subprocess.run([*limit, cluster.PULSE, "capture", "--endpoint=" + self.endpoint, "--out=" + self.out + end],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (5, ""), done.stderr)
            self.assertRegex(done.stderr, r"cannot write %s[^ ]*: File too large" % self.out)
            self.assertEqual(os.listdir(os.path.dirname(self.out)), [])


if __name__ == "__main__":
    running.main()
