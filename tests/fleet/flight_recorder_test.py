"""The dumps that torchfrtrace reads: Python's own pickle loads them, and they hold what is known, and nothing else."""

import ast
import json
import os
import pickle
import subprocess
import tempfile
import unittest

from tests import running
from tests.kit import RUNFILES

DUMP = os.path.join(RUNFILES, "tests/fleet/flight_recorder_dump")
COMM = "00ab12cd34ef5678"
# What torchfrtrace 2.4 reads without asking whether it is there (components/types.py, Op and EntryState).
KEYS = {"record_id", "pg_id", "process_group", "collective_seq_id", "p2p_seq_id", "op_id", "profiling_name",
        "input_sizes", "output_sizes", "input_dtypes", "output_dtypes", "state", "time_created_ns", "is_p2p",
        "time_discovered_started_ns", "time_discovered_completed_ns"}


def call(number, op="AllReduce", collective=None, **more):
    return dict({"number": number, "collective": number if collective is None else collective, "op": op,
                 "datatype": "ncclFloat32", "bytes": 4096, "group": number, "stream": None, "captured": False,
                 "launched": 1760000000.25 + number, "state": "completed", "begun": None, "seconds": None,
                 "timed_by": None}, **more)


def rank(number, calls, global_rank="", pid=None):
    return {"rank": number, "pid": pid or 100 + number, "hostname": "h", "global_rank": global_rank,
            "gpu": "0", "kept": 256, "missing": None if calls is not None else "no_room", "calls": calls}


def page(*ranks, comm=COMM, name="dp", nranks=None):
    return {"time": 1760000100, "comm": comm, "name": name, "nranks": nranks or len(ranks), "ranks": list(ranks)}


