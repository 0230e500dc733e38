#!/usr/bin/env python3
"""NCCL's own counter of finished work on real GPUs: exact, and right about who stands.

    work_counters.py --library libnccl-profiler-pulse.so [--cases layers,one,...] [--seconds 4] [--gpus 2]

Ranks with PyTorch, a process for each of --gpus; a line of JSON for each case and rank.

    case      what the job does                                           what must be said
    layers    32 graphs of two all_reduces (64 KiB, 1 MiB, 16 MiB)        proven; operations = those that were replayed
    one       one graph of 64 all_reduces, which has stamps               the same; replays by stamps
    beside    eager all_reduces between replays                           the same
    sizes     graphs of 24 batch sizes, as an engine captures them        the same
    compiled  torch.compile, mode reduce-overhead, four all_reduces       the same
    grouped   a graph of coalesced all_reduces                            proven; operations not known
    groups    layers on a communicator of their own, beside those of      layers' as above; the one of Send and
              sharded parameters, of stages (Send and Recv) and of all    Recv is refuted, and nothing hangs
    stopped   layers; then the host of rank 1 does nothing                rank_not_begun, rank 1
    held      layers; then rank 1's GPU runs another kernel               rank 1, or no_progress and nobody
    computes  layers; then rank 1's GPU computes, and rank 0 waits        nothing
    blocking  CUDA_LAUNCH_BLOCKING=1; then rank 1 makes no more calls     rank 1
    burst     eager all_reduces; then batch_isend_irecv, for which rank   a hang; rank 1 or nobody
              1's GPU is busy
    paused    stopped; rank 0's process is paused for 3 s in the hang     rank 1, before and after
    lives     communicators split, used, finalized or aborted, in one     no error; memory after 10, 50, 100 ...
              process with both GPUs, which forks now and then
    reset     communicators in one process, whose GPUs are reset as       no error, and proven each time
              soon as these have ended
    left      the same under communicators that have not ended            no error
"""

import argparse
import ctypes
import faulthandler
import json
import os
import signal
import sys
import time

import endpoint
import torch_job

PORT = 9481
LIVES = ("lives", "reset", "left")
JOBS = ("layers", "one", "beside", "sizes", "compiled", "grouped", "groups", "stopped", "held", "computes", "blocking",
        "burst", "paused")
EAGER = ("blocking", "burst")
STANDING = ("stopped", "held", "computes", "paused", *EAGER)
LAYERS = 32
SIZES = (64 << 10, 1 << 20, 16 << 20)


# ---- one rank -----------------------------------------------------------------------------------


