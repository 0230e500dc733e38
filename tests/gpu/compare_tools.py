#!/usr/bin/env python3
"""Tools side by side: the same fault in the same job on real GPUs, and the rank that each tool names.

  compare_tools.py --plugin libnccl-profiler-pulse.so --pulse pulse --out FOLDER [--gpus 2] [--rounds 1] [CASE ...]
  compare_tools.py --cost ...    instead: what tools that a job starts with cost its steps

Each case runs twice: a job with the plugin and PyTorch's Flight Recorder, and the same job with neither, which NCCL's
RAS, NVML and /proc describe, and NCCL Inspector. Rank 1 (of two ranks at fault: 2, too) is at fault at a random step.
All jobs with the plugin come first, and cases in the order given. FOLDER gets each tool's output, and table.md:

  right N s    the ranks at fault and no other, N seconds after the fault
  right for one  one of the two ranks at fault
  among N      ranks of which one is at fault; two ranks that differ can't be told apart
  wrong        another rank
  nobody       something is wrong, and no rank is named
  not known    whether anything is wrong can't be told
  silent       nothing is said

Needs PyTorch; half a minute for each case and job. Nothing else of this repository. Where there are fewer GPUs, ranks
share them: with NCCL 2.31, NCCL_MULTI_RANK_GPU_ENABLE=1, NCCL_MAX_CTAS=4 and a fresh MPS for each job (--before).
"""

import argparse
import ctypes
import glob
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import time

PORT = 9410  # the default: pulse diagnose finds it
CULPRIT = 1
SECOND_CULPRIT = 2
# How long tools are asked for a name.
PATIENCE_S = {"straggler": 40, "healthy: checkpoint": 60}
PATIENCE_ELSE_S = 16
COST_STEPS = 1500
STEP_S, LATE = 0.02, 0.05  # a step of a job with a straggler, and the part by which one rank is late
RAS_EVERY_S = 12  # between two answers of RAS
# Faults by name, and whether a rank is at fault.
FAULTS = ("host stops", "two hosts stop", "host stops, short graphs", "host stops, graph of 64",
          "host stops, Send/Recv pipeline", "host stops, all_to_all", "SIGSTOP", "SIGKILL",
          "SIGKILL, the launcher ends the others", "wrong order", "wrong size", "wrong root", "endless kernel",
          "Broadcast not joined", "communicator not joined", "exit handler", "GPU error", "straggler: host 5 % late",
          "straggler: GPU 5 % late")
HEALTHY = ("healthy: checkpoint of 60 s", "healthy: idle", "healthy: long evaluation", "healthy: job ends")
WITH = ("NCCL Pulse", "torchfrtrace", "NVRx", "Flight Recorder's dumps, NCCL Pulse")
WITHOUT = ("NCCL Pulse, no plugin", "ncclras", "Ray's rule", "Inspector")


