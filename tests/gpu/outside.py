"""Verdicts on jobs without the plugin on real GPUs: one table of case, verdict, rank and seconds.

  python tests/gpu/outside.py --pulse=pulse [--library=libnccl-profiler-pulse.so] [--gpus=4] [CASE ...]

Needs PyTorch. Rank 1 is the culprit. compare_tools.py runs other tools on such jobs. 25 s a case, in the order of
their worth; each begins once no process is left on a GPU or at RAS' port. Each sentence is printed, and of a case that
isn't right RAS' answer, NVML's uses, states and logs. Exits with 1 if a rank is named that isn't the culprit, or none
where the cause can be seen from outside.
"""

import argparse
import collections
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

import endpoint
import torch_job
from compare_tools import ras

CULPRIT = 1

JOB = r"""
import os, sys, time, torch, torch_job
mode, act = sys.argv[1], sys.argv[2] if os.environ["RANK"] == "1" else "-"
device = torch_job.own_device()
data, weights = torch.ones(1 << 20, device=device), torch.randn(2048, 2048, device=device)


def wait():
    print("ready", flush=True)
    time.sleep(600)


if mode == "first":
    if act == "never":
        wait()
    print("ready", flush=True)
rank, ranks, dist = torch_job.join()


def compute():
    for _ in range(8):
        weights @ weights
        if ranks > 1:
            dist.all_reduce(data)


def pipeline():
    for _ in range(4):
        if rank > 0:
            dist.recv(data, rank - 1)
        weights @ weights
        if rank < ranks - 1:
            dist.send(data, rank + 1)


for _ in range(3):
    compute()
torch.cuda.synchronize()
step = pipeline if mode == "pipeline" else compute
if mode == "graphs":
    time.sleep(0.3)  # PyTorch's watchdog forgets what has completed
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        compute()
    step = graph.replay
if mode == "idle" or act == "never":
    wait()
if mode == "second":
    print("ready", flush=True)
    dist.all_reduce(data, group=dist.new_group())
step()
torch.cuda.synchronize()
# Rank 1 alone measures the time until the fault: the others may block in the step after it.
if act == "-":
    print("ready", flush=True)
begin = since = time.time()
steps = 0
while True:
    step()
    torch.cuda.synchronize()
    steps += 1
    if steps % 500 == 0:
        print("us a step:", round((time.time() - since) / 500 * 1e6), flush=True)
        since = time.time()
    if act == "-" or time.time() - begin < 2:
        continue
    if act == "stop":
        wait()
    print("ready", flush=True)
    if act == "spin":
        torch.cuda._sleep(1 << 42)
    act = "-"
"""

STOPS, SILENT = {"rank_not_called"}, {None}

# Name: mode of the job, what becomes of rank 1, the verdicts that are right.
CASES = {
    "eager": ("eager", "stop", STOPS),
    "mixed": ("eager", "stop", STOPS),  # rank 0 has the plugin
    "agent": ("eager", "stop", STOPS),  # an agent finds it; seconds since the stop
    "two jobs": ("eager", "stop", STOPS),  # beside a healthy one
    "graphs": ("graphs", "stop", STOPS),
    "pipeline": ("pipeline", "stop", STOPS),
    "SIGSTOP": ("eager", "SIGSTOP", {"process_stopped"}),
    "SIGKILL": ("eager", "SIGKILL", {"process_gone"}),
    "endless kernel": ("eager", "spin", SILENT),
    "absent": ("first", "absent", SILENT),  # rank 1 isn't there
    "first": ("first", "never", SILENT),  # rank 1 is there, and makes no call
    "second": ("second", "never", SILENT),  # rank 1 never comes to the second communicator
    "healthy": ("eager", "-", SILENT),
    "idle": ("idle", "-", SILENT),
    "one GPU": ("eager", "-", SILENT),
    "agent healthy": ("eager", "-", SILENT),  # step times without and with an agent; RAS is never asked
}
AGENT_PORT = 9489
HANG = "nccl_hang_start_timestamp_seconds"
RAS_PORT = ":6D7C"
PATIENCE_S = 45  # of a case that takes 10 to 16 s


def at_ras_port(is_wanted):
    """True if a socket with such a state has RAS' port."""
    rows = []
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(path, encoding="ascii") as file:
            rows += [line.split() for line in file.readlines()[1:]]
    return any(is_wanted(row[3]) and any(place.endswith(RAS_PORT) for place in row[1:3]) for row in rows)