class FlightRecorderTest(unittest.TestCase):

    def dump(self, *pages):
        with tempfile.TemporaryDirectory() as folder:
            left_out = subprocess.run([DUMP, folder], input=json.dumps(pages), text=True, check=True,
                                      stdout=subprocess.PIPE).stdout
            dumps = {}
            for name in os.listdir(folder):
                with open(os.path.join(folder, name), "rb") as file:
                    dumps[int(name[len("nccl_trace_rank_"):])] = pickle.load(file)
        return dumps, left_out

    def test_a_hang(self):
        hung = call(3, state="in_flight", begun=True)
        dumps, left_out = self.dump(page(rank(0, [call(1), call(2, seconds=72e-6), hung], "4"),
                                         rank(1, [call(1), call(2)], "5")))
        self.assertEqual(left_out, "")
        self.assertEqual(sorted(dumps), [4, 5])
        for dump in dumps.values():
            self.assertEqual(dump["version"], "2.4")
            self.assertEqual(dump["written_time_ns"], 1760000100 * 10**9)
            group = dump["pg_config"][COMM]
            self.assertEqual(group, {"name": COMM, "desc": "dp", "ranks": "[4, 5]"})
            self.assertEqual(ast.literal_eval(group["ranks"]), [4, 5])
            for entry in dump["entries"]:
                self.assertEqual(KEYS - set(entry), set())
                self.assertEqual(entry["process_group"], (COMM, "dp"))
        first, timed, last = dumps[4]["entries"]
        self.assertEqual(first["profiling_name"], "nccl:all_reduce")
        self.assertEqual(first["input_sizes"], [[1024]])
        self.assertEqual(first["output_sizes"], [[1024]])
        self.assertEqual(first["input_dtypes"], ["Float"])
        self.assertEqual(first["time_created_ns"], 1760000001250000000)
        self.assertEqual(first["state"], "completed")
        self.assertIs(first["time_discovered_completed_ns"], None)
        self.assertFalse({"frames", "timeout_ms", "retired", "thread_id", "duration_ms"} & set(first))
        self.assertAlmostEqual(timed["duration_ms"], 0.072)
        self.assertEqual(last["state"], "started")
        self.assertEqual([entry["collective_seq_id"] for entry in dumps[5]["entries"]], [1, 2])
        self.assertEqual(dumps[4]["pg_status"]["0"], {"last_enqueued_collective": 3, "last_completed_collective": 2})

    def test_sizes_of_each_operation(self):
        ops = {"AllReduce": ("all_reduce", 1024, 1024), "AllGather": ("_all_gather_base", 1024, 2048),
               "ReduceScatter": ("_reduce_scatter_base", 2048, 1024), "Broadcast": ("broadcast", 1024, 1024),
               "Reduce": ("reduce", 1024, 1024), "AlltoAll": ("all_to_all", 2048, 2048),
               "Gather": ("gather", 1024, None), "Scatter": ("scatter", None, 1024)}
        calls = [call(i + 1, op) for i, op in enumerate(ops)]
        dumps, _ = self.dump(page(rank(0, calls, "0"), rank(1, calls, "1")))
        for entry, (name, taken, given) in zip(dumps[0]["entries"], ops.values()):
            self.assertEqual(entry["profiling_name"], "nccl:" + name)
            self.assertEqual(entry["input_sizes"], [[taken] if taken else []], name)
            self.assertEqual(entry["output_sizes"], [[given] if given else []], name)

    def test_what_is_not_known_is_not_made_up(self):
        calls = [call(1, datatype="Unknown", launched=None), call(2, "Send", 0),
                 call(3, collective=2, state="in_flight"), call(4, collective=3, state="unknown"),
                 call(5, "ReduceScatter", 4, datatype="Unknown")]
        dumps, left_out = self.dump(page(rank(0, calls, "0"), rank(1, [], "1")))
        first, second, third = dumps[0]["entries"]
        self.assertEqual(first["input_sizes"], [[]])
        self.assertEqual(first["input_dtypes"], [])
        self.assertIs(first["time_created_ns"], None)
        self.assertEqual((second["collective_seq_id"], second["p2p_seq_id"], second["op_id"]), (2, 1, 3))
        self.assertEqual([second["state"], third["state"]], ["scheduled"] * 2)
        self.assertEqual(dumps[1]["entries"], [])
        self.assertIn("2 calls that the tool could not read", left_out)

    def test_a_rank_without_calls_is_not_accused(self):
        dumps, left_out = self.dump(page(rank(0, [call(1)], "0"), rank(1, None, "1")),
                                    page(rank(0, [call(1)], "0"), rank(1, [call(1)], "1"), comm="0" * 16))
        for dump in dumps.values():
            self.assertEqual(list(dump["pg_config"]), ["0" * 16])
        self.assertIn("communicator %s: some of its ranks have no last calls" % COMM, left_out)

    def states(self, dumps):
        """{collective: {rank: state}}: what the tool compares, and whom it misses."""
        states = {}
        for number, dump in dumps.items():
            for entry in dump["entries"]:
                states.setdefault(entry["collective_seq_id"], {})[number] = entry["state"]
        return states

    def test_completions_that_are_known_late_are_no_difference(self):
        done = [call(i) for i in range(1, 390)]
        late = [call(i, state="in_flight", begun=True if i in (390, 401) else None) for i in range(390, 402)]
        dumps, left_out = self.dump(page(
            rank(0, done + late, "0"), rank(1, [call(i) for i in range(1, 401)], "1"),
            rank(2, done + [call(i) for i in range(390, 401)] + [call(401, state="in_flight")], "2")))
        states = self.states(dumps)
        for collective, of_it in states.items():
            self.assertEqual(len(set(of_it.values())), 1, (collective, of_it))
        self.assertEqual(sorted(states), list(range(1, 390)) + [401])
        self.assertEqual(states[401], {0: "scheduled", 2: "scheduled"})
        self.assertEqual([number for number, of_it in states.items() if len(of_it) != 3], [401])
        self.assertIn("11 collectives of communicator " + COMM, left_out)

    def test_a_difference_that_is_known_is_written(self):
        dumps, left_out = self.dump(page(rank(0, [call(1), call(2, state="in_flight", begun=True)], "0"),
                                         rank(1, [call(1), call(2)], "1")))
        self.assertEqual(left_out, "")
        self.assertEqual(self.states(dumps)[2], {0: "started", 1: "completed"})

    def test_what_cannot_be_written_of_one_rank_is_in_no_dump(self):
        dumps, _ = self.dump(page(rank(0, [call(1), call(2, "ReduceScatter", datatype="Unknown"), call(3)], "0"),
                                  rank(1, [call(1), call(2, "ReduceScatter"), call(3)], "1")))
        self.assertEqual(sorted(self.states(dumps)), [1, 3])

    def test_calls_begin_where_those_of_all_ranks_do(self):
        calls = [call(i) for i in range(1, 9)]
        dumps, _ = self.dump(page(rank(0, calls[2:], "0"), rank(1, calls, "1"), rank(2, [], "2")))
        for number in (0, 1):
            self.assertEqual([entry["collective_seq_id"] for entry in dumps[number]["entries"]], [3, 4, 5, 6, 7, 8])
            self.assertEqual([entry["record_id"] for entry in dumps[number]["entries"]], list(range(6)))

    def test_several_endpoints_and_communicators(self):
        world = [page(rank(0, [call(1)], "0"), nranks=2), page(rank(1, [call(1)], "1"), nranks=2)]
        pair = page(rank(0, [call(1, launched=1760000000)], "1", pid=101), rank(1, [call(1)], "0", pid=100),
                    comm="0000000000000009", name="")
        dumps, left_out = self.dump(*world, pair)
        self.assertEqual(left_out, "")
        self.assertEqual(dumps[1]["pg_config"]["0000000000000009"],
                         {"name": "0000000000000009", "desc": "undefined", "ranks": "[0, 1]"})
        self.assertEqual([entry["process_group"][0] for entry in dumps[1]["entries"]], ["0000000000000009", COMM])

    def test_a_communicator_with_an_unknown_rank_is_left_out(self):
        dumps, left_out = self.dump(page(rank(0, [call(1)], "0"), nranks=2))
        self.assertEqual(dumps, {})
        self.assertIn("the global rank is known for 1 of 2 ranks", left_out)

    def test_without_a_launcher_the_ranks_are_the_communicators(self):
        dumps, _ = self.dump(page(rank(0, [call(1)]), rank(1, [call(1)])))
        self.assertEqual(sorted(dumps), [0, 1])

    def test_numbers_and_texts_of_all_kinds(self):
        big = call(1 << 31, "AllReduce", 1 << 31, bytes=1 << 46)
        dumps, _ = self.dump(page(rank(0, [big], "0"), rank(1, [big], "1"), name="Grüße \U0001f600"))
        entry = dumps[0]["entries"][0]
        self.assertEqual(entry["op_id"], 1 << 31)
        self.assertEqual(entry["input_sizes"], [[1 << 44]])
        self.assertEqual(entry["process_group"][1], "Grüße \U0001f600")


if __name__ == "__main__":
    running.main()