class Rank:
    """One rank of a job, in a process of its own. Prints "fault" when the fault happens."""

    def __init__(self, case, rank, gpus, out):
        import torch  # pylint: disable=import-outside-toplevel
        import torch.distributed as dist  # pylint: disable=import-outside-toplevel
        self.torch, self.dist, self.case, self.rank, self.gpus, self.out = torch, dist, case, rank, gpus, out
        self.at_fault = rank in culprits(case)
        if case == "exit handler" and self.at_fault:  # registered before the plugin's handler, so it runs after it
            libc = ctypes.CDLL(None)
            getattr(libc, "__cxa_atexit")(ctypes.cast(libc.pause, ctypes.c_void_p), None, None)
        self.device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl", rank=rank, world_size=gpus, init_method="file://" + os.path.join(out, "store"),
                                device_id=self.device)
        self.data = torch.ones(1 << 20, device=self.device)
        self.weights = torch.randn(2048, 2048, device=self.device)
        self.products = self.products_of_a_step() if case.startswith("straggler") else 0
        self.is_late = False
        self.graph = self.captured()

    def captured(self):
        if "graph" not in self.case:
            return None
        self.step_eager()
        stream, graph = self.torch.cuda.Stream(), self.torch.cuda.CUDAGraph()
        self.torch.cuda.synchronize()
        with self.torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for _ in range(64 if "64" in self.case else 8):
                self.weights @ self.weights  # pylint: disable=pointless-statement
                self.dist.all_reduce(self.data)
        return graph

    def products_of_a_step(self):
        """Matrix products that take STEP_S."""
        for _ in range(2):
            self.torch.cuda.synchronize()
            begin = time.time()
            for _ in range(100):
                self.weights @ self.weights  # pylint: disable=pointless-statement
            self.torch.cuda.synchronize()
        return int(STEP_S * 100 / (time.time() - begin))

    def step_straggler(self):
        if self.is_late and "host" in self.case:
            time.sleep(LATE * STEP_S)
        more = LATE if self.is_late and "GPU" in self.case else 0
        for _ in range(int(self.products * (1 + more))):
            self.weights @ self.weights  # pylint: disable=pointless-statement
        for _ in range(2):
            self.dist.all_reduce(self.data)

    def step_eager(self):
        for _ in range(10):
            self.weights @ self.weights  # pylint: disable=pointless-statement
            self.dist.all_reduce(self.data)

    def step_pipeline(self):
        for _ in range(4):
            if self.rank > 0:
                self.dist.recv(self.data, self.rank - 1)
            self.weights @ self.weights  # pylint: disable=pointless-statement
            if self.rank < self.gpus - 1:
                self.dist.send(self.data, self.rank + 1)

    def step_all_to_all(self):
        received = self.torch.empty_like(self.data)
        self.weights @ self.weights  # pylint: disable=pointless-statement
        self.dist.all_to_all_single(received, self.data)

    def step(self):
        if self.graph is not None:
            self.graph.replay()
        elif "pipeline" in self.case:
            self.step_pipeline()
        elif "all_to_all" in self.case:
            self.step_all_to_all()
        elif self.products:
            self.step_straggler()
        else:
            self.step_eager()
        self.torch.cuda.synchronize()

    def say_fault(self):
        with open(os.path.join(self.out, "fault-%d" % self.rank), "w", encoding="ascii") as file:
            file.write(str(time.time()))

    def fault(self):
        """What differs on the rank at fault, and what the others call."""
        dist, case, data = self.dist, self.case, self.data
        self.say_fault()
        if case.startswith("healthy: checkpoint") or case == "healthy: long evaluation":
            # A checkpoint is written by all hosts; an evaluation keeps all GPUs busy.
            end = time.time() + (60 if "checkpoint" in case else 20)
            while time.time() < end:
                if "evaluation" in case:
                    self.weights @ self.weights  # pylint: disable=pointless-statement
                    self.torch.cuda.synchronize()
                else:
                    time.sleep(0.1)
        elif case == "healthy: idle":
            time.sleep(600)
        elif case == "healthy: job ends":
            dist.destroy_process_group()
            time.sleep(1)
            sys.exit(0)
        elif case.startswith("straggler"):
            self.is_late = self.at_fault
        elif case == "endless kernel" and self.at_fault:
            self.torch.cuda._sleep(1 << 42)
        elif case == "exit handler" and self.at_fault:
            ctypes.CDLL(None).exit(0)
        elif case == "GPU error" and self.at_fault:
            data[self.torch.tensor([1 << 21], device=self.device)].clone()  # a kernel's assertion fails
            try:
                self.torch.cuda.synchronize()
            except RuntimeError as error:
                print(error, flush=True)
        elif case == "wrong order" and self.at_fault:
            dist.all_gather_into_tensor(self.torch.empty(self.gpus << 20, device=self.device), data)
        elif case == "wrong size" and self.at_fault:
            dist.all_reduce(self.torch.ones(1 << 22, device=self.device))
        elif case == "wrong root":
            dist.broadcast(data, self.gpus - 1 if self.at_fault else 0)
        elif case == "Broadcast not joined" and not self.at_fault:
            dist.broadcast(data, 0)
        elif case == "communicator not joined":
            group = dist.new_group(list(range(self.gpus)), use_local_synchronization=False)
            if not self.at_fault:
                dist.all_reduce(data, group=group)
        if self.at_fault and not case.startswith(("healthy", "wrong", "endless", "SIG", "straggler")):
            time.sleep(600)

    def measure(self):
        """Keeps the median of the microseconds that a step takes, once tools have settled, and ends."""
        took = []
        for _ in range(2 * COST_STEPS):
            begin = time.perf_counter()
            self.step()
            took.append((time.perf_counter() - begin) * 1e6)
        keep(self.out, "us-%d" % self.rank, str(statistics.median(took[COST_STEPS:])))
        sys.exit(0)

    def run(self):
        """Steps without a pause; the fault comes at the same step on all ranks, after some 3 s."""
        if self.case.startswith("cost"):
            self.measure()
        begin = time.time()
        for _ in range(50):
            self.step()
        pace = (time.time() - begin) / 50
        more = self.torch.tensor([int(random.uniform(2, 4) / pace)], device=self.device)
        self.dist.broadcast(more, 0)
        for _ in range(int(more.item())):
            self.step()
        self.fault()
        while True:
            self.step()
            keep(self.out, "step-%d" % self.rank, str(time.time()))