class Rank:
    def __init__(self, case):
        import torch

        self.torch = torch
        self.rank, self.ranks, self.dist = torch_job.join()
        self.replayed = 0
        # Not torch.cuda.nccl.version(), which says with what PyTorch was built.
        version = ctypes.c_int()
        ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
        with open("/proc/self/maps", encoding="utf-8") as file:
            self.nccl = [version.value, *{line.split()[-1] for line in file if "libnccl.so" in line}]
        self.values = {size: torch.zeros(size // 4, device="cuda") for size in SIZES}
        # Communicators with the same ranks, of graphs, sharded parameters and stages.
        self.layers, self.shards, self.stages = [
            self.dist.new_group() if case == "groups" else self.dist.group.WORLD for _ in range(3)]

    def calibrate(self):
        """Eager calls with pauses between them."""
        for _ in range(6):
            for size in SIZES:
                self.dist.all_reduce(self.values[size], group=self.layers)
            self.torch.cuda.synchronize()
            time.sleep(0.15)

    def capture(self, sizes):
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            for size in sizes:
                self.dist.all_reduce(self.values[size], group=self.layers)
        return graph, len(sizes)

    def shard(self):
        """What a step of sharded parameters and a change of stage call."""
        whole, small = self.values[SIZES[1]], self.values[SIZES[0]]
        part = whole[:len(whole) // self.ranks].clone()
        self.dist.reduce_scatter_tensor(part, whole, group=self.shards)
        self.dist.all_gather_into_tensor(whole, part, group=self.shards)
        self.exchange_stages(small)

    def exchange_stages(self, small):
        for each in self.dist.batch_isend_irecv([
                self.dist.P2POp(self.dist.isend, small.clone(), (self.rank + 1) % self.ranks, group=self.stages),
                self.dist.P2POp(self.dist.irecv, small, (self.rank - 1) % self.ranks, group=self.stages)]):
            each.wait()

    def replay(self, graphs, seconds, eager=lambda: None):
        end = time.monotonic() + seconds
        steps = 0
        while True:
            for graph, calls in graphs:
                graph.replay()
                self.replayed += calls
            eager()
            self.torch.cuda.synchronize()
            steps += 1
            # The ranks have to make as many steps.
            if steps % 16 == 0:
                stop = self.torch.tensor([time.monotonic() >= end], device="cuda", dtype=self.torch.float32)
                self.dist.all_reduce(stop)  # no Broadcast: NCCL 2.29.2 and newer do not report it
                if stop.item() > 0:
                    return steps


class Compiled:
    """What torch.compile captures by itself. `calls` are those of the replays that PyTorch made."""

    CALLS = 4

    def __init__(self, job):
        import torch.distributed._functional_collectives as functional

        torch, group = job.torch, job.dist.group.WORLD
        self.graph_replays = 0
        replay = torch.cuda.CUDAGraph.replay

        def counted(graph):
            self.graph_replays += 1
            replay(graph)

        torch.cuda.CUDAGraph.replay = counted

        def step(values):
            for _ in range(self.CALLS):
                values = functional.all_reduce(values * 0.5, "sum", group).relu()
            return values

        self.step = torch.compile(step, mode="reduce-overhead")
        self.values = torch.ones(1 << 18, device="cuda")
        self.torch = torch

    def replay(self):
        self.torch.compiler.cudagraph_mark_step_begin()
        self.step(self.values)

    def replayed(self):
        return self.graph_replays * self.CALLS


def graphs_of(job, case):
    if case == "compiled":
        return [(Compiled(job), 0)]
    if case == "one":
        return [job.capture([SIZES[1]] * 64)]
    if case == "sizes":
        return [job.capture([SIZES[i % 3]] * (1 + i % 5)) for i in range(24)]
    if case == "grouped":
        graph = job.torch.cuda.CUDAGraph()
        with job.torch.cuda.graph(graph), job.dist._coalescing_manager():
            for size in SIZES:
                job.dist.all_reduce(job.values[size])
        return [(graph, 3)]
    return [job.capture([SIZES[layer % 3]] * 2) for layer in range(LAYERS)]


def own_rank(comms, rank):
    for comm in comms:
        for each in comm["ranks"]:
            if each["rank"] == rank and each["captured"]:
                return comm, each
    return comms[0], comms[0]["ranks"][rank]


def run_rank(options):
    case = options.case
    job = Rank(case)
    rank = job.rank
    job.calibrate()
    if case in ("blocking", "burst"):
        small = job.values[SIZES[0]]
        for _ in range(3000):
            job.dist.all_reduce(small)
        print(json.dumps({"event": "stands", "rank": rank, "replayed": 0, "nccl": job.nccl}), flush=True)
        if rank != 1 and case == "blocking":
            job.dist.all_reduce(small)
        elif case == "burst":
            for _ in range(60 if rank == 1 else 0):
                job.torch.cuda._sleep(2_000_000_000)
            job.exchange_stages(small)
        time.sleep(3600)
    graphs = graphs_of(job, case)
    job.replay(graphs, options.seconds, *{"beside": [lambda: job.dist.all_reduce(job.values[SIZES[0]])],
                                          "groups": [job.shard]}.get(case, []))
    if case == "compiled":
        job.replayed = graphs[0][0].replayed()
    if case in STANDING:
        time.sleep(0.5)
        print(json.dumps({"event": "stands", "rank": rank, "replayed": job.replayed, "nccl": job.nccl}), flush=True)
        if case == "held" and rank == 1:
            for _ in range(60):
                job.torch.cuda._sleep(2_000_000_000)
        faulthandler.dump_traceback_later(6)  # where a launch waits
        if case == "computes" and rank == 1:
            values = job.torch.randn(8192, 8192, device="cuda", dtype=job.torch.bfloat16)
            while True:
                for _ in range(20):
                    values @ values
                job.torch.cuda.synchronize()
        if case == "held" or (case in ("stopped", "paused") and rank != 1):
            for graph, _ in graphs:
                graph.replay()
        time.sleep(3600)
    time.sleep(0.5)
    comms = endpoint.communicators(PORT, timeout=5)
    comm, own = own_rank(comms, rank)
    work = own["work"]
    right = work is not None and work["state"] == "proven" and (
        work["operations"] is None if case == "grouped" else 0 < job.replayed == work["operations"])
    states = sorted(each["ranks"][rank]["work"]["state"] for each in comms)
    right = right and states.count("refuted") == (case == "groups") and not any(each["hang"] for each in comms)
    stamped = sum(value for _, value in endpoint.metrics(PORT).select("nccl_graph_replays_total", rank=str(rank)))
    right = right and (case != "one" or 64 * stamped == job.replayed)
    print(json.dumps({"case": case, "rank": rank, "right": right, "replayed": job.replayed, "work": work, "stamped": stamped,
                      "nccl": job.nccl, "state": own["state"], "states": states,
                      "hang": comm["hang"] and comm["hang"]["text"]}), flush=True)
    time.sleep(1)  # the other one reads, too
    os._exit(0 if right else 1)


# ---- lives --------------------------------------------------------------------------------------


class Nccl:
    """The library itself; what it refuses is kept."""

    Comm = ctypes.c_void_p

    def __init__(self, path):
        self.library = ctypes.CDLL(path or "libnccl.so.2")
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self.library.ncclAllReduce.argtypes = [pointer, pointer, size, ctypes.c_int, ctypes.c_int, pointer, pointer]
        for name in ("ncclCommFinalize", "ncclCommDestroy", "ncclCommAbort"):
            getattr(self.library, name).argtypes = [pointer]
        self.library.ncclCommSplit.argtypes = [pointer, ctypes.c_int, ctypes.c_int, pointer, pointer]
        self.errors = []

    def __call__(self, name, *arguments):
        result = getattr(self.library, "nccl" + name)(*arguments)
        if result:
            self.errors.append((name, result))

    def for_all(self, calls):
        self("GroupStart")
        for call in calls:
            self(*call)
        self("GroupEnd")


def states_now():
    """Communicators by the state of their counters."""
    states = {}
    for labels, value in endpoint.metrics(PORT, timeout=5).select("nccl_pulse_work_counters"):
        name = labels["state"] if labels["reason"] == "none" else labels["reason"]
        states[name] = states.get(name, 0) + int(value)
    return states


def run_lives(options):
    """Communicators of both GPUs in this process."""
    import torch

    nccl = Nccl(options.nccl)
    gpus = [0, 1]
    streams = {i: torch.cuda.Stream(i) for i in gpus}
    data = {i: torch.zeros(1 << 18, device=i) for i in gpus}
    torch.cuda.set_device(gpus[0])

    def all_reduce(comms, only=gpus):
        nccl.for_all([("AllReduce", data[i].data_ptr(), data[i].data_ptr(), 1 << 16, 7, 0, comms[i],
                       streams[i].cuda_stream) for i in only if i in comms])

    class Config(ctypes.Structure):
        """ncclConfig_t as of 2.18: newer ones take it."""

        _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                    ("blocking", ctypes.c_int), ("cga", ctypes.c_int), ("min_ctas", ctypes.c_int),
                    ("max_ctas", ctypes.c_int), ("net", ctypes.c_char_p), ("split_share", ctypes.c_int)]

    undefined = -(1 << 31)
    # Children that share what their parent has are made faster.
    config = Config(ctypes.sizeof(Config), 0xcafebeef, 21800, undefined, undefined, undefined, undefined, None,
                    1 if options.share else undefined)
    world = (nccl.Comm * 2)()
    nccl("CommInitAll", world, 2, None)
    lives = hung = forks = 0
    end = time.monotonic() + options.seconds
    marks = [10, 50, 100, 200, 500, 1000, 2000, 5000, 10000]
    states = {}
    while time.monotonic() < end:
        comms = {i: nccl.Comm() for i in gpus}
        nccl.for_all([("CommSplit", world[i], 0, i, ctypes.byref(comms[i]), ctypes.byref(config)) for i in gpus])
        for _ in range(4):
            all_reduce(comms)
            for stream in streams.values():
                stream.synchronize()
            time.sleep(0.022 if lives % 4 == 0 else 0)
        if lives % 16 == 3:  # a child beside the reading, which ends or runs something else
            child = os.fork()
            if child == 0:
                os.execv("/bin/true", ["true"]) if lives % 32 == 3 else os._exit(0)
            forks += os.waitpid(child, 0)[1] == 0
        if lives % 8 == 7:  # a kernel hangs in it
            all_reduce(comms, [0])
            time.sleep(0.03)
            hung += 1
        if lives % 2:
            for i in gpus:
                nccl("CommAbort", comms[i])
        else:
            nccl.for_all([("CommFinalize", comms[i]) for i in gpus])
            for i in gpus:
                nccl("CommDestroy", comms[i])
        lives += 1
        if lives in marks:
            time.sleep(0.5)
            free = [torch.cuda.mem_get_info(i)[0] >> 20 for i in gpus]
            with open("/proc/self/status", encoding="utf-8") as file:
                resident = [line.split()[1] for line in file if line.startswith("VmRSS")][0]
            print(json.dumps({"lives": lives, "free_mib": free, "rss_kib": int(resident), "errors": nccl.errors[:3]}),
                  flush=True)
        if lives % 10 == 0 and "NCCL_PROFILER_PLUGIN" in os.environ:
            states = states_now()
    print(json.dumps({"case": options.case, "shared": options.share, "lives": lives, "hung": hung, "forks": forks,
                      "errors": nccl.errors[:5], "states": states}), flush=True)
    os._exit(1 if nccl.errors else 0)


def run_reset(options):
    """Without PyTorch, which does not outlive the reset of its GPU."""
    cuda = ctypes.CDLL(options.cudart)
    pointer = ctypes.c_void_p
    cuda.cudaMalloc.argtypes = [pointer, ctypes.c_size_t]
    cuda.cudaStreamSynchronize.argtypes = [pointer]
    nccl = Nccl(options.nccl)

    def check(name, *arguments):
        result = getattr(cuda, name)(*arguments)
        if result:
            nccl.errors.append((name, result))

    resets, proven, states = 0, 0, {}
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        both, streams, data = (nccl.Comm * 2)(), [], []
        for i in range(2):
            stream, memory = pointer(), pointer()
            check("cudaSetDevice", i)
            check("cudaStreamCreate", ctypes.byref(stream))
            check("cudaMalloc", ctypes.byref(memory), 1 << 20)
            streams.append(stream)
            data.append(memory)
        nccl("CommInitAll", both, 2, None)
        for _ in range(6):
            nccl.for_all([("AllReduce", data[i], data[i], 1 << 16, 7, 0, both[i], streams[i]) for i in range(2)])
            for stream in streams:
                check("cudaStreamSynchronize", stream)
            time.sleep(0.1)
        if "NCCL_PROFILER_PLUGIN" in os.environ:
            states = states_now()
            proven += states.get("proven") == 2
        for comm in both if options.case == "reset" else ():
            nccl("CommAbort" if resets % 2 else "CommDestroy", comm)
        for i in range(2):
            check("cudaSetDevice", i)
            check("cudaDeviceReset")
        # An idle communicator's tail is asked once a second.
        time.sleep(0 if options.case == "reset" else 1.3)
        resets += 1
    print(json.dumps({"case": options.case, "resets": resets, "proven": proven, "states": states,
                      "errors": nccl.errors[:5]}), flush=True)
    os._exit(1 if nccl.errors else 0)


# ---- the job ------------------------------------------------------------------------------------


def start(options, case, ranks):
    measured = torch_job.measured(options.library, PORT) if options.library else {}
    blocks = {"CUDA_LAUNCH_BLOCKING": "1"} if case == "blocking" else {}
    return torch_job.Job([os.path.abspath(__file__), *sys.argv[1:], "--case=" + case], dict(enumerate(range(ranks))),
                         variables=lambda rank: {**measured, **blocks})


def hang_now(ranks):
    try:
        comms = endpoint.communicators(PORT, timeout=5)
        comm, _ = own_rank(comms, 0)
        all_ranks = [own_rank(comms, rank)[1] for rank in range(ranks)]
    except (OSError, ValueError, IndexError, KeyError) as error:
        return "endpoint", [], repr(error), None
    hang = comm["hang"]
    states = [{"is": each["state"], **{name: (each["work"] or {}).get(name)
                                       for name in ("state", "operations", "moved", "gpu")},
               "unknown": each["unknown"], "polled": each["process"]["last_poll"]} for each in all_ranks]
    if hang is None:
        return "nothing", [], "", states
    return hang["verdict"], hang["suspects"], hang["text"], states


def watch(options, case, ranks):
    replayed = []
    for rank in ranks:
        line = rank.stdout.readline()
        while "stands" not in line:
            if rank.poll() is not None:
                print(json.dumps({"case": case, "right": False, "error": "the job does not start"}), flush=True)
                return False
            line = rank.stdout.readline()
        replayed.append(json.loads(line))
    begin, last, said = time.monotonic(), None, []
    is_named = case in ("stopped", "paused", *EAGER)
    paused = False
    while time.monotonic() - begin < options.limit:
        now = hang_now(options.gpus)
        if last is None or now[:2] != last[:2]:
            said.append([round(time.monotonic() - begin, 1), *now])
            last = now
        if (now[1] == [1] or case == "burst" and now[0] != "nothing") and (case != "paused" or (paused and time.monotonic() > begin + 24)):
            break
        if case == "paused" and not paused and time.monotonic() > begin + 13:
            paused = True
            ranks[0].send_signal(signal.SIGSTOP)
            time.sleep(3)
            ranks[0].send_signal(signal.SIGCONT)
        time.sleep(0.5)
    if case == "burst":
        right = last[0] != "nothing" and last[1] in ([], [1])
    elif is_named:
        right = last[1] == [1]
    elif case == "computes":
        right = all(each[1] == "nothing" for each in said)
    else:
        right = last[1] in ([], [1]) and last[0] in ("no_progress", "rank_not_begun")
    counts = [each and each["operations"] for each in now[3] or []]
    if case not in EAGER:
        right = right and counts == [each["replayed"] for each in replayed]
    print(json.dumps({"case": case, "right": right, "nccl": replayed[0]["nccl"], "replayed": replayed[0]["replayed"],
                      "counted": counts, "said": said, "at_last": now}), flush=True)
    return right


def run_job(options, case):
    with start(options, case, options.gpus) as job:
        if case in STANDING:
            return watch(options, case, list(job.ranks.values()))
        for rank in job.ranks.values():
            print(rank.communicate(timeout=120)[0], end="", flush=True)
        return not any(rank.returncode for rank in job.ranks.values())


def run_life(options, case):
    with start(options, case, 1) as job:
        process = job.ranks[0]
        print(process.communicate()[0], end="", flush=True)
        print(json.dumps({"case": case, "exit": process.returncode}), flush=True)
        return process.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--library")
    parser.add_argument("--cases", default=",".join((*JOBS, *LIVES)))
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--limit", type=float, default=32, help="seconds until a rank has to be named")
    parser.add_argument("--nccl", default="", help="of the cases of lives: the library")
    parser.add_argument("--cudart", default="libcudart.so", help="of the case reset: the library")
    parser.add_argument("--share", action="store_true", help="of the cases of lives: children share their parent's resources")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args()  # prove.sh has more
    if torch_job.is_rank():
        return {"lives": run_lives, "reset": run_reset, "left": run_reset}.get(options.case, run_rank)(options)
    wrong = sum(not (run_life if case in LIVES else run_job)(options, case) for case in options.cases.split(","))
    print("RESULT %s work counters: %s" % ("WRONG" if wrong else "OK", options.cases))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