def nvml(*query):
    """nvidia-smi's answer, in one line."""
    found = subprocess.run(["nvidia-smi", "--format=csv,noheader", *query], capture_output=True, text=True, check=False)
    return "; ".join((found.stdout or found.stderr).splitlines())


def wait_until_free():
    """No process of the case before is left on a GPU, or listens at RAS' port."""
    end = time.time() + 20
    while at_ras_port(lambda state: state == "0A") or nvml("--query-compute-apps=pid"):
        if time.time() > end:
            print("     not free:", nvml("--query-compute-apps=pid,name"), flush=True)
            return
        time.sleep(0.3)


def threads_of(pid):
    """{"name state place in the kernel": threads}"""
    threads = collections.Counter()
    for thread in os.listdir("/proc/%d/task" % pid):
        with contextlib.suppress(OSError):
            said = []
            for name in ("stat", "wchan"):
                with open("/proc/%d/task/%s/%s" % (pid, thread, name), encoding="ascii", errors="replace") as file:
                    said.append(file.read())
            head, _, rest = said[0].rpartition(")")
            threads["%s) %s %s" % (head.partition(" ")[2], rest.split()[0], said[1])] += 1
    return dict(threads)


def explain(jobs):
    """Prints what verdicts are made from."""
    print("    ", time.strftime("%T"), "RAS:", ras("STATUS", is_json=True), flush=True)
    print("     NVML:", nvml("--query-gpu=index,utilization.gpu,utilization.memory,power.draw"), "pids:",
          nvml("--query-compute-apps=gpu_bus_id,pid"), flush=True)
    for job in jobs:
        for rank, process in job.ranks.items():
            print("     rank %d, pid %d, ended: %s" % (rank, process.pid, process.poll()), job.text(rank)[-300:],
                  threads_of(process.pid) if process.poll() is None else "", flush=True)


class Job(torch_job.Job):
    def __init__(self, mode, act, gpus, library=None):
        super().__init__(["-c", JOB, mode, act],
                         {rank: gpu for rank, gpu in enumerate(gpus) if (act, rank) != ("absent", CULPRIT)}, len(gpus),
                         lambda rank: {"NCCL_PROFILER_PLUGIN": None if rank else library}, has_logs=True)

    def is_ready(self):
        """False if a rank has ended, or isn't ready in time."""
        end = time.time() + PATIENCE_S
        while not all("ready" in self.text(rank) for rank in self.ranks):
            if time.time() > end or any(process.poll() is not None for process in self.ranks.values()):
                return False
            time.sleep(0.1)
        return True


def verdicts_of(text):
    decoder, verdicts = json.JSONDecoder(), []
    while text.strip():
        verdict, length = decoder.raw_decode(text.lstrip())
        verdicts.append(verdict)
        text = text.lstrip()[length:]
    return verdicts