def dump_on_request(out, rank):
    """In a thread: what the Flight Recorder has, once the file is there."""
    import torch  # pylint: disable=import-outside-toplevel
    while not os.path.exists(os.path.join(out, "dump")):
        time.sleep(0.1)
    data = torch._C._distributed_c10d._dump_nccl_trace(includeCollectives=True, includeStackTraces=True,
                                                       onlyActive=False)
    name = os.path.join(out, "dumps", "rank_%d" % rank)
    with open(name + ".part", "wb") as file:
        file.write(data)
    os.rename(name + ".part", name)


def environment(options, out):
    """Of each tool that a job starts with."""
    return {
        "NCCL Pulse": {"NCCL_PROFILER_PLUGIN": options.plugin, "NCCL_PULSE_LISTEN": "127.0.0.1:%d" % PORT},
        "Flight Recorder": {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TORCH_FR_BUFFER_SIZE": "2000"},
        "Inspector": {"NCCL_PROFILER_PLUGIN": options.inspector, "NCCL_INSPECTOR_ENABLE": "1",
                      "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "500000",
                      "NCCL_INSPECTOR_DUMP_DIR": os.path.join(out, "inspector")},
    }


def start(options, case, out, tools):
    """Forks the ranks: PyTorch is imported already, and CUDA not yet begun."""
    import threading  # pylint: disable=import-outside-toplevel
    os.makedirs(os.path.join(out, "dumps"))
    ranks = []
    for rank in range(options.gpus):
        pid = os.fork()
        if pid:
            ranks.append(pid)
            continue
        os.setsid()
        log = os.open(os.path.join(out, "rank-%d.txt" % rank), os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.gpus), NCCL_NVLS_ENABLE="0",
                          TORCH_NCCL_ASYNC_ERROR_HANDLING="0", TORCH_NCCL_ENABLE_MONITORING="0")
        for tool in tools:
            os.environ.update(environment(options, out)[tool])
        if "Flight Recorder" in tools:
            threading.Thread(target=dump_on_request, args=(out, rank), daemon=True).start()
        try:
            Rank(case, rank, options.gpus, out).run()
        except SystemExit:
            os._exit(0)
        except BaseException as error:  # pylint: disable=broad-except
            print(repr(error), flush=True)
            os._exit(1)
    return ranks


def end_all(ranks):
    for pid in ranks:
        for send in (os.killpg, os.kill):
            try:
                send(pid, signal.SIGKILL)
            except OSError:
                pass
    for pid in ranks:
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass


def wait_for(seconds, is_true):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if is_true():
            return True
        time.sleep(0.2)
    return False


def keep(out, name, text):
    with open(os.path.join(out, name), "w", encoding="utf-8") as file:
        file.write(text)


def goes_on(out, gpus):
    """True if all ranks still make steps: the fault was none."""
    steps = [os.path.join(out, name) for name in os.listdir(out) if name.startswith("step-")]
    return len(steps) == gpus and all(time.time() - os.path.getmtime(step) < 3 for step in steps)


def culprits(case):
    return [CULPRIT, SECOND_CULPRIT] if case.startswith("two") else [CULPRIT]


