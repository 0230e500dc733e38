"""`pulse diagnose --flight-recorder`: dumps as PyTorch writes them, good and bad ones, and who is named."""

import json
import os
import pickle
import shutil
import subprocess
import tempfile
import unittest

from tests import running
from tests.kit import PULSE, RUNFILES

WRITE = os.path.join(RUNFILES, "tests/fleet/flight_recorder_dump")
TIME = 1760000000 * 10**9  # of the first call
HANG, INCOMPLETE, NO_DUMP, USAGE = 3, 4, 2, 1


class Recorder:
    """One rank's Flight Recorder."""

    def __init__(self, rank):
        self.rank = rank
        self.groups = {}  # name: (description, ranks)
        self.entries = []
        self.counts = {}  # name: [collectives, Sends and Recvs]
        self.status = {}
        self.clock = TIME

    def join(self, name, ranks, desc="undefined"):
        self.groups[name] = (desc, ranks)
        self.counts[name] = [0, 0]

    def record(self, group, name, state, is_p2p, sizes=((1024,),), dtype="Float", out=None, timeout=600000):
        self.clock += 10**6
        done = state == "completed"
        pg_id = list(self.groups).index(group)
        collective, p2p = self.counts[group]
        entry = {
            "record_id": len(self.entries), "pg_id": pg_id, "process_group": (group, self.groups[group][0]),
            "collective_seq_id": collective, "p2p_seq_id": p2p, "op_id": len(self.entries),
            "profiling_name": "nccl:" + name, "time_created_ns": self.clock,
            "input_sizes": [list(size) for size in sizes], "input_dtypes": [dtype] * len(sizes),
            "output_sizes": [list(size) for size in out or sizes], "output_dtypes": [dtype] * len(out or sizes),
            "state": state, "time_discovered_started_ns": None,
            "time_discovered_completed_ns": self.clock + 1000 if done else None,
            "retired": done, "timeout_ms": timeout, "is_p2p": is_p2p}
        self.entries.append(entry)
        status = self.status.setdefault(str(pg_id), {"last_started_collective": -1, "last_completed_collective": -1})
        number = p2p if is_p2p else collective
        status["last_enqueued_collective"] = number
        if done:
            status["last_completed_collective"] = number
        return entry

    def collective(self, group, name="all_reduce", state="completed", **more):
        self.counts[group][0] += 1
        return self.record(group, name, state, False, **more)

    def peer(self, group, name, state="completed", **more):
        self.counts[group][1] += 1
        return self.record(group, name, state, True, **more)

    def dump(self):
        return {"version": "2.10", "nccl_version": "2.28.9",
                "pg_config": {name: {"name": name, "desc": desc, "ranks": str(ranks)}
                              for name, (desc, ranks) in self.groups.items()},
                "pg_status": self.status, "entries": self.entries}


def job(count=4, steps=5, waiting=0):
    """Ranks of one group that have completed some steps; the first ones wait in one more."""
    ranks = [Recorder(rank) for rank in range(count)]
    for rank in ranks:
        rank.join("0", list(range(count)), "default_pg")
        for _ in range(steps):
            rank.collective("0")
    for rank in ranks[:waiting]:
        rank.collective("0", state="scheduled")
    return ranks


def behind_sends():
    """Three ranks that have sent a lot; the last one has not called the collective behind that."""
    ranks = job(3, 40)
    for rank in ranks:
        for _ in range(500):
            rank.peer("0", "send %d->%d" % (rank.rank, (rank.rank + 1) % 3))
    for rank in ranks[:2]:
        rank.collective("0", state="scheduled")
    return ranks


def only_active(dump):
    return dict(dump, entries=[entry for entry in dump["entries"] if entry["state"] != "completed"])


class DiagnoseDumpsTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, rank, name="nccl_trace_rank_%d"):
        return os.path.join(self.folder, name % rank)

    def write(self, dumps, protocol=2, name="nccl_trace_rank_%d"):
        for rank, dump in dumps.items():
            with open(self.path(rank, name), "wb") as file:
                pickle.dump(dump, file, protocol=protocol)

    def run_pulse(self, *flags, path=None):
        return subprocess.run([PULSE, "diagnose", "--flight-recorder=" + (path or self.folder)] + list(flags),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ask(self, status, path=None):
        """The JSON, whose text names nobody else."""
        done = self.run_pulse("--json", path=path)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def write_all(self, ranks, change=lambda dump: dump, **more):
        self.write({rank.rank: change(rank.dump()) for rank in ranks}, **more)

    def diagnose(self, ranks, status=HANG, **more):
        self.write_all(ranks, **more)
        return self.ask(status)

    def named(self, answer):
        """{global rank: verdict} of everybody that is named."""
        return {int(rank["process"]["global_rank"]): root["verdict"]
                for root in answer["roots"] for rank in root["ranks"]}

    def expect(self, named, ranks, **more):
        """A hang for which these are named. Returns the JSON."""
        answer = self.diagnose(ranks, **more)
        self.assertEqual(self.named(answer), named)
        return answer

    def test_a_rank_that_has_not_called(self):
        ranks = job(waiting=3)
        answer = self.expect({3: "rank_not_called"}, ranks)
        self.assertIn("global rank 3 has not called AllReduce (up to 4KiB); 3 of 4 processes wait, since 2025-",
                      answer["sentence"])
        self.assertIn("py-spy dump --pid PID where global rank 3 runs", answer["sentence"])
        self.assertIs(answer["roots"][0]["ranks"][0]["process"]["pid"], None)
        self.assertEqual(answer["endpoints"]["heard"], 4)
        text = self.run_pulse().stdout
        self.assertIn("Rank 3 (global rank 3) has not called", text)
        self.assertIn("default_pg", text)
        self.assertIn("4 of 4 dumps could be used", text)
        self.assertNotIn("pid 0", text)

    def test_our_own_dumps_of_a_running_job_blame_nobody(self):
        """They say when they were written: work that has been in flight for a moment is not stalled."""
        ranks = job(waiting=3)
        called = max(rank.clock for rank in ranks)
        for age, status in ((1, 0), (60, HANG)):
            self.write({rank.rank: dict(rank.dump(), written_time_ns=called + age * 10**9) for rank in ranks})
            answer = self.ask(status)
            self.assertEqual(self.named(answer), {3: "rank_not_called"} if status == HANG else {})
        # PyTorch writes a dump when a call has timed out.
        self.write({0: ranks[0].dump()})
        self.assertEqual(self.named(self.ask(HANG)), {3: "rank_not_called"})

    def test_dumps_of_pytorch_on_demand_of_a_running_job_blame_nobody(self):
        """Files were written just after the newest call. Copies are younger, or have any time."""
        ranks = job(waiting=3)
        called = max(rank.clock for rank in ranks)
        self.write_all(ranks)
        for age, status in ((1, 0), (60, HANG), (-60, HANG)):
            for rank in ranks:
                os.utime(self.path(rank.rank), ns=(0, called + age * 10**9))
            self.assertEqual(self.named(self.ask(status)), {3: "rank_not_called"} if status == HANG else {})
        # PyTorch's watchdog wrote them, whose patience was shorter than ours.
        for timeout, status in ((600000, 0), (5000, HANG)):
            for rank in ranks:
                for entry in rank.entries:
                    entry["timeout_ms"] = timeout
            self.write_all(ranks)
            for rank in ranks:
                os.utime(self.path(rank.rank), ns=(0, called + 6 * 10**9))
            self.assertEqual(self.named(self.ask(status)), {3: "rank_not_called"} if status == HANG else {})
        self.write_all(ranks)
        # One rank had stalled before.
        for rank in ranks:
            os.utime(self.path(rank.rank), ns=(0, called + (60 if rank.rank == 3 else 1) * 10**9))
        self.assertEqual(self.named(self.ask(HANG)), {3: "rank_not_called"})

    def test_json_says_the_same(self):
        ranks = job(waiting=3)
        for rank in ranks:
            dump = rank.dump()
            for entry in dump["entries"]:
                entry["time_discovered_started_ns"] = 0
                entry["time_discovered_completed_ns"] = entry["time_discovered_completed_ns"] or 0
            for status in dump["pg_status"].values():
                for key in status:
                    status[key] = str(status[key])
            with open(self.path(rank.rank, "rank_%d.json"), "w") as file:
                json.dump(dump, file)
        self.assertEqual(self.named(self.ask(HANG)), {3: "rank_not_called"})

    def test_every_protocol_that_python_writes(self):
        ranks = job(waiting=3)
        for protocol in (2, 3, 4, 5):
            self.expect({3: "rank_not_called"}, ranks, protocol=protocol)

    def test_a_dump_without_what_has_completed_tells_by_its_status(self):
        """Two culprits whose dumps have no call at all."""
        ranks = job(8, 40)
        for rank in ranks:
            rank.join("7", [0, 1, 2, 3] if rank.rank < 4 else [4, 5, 6, 7], "experts")
            for _ in range(30):
                rank.collective("7", "all_to_all")
            if rank.rank not in (2, 5):
                rank.collective("7", "all_to_all", state="scheduled", sizes=((4000 + rank.rank, 8),))
        answer = self.expect({2: "rank_not_called", 5: "rank_not_called"}, ranks, change=only_active)
        self.assertIn("Also named: global rank", answer["sentence"])
        with open(self.path(2), "rb") as file:
            self.assertEqual(pickle.load(file)["entries"], [])

    def test_a_status_whose_group_is_not_known_accuses_nobody(self):
        ranks = job(3, 40, waiting=2)

        def hide(dump):
            return dict(only_active(dump), pg_status={"4": {}, "5": {}})
        answer = self.expect({}, ranks, change=hide)
        self.assertEqual(answer["roots"][0]["verdict"], "unknown")
        self.assertIn("some dumps do not tell how far their ranks have come", answer["roots"][0]["text"])

    def test_who_has_not_come_to_a_new_group_is_named_though_old_calls_are_lost(self):
        for lost, named in ((30, {1: "rank_not_called"}), (199, {})):
            ranks = job(2, 200)
            for rank in ranks:
                rank.join("1", [0, 1])
            ranks[0].collective("1", state="scheduled")
            self.expect(named, ranks, change=lambda dump, lost=lost: dict(dump, entries=dump["entries"][lost:]))

    def test_the_number_of_a_send_is_not_taken_for_that_of_a_collective(self):
        self.expect({}, behind_sends(), change=only_active)

    def test_of_a_group_with_sends_the_last_collective_is_known_where_all_calls_are(self):
        self.expect({2: "rank_not_called"}, behind_sends())

    def test_another_operation_size_or_type(self):
        for what in ({"name": "broadcast"}, {"sizes": ((2048,),)}, {"dtype": "Half", "sizes": ((2048,),)}):
            ranks = job()
            for rank in ranks:
                rank.collective("0", state="scheduled", **(what if rank.rank == 1 else {}))
                rank.collective("0", "all_reduce", state="scheduled")
            answer = self.expect({1: "mismatched_operations"}, ranks)
            self.assertIn("at collective 6 of this communicator", answer["roots"][0]["text"])

    def test_sizes_that_may_differ_are_no_mismatch(self):
        ranks = job()
        for rank in ranks:
            rank.collective("0", "all_to_all", state="scheduled", sizes=((100 + rank.rank, 8),))
            rank.collective("0", "gather", state="scheduled", out=((4096,),) if rank.rank == 0 else ((),))
        answer = self.expect({}, ranks)
        self.assertEqual(answer["roots"][0]["verdict"], "no_progress")

    def test_a_gpu_that_does_not_complete_what_others_have(self):
        ranks = job()
        for rank in ranks:
            state = "scheduled" if rank.rank in (0, 2) else "completed"
            rank.collective("0", state=state)
            if rank.rank != 0:
                rank.collective("0", state="scheduled")
        answer = self.expect({0: "no_progress", 2: "no_progress"}, ranks)
        self.assertIn("global rank 0; global rank 2 have not completed AllReduce", answer["sentence"])

    def test_what_pytorch_aborted_has_not_completed(self):
        ranks = job()
        for rank in ranks[:3]:
            entry = rank.collective("0", state="completed", timeout=1000)
            entry["time_discovered_completed_ns"] = entry["time_created_ns"] + 1001 * 10**6
        self.expect({3: "rank_not_called"}, ranks)

    def test_a_peer_that_has_not_called(self):
        ranks = job(4, 3)
        for rank in ranks:
            rank.join("5", [0, 2] if rank.rank in (0, 2) else [1, 3], "pipeline")
        ranks[0].peer("5", "send 0->1", state="scheduled")
        answer = self.expect({2: "rank_not_called"}, ranks)
        self.assertIn("global rank 2 has not called Recv", answer["sentence"])

    def test_a_call_that_nccl_has_not_returned_from_has_not_completed(self):
        """As PyTorch 2.11 writes it: its event is not on the stream, so it seems to have completed."""
        def connects(rank, record, group):
            before = dict(rank.status[str(list(rank.groups).index(group))])
            entry = record()
            entry["retired"] = False
            entry["time_discovered_completed_ns"] = rank.clock + 15 * 10**9
            rank.status[str(entry["pg_id"])] = before
            return entry
        ranks = job(2, 3)
        for rank in ranks:
            rank.join("5", [0, 1], "pipeline")
            rank.peer("5", "send 0->1" if rank.rank == 0 else "recv 1<-0")
        entry = connects(ranks[0], lambda: ranks[0].peer("5", "recv 0<-1"), "5")
        answer = self.expect({1: "rank_not_called"}, ranks)
        self.assertIn("global rank 1 has not called Send", answer["sentence"])
        entry["retired"] = True
        self.diagnose(ranks, status=0)
        entry["retired"] = False  # it has returned, and ended just now
        ranks[0].status[str(entry["pg_id"])]["last_enqueued_collective"] = entry["p2p_seq_id"]
        self.diagnose(ranks, status=0)
        ranks = job(3, 3)
        for rank in ranks[:2]:
            connects(rank, lambda rank=rank: rank.collective("0"), "0")
        self.expect({2: "rank_not_called"}, ranks)

    def test_a_peer_that_waits_elsewhere_is_not_named(self):
        ranks = job(4, 3)
        for rank in ranks:
            rank.join("5", [0, 2] if rank.rank in (0, 2) else [1, 3], "pipeline")
        ranks[0].peer("5", "send 0->1", state="scheduled")
        for rank in ranks[1:3]:
            rank.join("6", [1, 2, 3], "experts")
            rank.collective("6", "all_to_all", state="scheduled")
        ranks[3].join("6", [1, 2, 3], "experts")
        answer = self.expect({3: "rank_not_called"}, ranks)
        self.assertEqual(answer["blocked_communicators"], 1)

    def test_two_that_wait_for_each_other(self):
        ranks = job(2)
        for rank in ranks:
            rank.peer("0", "recv %d<-%d" % (rank.rank, 1 - rank.rank), state="scheduled")
        answer = self.expect({}, ranks)
        self.assertIn("both ranks of communicator", answer["sentence"])
        self.assertNotIn("NCCL does not report", answer["roots"][0]["text"])

    def coalesced(self, ranks, state, of=3):
        for rank in ranks:
            rank.counts["0"][0] += 1
            for _ in range(of):
                rank.record("0", "all_reduce", "scheduled", False)
            rank.record("0", "coalesced", state, False, sizes=())

    def test_coalesced_calls_have_the_state_of_their_last_entry(self):
        ranks = job(3)
        self.coalesced(ranks, "completed")
        self.coalesced(ranks[:2], "scheduled")
        answer = self.expect({2: "rank_not_called"}, ranks)
        self.assertIn("has not called AllReduce (up to 16KiB)", answer["sentence"])
        # Without what has completed: the first three say `scheduled` and nothing else.
        self.expect({2: "rank_not_called"}, ranks, change=only_active)

    def test_a_call_that_the_gpu_has_not_begun(self):
        ranks = job()
        for rank in ranks:
            entry = rank.collective("0", state="started" if rank.rank != 1 else "scheduled")
            rank.entries[0]["time_discovered_started_ns"] = TIME
            entry["time_discovered_started_ns"] = TIME if rank.rank != 1 else None
        self.expect({1: "rank_not_begun"}, ranks)

    def test_parts_of_a_split_group_have_one_name(self):
        ranks = job(4, 3)
        for rank in ranks:
            rank.join("0:split:1", [0, 1] if rank.rank < 2 else [2, 3], "halves")
            rank.collective("0:split:1")
        ranks[2].collective("0:split:1", state="scheduled")
        self.expect({3: "rank_not_called"}, ranks)

    def test_nothing_in_flight(self):
        answer = self.diagnose(job(), status=0)
        self.assertEqual(answer["sentence"], "OK  By these dumps no call is in flight. 4 processes.")

    def test_what_pulse_capture_writes(self):
        def call(number, state="completed"):
            return {"number": number, "collective": number, "op": "AllGather", "datatype": "ncclBfloat16",
                    "bytes": 65536, "launched": 1760000000 + number, "state": state,
                    "begun": None if state == "completed" else True, "seconds": None}

        def page(comm, calls):
            return {"comm": comm, "name": "dp", "nranks": 3, "ranks": [
                {"rank": i, "pid": 9, "hostname": "h%d" % i, "global_rank": str(i), "calls": each}
                for i, each in enumerate(calls)]}
        done = [call(i) for i in range(1, 9)]
        pages = [page("00ab12cd34ef5678", [done + [call(9, "in_flight")], done, done + [call(9, "in_flight")]])]
        subprocess.run([WRITE, self.folder], input=json.dumps(pages), text=True, check=True)
        answer = self.ask(HANG)
        self.assertEqual(self.named(answer), {1: "rank_not_called"})
        self.assertEqual(answer["roots"][0]["communicators"], ["00ab12cd34ef5678"])
        self.assertEqual(answer["roots"][0]["op"], "AllGather")

    # Bad input: what is wrong with which file, and what follows.

    def hung(self, count=4):
        self.write_all(job(count, waiting=count - 1))

    def left_out(self, answer):
        return {os.path.basename(file): each["why"]
                for each in answer["endpoints"]["unheard"] for file in each["endpoints"]}

    def test_ranks_without_a_dump(self):
        self.hung()
        os.unlink(self.path(3))
        answer = self.ask(HANG)
        self.assertEqual(self.named(answer), {3: "rank_not_seen"})
        self.assertIn("global rank 3 has no dump that could be used", answer["sentence"])
        self.assertIn("No dump of 1 rank could be used.", answer["sentence"])
        self.assertIn("No dump of global rank 3 could be used.", answer["notes"])

    def test_nothing_in_flight_is_no_all_clear_without_all_dumps(self):
        self.diagnose(job()[:3], status=INCOMPLETE)

    def test_files_that_are_cut_off_empty_or_damaged(self):
        self.hung(8)
        for rank, change in ((0, lambda data: data[:len(data) // 2]), (1, lambda data: b""),
                             (2, lambda data: data[:2] + b"\xff" + data[2:])):
            with open(self.path(rank), "rb") as file:
                data = file.read()
            with open(self.path(rank), "wb") as file:
                file.write(change(data))
        with open(self.path(9, "%d.json"), "w") as file:
            file.write('{"version": "2.10", "pg_config": {')
        answer = self.ask(HANG)
        self.assertEqual(self.named(answer), {7: "rank_not_called"})
        left_out = self.left_out(answer)
        self.assertEqual(sorted(left_out), ["9.json"] + ["nccl_trace_rank_%d" % rank for rank in range(3)])
        self.assertIn("the file ends here", left_out["nccl_trace_rank_0"])
        self.assertIn("it is empty", left_out["nccl_trace_rank_1"])
        self.assertIn("at byte 2: no dump has this kind of value (opcode 0xff)", left_out["nccl_trace_rank_2"])
        self.assertIn("it is not JSON from byte 35 on", left_out["9.json"])
        self.assertIn("4 of 9 dumps could not be used", answer["sentence"])
        text = self.run_pulse().stdout
        self.assertIn("5 of 9 dumps could be used", text)
        self.assertIn("NOT USED  1: " + self.path(1) + ": it is empty", text)

    def test_a_pickle_that_asks_for_a_program_to_be_run(self):
        self.hung()
        mark = os.path.join(self.folder, "ran")

        class Evil:
            def __reduce__(self):
                return os.system, ("touch " + mark,)
        for protocol in range(6):
            self.write({0: {"version": "2.10", "pg_config": Evil()}}, protocol)
            answer = self.ask(HANG)
            self.assertFalse(os.path.exists(mark))
            why = self.left_out(answer).get("nccl_trace_rank_0")
            # Protocols 0 and 1 begin with no byte that tells a pickle.
            if protocol >= 2:
                self.assertIn("is a pickle that runs code, which is refused", why, protocol)

    def test_a_very_large_file(self):
        self.hung()
        with open(self.path(0), "r+b") as file:
            file.truncate(10 << 30)
        self.assertIn("it has more than 128 MiB", self.left_out(self.ask(HANG))["nccl_trace_rank_0"])

    def test_a_pickle_that_becomes_large(self):
        self.hung()
        with open(self.path(0), "wb") as file:
            file.write(b"\x80\x02](" + b"]" * (40 << 20) + b"e.")
        self.assertIn("MiB of values", self.left_out(self.ask(HANG))["nccl_trace_rank_0"])

    def test_other_files_are_no_dumps(self):
        self.hung()
        for name, text in (("worker_0", "log\n"), ("readme.txt", "x"), ("fault.log", "x"), ("rank_7.out", "7\n")):
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(text)
        os.mkfifo(self.path(5))
        os.mkdir(self.path(6))
        answer = self.ask(HANG)
        self.assertEqual((answer["endpoints"]["asked"], answer["endpoints"]["heard"]), (4, 4))

    def test_a_pickle_of_something_else(self):
        self.hung()
        self.write({4: {"model": [1.5, None]}, 5: [1], 6: {"version": "2.10", "pg_config": {"0": {}}}})
        left_out = self.left_out(self.ask(HANG))
        self.assertIn("not a dump of PyTorch's Flight Recorder", left_out["nccl_trace_rank_4"])
        self.assertIn("not a dump of PyTorch's Flight Recorder", left_out["nccl_trace_rank_5"])
        self.assertIn("lacks the ranks of process group 0", left_out["nccl_trace_rank_6"])

    def test_dumps_of_an_older_pytorch(self):
        ranks = job()
        for rank in ranks:
            for entry in rank.entries:
                entry["seq_id"] = entry.pop("collective_seq_id")
        self.write_all(ranks)
        answer = self.ask(NO_DUMP)
        self.assertIn("UNKNOWN  No dump could be used.", answer["sentence"])
        self.assertIn("too old", self.left_out(answer)["nccl_trace_rank_0"])

    def test_folders_without_dumps(self):
        done = self.run_pulse()
        self.assertEqual(done.returncode, NO_DUMP)
        self.assertIn(self.folder + " has no dump of PyTorch's Flight Recorder", done.stderr)
        done = self.run_pulse(path=self.folder + "/none/")
        self.assertEqual(done.returncode, NO_DUMP)
        self.assertIn("No such file or directory", done.stderr)
        done = self.run_pulse(path=self.folder + "/none")
        self.assertEqual(done.returncode, NO_DUMP)
        self.assertIn("no file or folder begins with %s/none" % self.folder, done.stderr)

    def test_dumps_of_several_jobs_under_several_names(self):
        self.hung()
        ranks = job(2)
        ranks[0].collective("0", state="scheduled")
        self.write_all(ranks, name="other_%d")
        done = self.run_pulse()
        self.assertEqual(done.returncode, NO_DUMP)
        self.assertIn("are dumps of one rank, 0, so the folder has several jobs", done.stderr)
        self.assertIn(self.path(0, "other_%d"), done.stderr)
        answer = self.ask(HANG, path=os.path.join(self.folder, "other_"))
        self.assertEqual(self.named(answer), {1: "rank_not_called"})

    def test_dumps_that_an_earlier_job_left(self):
        """One of more ranks, and one of as many whose rank 1 has written none this time."""
        self.write_all(job(8))
        ranks = job(4, 30)
        for rank in ranks:
            for entry in rank.entries:
                entry["time_created_ns"] += 3600 * 10**9
                entry["time_discovered_completed_ns"] += 3600 * 10**9
        for rank in ranks[:3]:
            rank.clock += 3600 * 10**9
            rank.collective("0", state="scheduled")
        self.write_all(ranks)
        answer = self.ask(HANG)
        self.assertEqual(self.named(answer), {3: "rank_not_called"})
        left_out = self.left_out(answer)
        self.assertEqual(sorted(left_out), ["nccl_trace_rank_%d" % rank for rank in range(4, 8)])
        self.assertIn("they are of different jobs", left_out["nccl_trace_rank_4"])
        # Now one of a run with the same groups.
        self.write({1: job(4)[1].dump()})
        answer = self.ask(HANG)
        self.assertEqual(self.named(answer), {3: "rank_not_called"})
        self.assertIn("it lacks calls that its rank has completed", self.left_out(answer)["nccl_trace_rank_1"])

    def test_a_dump_of_an_earlier_attempt_that_stood_at_the_same_call(self):
        """Rank 3 has written no dump this time, and had waited with ranks 0 and 1 before."""
        earlier = job(4, 30)
        for rank in (0, 1, 3):
            earlier[rank].collective("0", state="scheduled")
        self.write_all(earlier)
        ranks = job(4, 30, waiting=3)
        for rank in ranks:
            for entry in rank.entries:
                for time in ("time_created_ns", "time_discovered_completed_ns"):
                    entry[time] = entry[time] and entry[time] + 600 * 10**9
        self.write_all(ranks[:3])
        answer = self.ask(HANG)
        self.assertEqual(sorted(self.left_out(answer)), ["nccl_trace_rank_3"])
        self.assertIn("from an earlier attempt", self.left_out(answer)["nccl_trace_rank_3"])
        self.assertEqual(self.named(answer), {3: "rank_not_seen"})

    def test_a_name_that_has_another_ranks_number(self):
        self.hung()
        os.rename(self.path(2), self.path(12))
        self.assertIn("by its name it is of rank 12", self.left_out(self.ask(HANG))["nccl_trace_rank_12"])

    def test_it_takes_no_endpoints(self):
        self.hung()
        for flag in ("localhost:1", "--targets=/x", "--prometheus=localhost:1", "--job-id=4", "--comm=" + "0" * 16):
            done = self.run_pulse(flag)
            self.assertEqual(done.returncode, USAGE, flag)
            self.assertIn("--flight-recorder reads files", done.stderr)


if __name__ == "__main__":
    running.main()