def diagnose(options, case, right):
    begin = time.time()
    with subprocess.Popen([options.pulse, "diagnose", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        try:
            text, errors = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            print("     pulse waits:", threads_of(process.pid), flush=True)
            process.kill()
            text, errors = process.communicate()
    seconds = "%.1f" % (time.time() - begin)
    print("    ", time.strftime("%T"), "+%s s" % seconds, process.returncode, errors.strip(), flush=True)
    try:
        verdicts = verdicts_of(text)
    except ValueError:
        return [case, "no verdict", text[-300:], seconds, "WRONG"]
    for verdict in verdicts:
        print("    ", verdict["sentence"], verdict["outside"], verdict["notes"], flush=True)
    roots = [root for verdict in verdicts for root in verdict["roots"]]
    names = {root["verdict"] for root in roots} or {None}
    ranks = [rank["rank"] for root in roots for rank in root["ranks"]]
    is_right = names <= right and set(ranks) == ({CULPRIT} if roots else set())
    findings = ",".join(sorted({verdict["finding"] for verdict in verdicts})) or "no job"
    return [case, ",".join(sorted(map(str, names))) if roots else findings, ",".join(map(str, ranks)) or "-", seconds,
            "right" if is_right else "WRONG"]


class Agent:
    def __init__(self, options):
        self.folder = tempfile.mkdtemp()
        self.process = subprocess.Popen([options.pulse, "agent", "--listen=127.0.0.1:%d" % AGENT_PORT,
                                         "--capture-dir=" + self.folder])

    def captured(self):
        """Names of the files in all captures."""
        names = set()
        for each in os.listdir(self.folder):
            if each.endswith(".tar.gz"):
                with tarfile.open(os.path.join(self.folder, each)) as tar:
                    names |= {name.split("/", 1)[-1] for name in tar.getnames()}
        return names

    @staticmethod
    def select(name):
        """[(labels, value)] of a family."""
        try:
            return endpoint.metrics(AGENT_PORT, timeout=5).select(name)
        except OSError:
            return []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder)


def is_ras_asked():
    """A connection to its port, or what is left of one for a minute."""
    return at_ras_port(lambda state: state != "0A")


def run_agent(case, job, agent):
    begin = time.time()
    while time.time() - begin < 40:
        hangs = [labels for labels, _ in Agent.select(HANG)]
        if hangs:
            seconds = "%.1f" % (time.time() - begin)
            names = set()
            while not names and time.time() - begin < 60:
                time.sleep(0.3)
                names = agent.captured()
            print("    ", hangs, sorted(names), flush=True)
            is_right = (len(hangs) == 1 and hangs[0]["verdict"] == "rank_not_called" and
                        hangs[0].get("suspect_rank") == "1" and {"ras.json", "gpus.json"} <= names and
                        any(name.endswith("/state.txt") for name in names))
            return [case, "rank_not_called", "1" if is_right else "?", seconds, "right" if is_right else "WRONG"]
        if any(process.poll() is not None for process in job.ranks.values()):
            break
        time.sleep(0.3)
    return [case, "nothing", "-", "%.1f" % (time.time() - begin), "WRONG"]


def run_healthy(case, job, options):
    def steps():
        return [int(line.split()[-1]) for line in job.text(0).splitlines() if line.startswith("us a step")]

    time.sleep(min(60, options.seconds))
    before = steps()
    is_asked = is_ras_asked()
    with Agent(options):
        end = time.time() + options.seconds
        while time.time() < end:
            time.sleep(1)
            is_asked |= is_ras_asked()
        hangs = Agent.select(HANG)
        cpu = sum(value for _, value in Agent.select("process_cpu_seconds_total"))
    after = steps()[len(before) + 1:]
    print("     us a step: %.0f without the agent, %.0f with it; the agent took %.2f s of a core" %
          (statistics.median(before[1:]), statistics.median(after), cpu), hangs, flush=True)
    is_right = not hangs and not is_asked
    return [case, "RAS was asked" if is_asked else "RAS was not asked", "-", "%.0f" % options.seconds,
            "right" if is_right else "WRONG"]


def run(case, options):
    mode, act, right = CASES[case]
    every = list(range(1 if case == "one GPU" else options.gpus))
    library = os.path.abspath(options.library) if options.library and case == "mixed" else None
    if case == "mixed" and not library:
        return [case, "needs --library", "", "", "skipped"]
    half = options.gpus // 2 if case == "two jobs" and options.gpus >= 4 else 0
    wait_until_free()
    with Agent(options) if case == "agent" else contextlib.nullcontext() as agent, \
            Job(mode, act, every[half:], library) as job, \
            Job(mode, "-", every[:half or options.gpus] if case == "two jobs" else []) as other:
        jobs = [job, other]
        print(case, time.strftime("%T"), "pids", [process.pid for each in jobs for process in each.ranks.values()],
              flush=True)
        row = [case, "the job did not start", "", "", "WRONG"]
        if all(each.is_ready() for each in jobs):
            if act.startswith("SIG"):
                job.ranks[CULPRIT].send_signal(getattr(signal, act))
            if act == "SIGKILL":
                job.ranks[CULPRIT].wait()
            if case == "agent":
                row = run_agent(case, job, agent)
            elif case == "agent healthy":
                row = run_healthy(case, job, options)
            else:
                time.sleep(5 if mode == "first" else 1)
                row = diagnose(options, case, right)
        if row[-1] != "right":
            explain(jobs)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pulse", required=True)
    parser.add_argument("--library", help="the plugin, for case mixed")
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60, help="with the agent, of case agent healthy (default 60)")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    options = parser.parse_args()
    rows = [["case", "verdict", "rank", "seconds", ""]]
    for case in options.cases or CASES:
        begin = time.time()
        rows.append(run(case, options))
        print(" | ".join(rows[-1]), "(%.0f s in all)" % (time.time() - begin), flush=True)
    print("\n| %s |\n%s" % (" | ".join(rows[0]), "|---" * len(rows[0]) + "|"))
    for row in rows[1:]:
        print("| %s |" % " | ".join(row))
    return any(row[-1] == "WRONG" for row in rows[1:])


if __name__ == "__main__":
    sys.exit(main())