def verdict(case, ranks, said, begin):
    """A cell: `ranks` that a tool names, and what it says where it names none (or whether it says anything)."""
    if ranks:
        if ranks == culprits(case):
            return "right %.0f s" % (time.time() - begin)
        if set(ranks) < set(culprits(case)):
            return "right for one, %.0f s" % (time.time() - begin)
        return "among %d, %.0f s" % (len(ranks), time.time() - begin) if CULPRIT in ranks else "wrong (%s)" % ranks
    return said if isinstance(said, str) else "nobody" if said else "silent"


def pulse(options, out, name, flags):
    """(ranks, what it says where it names none)."""
    done = subprocess.run([options.pulse, "diagnose", "--json"] + flags, capture_output=True, text=True, check=False)
    keep(out, name, done.stdout)
    try:
        answer = json.JSONDecoder().raw_decode(done.stdout)[0]  # of the first job
    except ValueError:
        return [], False
    ranks = {rank["rank"] for root in answer["roots"] for rank in root["ranks"] or root["perhaps"]}
    ranks |= {rank["rank"] for late in answer["stragglers"] for rank in late["ranks"]}
    ranks |= {int(rank) for rank in re.findall(r"[Ww]ithout finalizing: global rank (\d+)", answer["sentence"])}
    return sorted(ranks), {"hang": "nobody", "incomplete": "not known"}.get(answer["finding"], "silent")


def ras(command, is_json):
    """RAS' answer as text."""
    answer = b""
    try:
        with socket.create_connection(("localhost", 28028), timeout=5) as asked:
            text = "CLIENT PROTOCOL 2\n" + ("SET FORMAT json\n" if is_json else "") + command + "\n"
            asked.sendall(text.encode())
            while True:
                piece = asked.recv(65536)
                if not piece:
                    break
                answer += piece
    except OSError as error:
        answer += str(error).encode()
    return answer.decode(errors="replace")


def ranks_in_ras_text(text):
    """The ranks that NCCL's report lists under a warning or an error: "Rank 1 -- GPU ...", "Rank 1 has ..."."""
    listed = re.sub(r"Errors\n=+|Warnings\n=+", "", text[max(text.find("Errors\n="), 0):]).strip()
    return sorted({int(rank) for rank in re.findall(r"\bRank (\d+) (?:--|has)", listed)}), bool(listed)


def counts(text):
    """The counts of every rank of every communicator; 2.28.9 leaves out a comma."""
    body = re.sub(r'("nvml_dev": -?\d+)\n(\s+"status")', r"\1,\n\2", text[text.find("{"):])
    try:
        answer = json.loads(body)
    except ValueError:
        return None
    return {one["hash"]: {rank["rank"]: rank["collective_counts"] for rank in one["ranks"]}
            for one in answer["communicators"]}


def analysis(out, name, command, ranks, wrong):
    """Another tool's analysis of the dumps; (ranks that `ranks` finds in it, whether `wrong` does)."""
    done = subprocess.run(command + [os.path.join(out, "dumps")], capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    keep(out, name, text)
    if "No module named" in text:
        return [], "not installed"
    named = {int(rank) for listed in re.findall(ranks, text) for rank in re.findall(r"\d+", listed)}
    return sorted(named), bool(re.search(wrong, text))


def fr_trace(out):
    """PyTorch's own."""
    return analysis(out, "fr_trace.txt",
                    [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", "-p", "rank_"],
                    r"(?:[Mm]issing ranks|Missing dump files from ranks|[Cc]ulprit [Rr]anks?|[Mm]ismatched ranks)[^\w\n]*([\d, ]+)",
                    r"[Mm]ismatch|[Nn]ot all ranks|[Mm]issing|[Cc]ulprit")


def nvrx(out, folder):
    """NVIDIA's resiliency extension, without its language model; a row for each process group."""
    return analysis(out, "nvrx.txt", ["env", "PYTHONPATH=" + folder, sys.executable, "-m",
                                      "nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution",
                                      "--emit-stdout", "-p", "rank_*", "--fr-path"],
                    r"(?m)^\d+ +\|.*\| ([\d, ]+)$", r"(?m)^\d+ +\|")


def inspector(out):
    """The ranks that have ended less than others, once nothing ends: Inspector's example summary tells none apart."""
    last, newest = {}, 0
    for name in glob.glob(os.path.join(out, "inspector", "**", "*.log"), recursive=True):
        with open(name, encoding="ascii") as file:
            for line in file:
                try:
                    record = json.loads(line)
                except ValueError:  # half written
                    continue
                if "coll_perf" in record:
                    ranks = last.setdefault((record["header"]["id"], record["coll_perf"]["coll"]), {})
                    ranks[record["header"]["rank"]] = record["coll_perf"]["coll_sn"]
                    newest = max(newest, record["metadata"]["dump_timestamp_us"])
    behind = {rank for ranks in last.values() for rank, done in ranks.items() if done < max(ranks.values())}
    return sorted(behind) if time.time() - newest / 1e6 > 3 else [], False


def fault_of(options, case, out, ranks):
    """Waits for the fault. Returns its time; None: the job did not come to it."""
    def has_begun():
        return os.path.exists(os.path.join(out, "fault-%d" % CULPRIT))
    def has_ended():
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    wait_for(60, lambda: has_begun() or has_ended())
    if not has_begun():
        return None
    begin = time.time()
    if case.startswith("SIG"):
        os.kill(ranks[CULPRIT], getattr(signal, case.split(",")[0]))
        if case != "SIGSTOP":
            os.waitpid(ranks[CULPRIT], 0)
        if "launcher" in case:
            time.sleep(0.4)
            end_all([pid for pid in ranks if pid != ranks[CULPRIT]])
    return begin


def with_plugin(options, case, out):
    # Only a process that outlives the job can tell how it ended.
    agent = None
    if "launcher" in case:
        agent = subprocess.Popen([options.pulse, "agent", "--listen=127.0.0.1:%d" % PORT], stderr=subprocess.DEVNULL)
        wait_for(10, lambda: not socket.socket().connect_ex(("127.0.0.1", PORT)))
    ranks = start(options, case, out, ["NCCL Pulse", "Flight Recorder"])
    try:
        begin = fault_of(options, case, out, ranks)
        if begin is None:
            return {tool: "no job" for tool in WITH}
        cells = {}
        patience = [seconds for name, seconds in PATIENCE_S.items() if case.startswith(name)] or [PATIENCE_ELSE_S]
        while time.time() - begin < patience[0]:
            named, said = pulse(options, out, "pulse.json", [])
            cells[WITH[0]] = verdict(case, named, said, begin)
            if len(named) >= len(culprits(case)):
                break
            time.sleep(0.5)
        keep(out, "dump", "")
        expected = 0 if "launcher" in case else options.gpus - case.startswith("SIG")
        wait_for(5, lambda: len(os.listdir(os.path.join(out, "dumps"))) >= expected)
        if not case.startswith(("healthy", "straggler", "SIG")) and goes_on(out, options.gpus):
            cells[WITH[0]] += ", the job goes on"
        cells[WITH[1]] = verdict(case, *fr_trace(out), begin)
        cells[WITH[2]] = verdict(case, *nvrx(out, options.nvrx), begin) if options.nvrx else "not run"
        flags = ["--flight-recorder=" + os.path.join(out, "dumps")]
        cells[WITH[3]] = verdict(case, *pulse(options, out, "pulse-dumps.json", flags), begin)
        return cells
    finally:
        end_all(ranks)
        if agent:
            agent.kill()
            agent.wait()


def without_plugin(options, case, out):
    ranks = start(options, case, out, ["Inspector"] if options.inspector else [])
    try:
        begin = fault_of(options, case, out, ranks)
        if begin is None:
            return {tool: "no job" for tool in WITHOUT}
        time.sleep(1)
        first = ras("VERBOSE STATUS", is_json=True)
        asked = time.time()
        cells = {WITHOUT[0]: verdict(case, *pulse(options, out, "pulse.json", []), begin)}
        text = ras("VERBOSE STATUS", is_json=False)
        cells[WITHOUT[1]] = verdict(case, *ranks_in_ras_text(text), begin)
        time.sleep(max(0.0, asked + RAS_EVERY_S - time.time()))
        second = ras("VERBOSE STATUS", is_json=True)
        for name, answer in (("ras.txt", text), ("ras-1.json", first), ("ras-2.json", second)):
            keep(out, name, answer)
        # Ray's rule: a communicator whose counts stand and differ between ranks. It names no rank.
        before, after = counts(first), counts(second)
        stalls = before is not None and before == after and any(
            len({json.dumps(each) for each in one.values()}) > 1 for one in after.values())
        cells[WITHOUT[2]] = "nobody" if stalls else "silent"
        cells[WITHOUT[3]] = verdict(case, *inspector(out), begin) if options.inspector else "not run"
        return cells
    finally:
        end_all(ranks)


def compare_cost(options):
    """A table of each tool's microseconds a step and of their ratio to the same job without one, of alternating jobs."""
    without = ()
    choices = [without, ("NCCL Pulse",), ("Flight Recorder",)] + [("Inspector",)] * bool(options.inspector)
    table = "| step | tool | us, median | ratio, median | ratios |\n|---|---|---|---|---|\n"
    os.environ.update(TORCH_NCCL_TRACE_BUFFER_SIZE="0", TORCH_FR_BUFFER_SIZE="0")
    for case in ("cost, eager", "cost, short graphs"):
        took = {tools: [] for tools in choices}
        for number in range(options.rounds):
            for tools in choices:
                out = os.path.join(options.out, re.sub(r"\W+", "_", "%s-%d-%s" % (case, number, "".join(tools))))
                os.makedirs(out)
                subprocess.run(options.before, shell=True, check=True)
                for rank, pid in enumerate(start(options, case, out, tools)):
                    if os.waitpid(pid, 0)[1]:
                        sys.exit("Rank %d has failed: see %s/rank-%d.txt." % (rank, out, rank))
                with open(os.path.join(out, "us-0"), encoding="ascii") as file:
                    took[tools].append(float(file.read()))
        for tools, each in took.items():
            ratios = [one / base for one, base in zip(each, took[without])]
            table += "| %s | %s | %.1f | %.4f | %s |\n" % (
                case[len("cost, "):], "".join(tools) or "none", statistics.median(each), statistics.median(ratios),
                " ".join("%.4f" % ratio for ratio in ratios))
        keep(options.out, "cost.md", table)
    print(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", required=True, type=os.path.abspath)
    parser.add_argument("--pulse", required=True, type=os.path.abspath)
    parser.add_argument("--out", required=True, type=os.path.abspath)
    parser.add_argument("--inspector", type=os.path.abspath, help="libnccl-profiler-inspector.so")
    parser.add_argument("--nvrx", type=os.path.abspath, help="folder with nvidia_resiliency_ext")
    parser.add_argument("--before", default="", help="a shell command to run before each job")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no job begins")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(FAULTS + HEALTHY).replace("%", "%%"))
    options = parser.parse_args()
    import torch  # pylint: disable=import-outside-toplevel
    if options.cost:
        compare_cost(options)
        return
    nccl = ctypes.c_int()
    ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(nccl))
    table = "PyTorch %s, NCCL %d, %d ranks\n\n| case | %s |\n%s|\n" % (
        torch.__version__, nccl.value, options.gpus, " | ".join(WITH + WITHOUT), "|---" * (len(WITH + WITHOUT) + 1))
    print(table, end="", flush=True)
    deadline = time.monotonic() + options.budget
    rows = {}
    for number in range(options.rounds):
        for name, run in (("with", with_plugin), ("without", without_plugin)):
            for case in options.cases or FAULTS + HEALTHY:
                if time.monotonic() > deadline:
                    return
                out = os.path.join(options.out, "%s-%d-%s" % (re.sub(r"\W+", "_", case), number, name))
                os.makedirs(out)
                subprocess.run(options.before, shell=True, check=True)
                cells = rows.setdefault((case, number), {})
                cells.update(run(options, case, out))
                lines = ["| %s | %s |\n" % (row, " | ".join(said.get(tool, "") for tool in WITH + WITHOUT))
                         for (row, _), said in rows.items()]
                keep(options.out, "table.md", table + "".join(lines))
                print(name, case, cells, flush=True)


if __name__ == "__main__":
    main()
