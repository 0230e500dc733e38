"""What `pulse diagnose` says of jobs without the plugin on real GPUs: a rank stops in each way, and the verdict, the rank
and the seconds are printed as one table.

  python tests/gpu/outside.py --pulse=bazel-bin/exporter/pulse [--nccl=libnccl.so.2] [CASE ...]

Needs 4 GPUs and PyTorch. 40 s a case. Exits with 1 if a verdict is wrong.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

RANKS = 4
CULPRIT = 1
PORTS = iter(range(29700, 29800))

JOB = r"""
import os, sys, time, torch, torch.distributed as dist
rank, mode, stops = int(os.environ["RANK"]), sys.argv[1], sys.argv[2] == "stop" and int(os.environ["RANK"]) == 1
torch.cuda.set_device(rank)
device = torch.device("cuda", rank)
dist.init_process_group("nccl", device_id=device)
data, weights = torch.ones(1 << 20, device=device), torch.randn(2048, 2048, device=device)
graph = None
if mode == "graphs":
    for _ in range(5):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(8):
            weights @ weights
            dist.all_reduce(data)
begin = time.time()
while True:
    if mode == "idle" or (stops and time.time() - begin > 6):
        if mode == "idle":
            dist.all_reduce(data)
            torch.cuda.synchronize()
        print("ready", flush=True)
        time.sleep(600)
    if mode == "spin" and time.time() - begin > 6:
        if rank == 1:
            torch.cuda._sleep(1 << 40)
        print("ready", flush=True)
    if graph is not None:
        graph.replay()
    elif mode == "pipeline":
        for _ in range(4):
            if rank > 0:
                dist.recv(data, rank - 1)
            weights @ weights
            if rank < 3:
                dist.send(data, rank + 1)
    else:
        for _ in range(10):
            weights @ weights
            dist.all_reduce(data)
    torch.cuda.synchronize()
    if time.time() - begin > 4 and not stops and mode != "spin":
        print("ready", flush=True)
"""

# Name: mode of the job, how rank 1 stops, the verdicts that are right.
CASES = {
    "healthy": ("eager", None, {None}),
    "healthy graphs": ("graphs", None, {None}),
    "idle": ("idle", None, {None}),
    "eager": ("eager", "stop", {"rank_not_called"}),
    "graphs": ("graphs", "stop", {"rank_not_called"}),
    "pipeline": ("pipeline", "stop", {"rank_not_called"}),
    "endless kernel": ("spin", None, {None}),
    "SIGSTOP": ("eager", signal.SIGSTOP, {"process_stopped"}),
    "SIGKILL": ("eager", signal.SIGKILL, {"process_gone"}),
}


def start(folder, mode, stop, nccl):
    script = os.path.join(folder, "job.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(JOB)
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(next(PORTS)), WORLD_SIZE=str(RANKS),
                       TORCH_NCCL_ASYNC_ERROR_HANDLING="0", TORCH_NCCL_ENABLE_MONITORING="0")
    environment.pop("NCCL_PROFILER_PLUGIN", None)
    if nccl:
        environment["LD_PRELOAD"] = nccl
    processes = []
    for rank in range(RANKS):
        with open(os.path.join(folder, "log%d" % rank), "wb") as log:
            processes.append(subprocess.Popen([sys.executable, script, mode, "stop" if stop == "stop" else "-"],
                                              env=dict(environment, RANK=str(rank), LOCAL_RANK=str(rank)), stdout=log,
                                              stderr=subprocess.STDOUT))
    return processes


def log_of(folder, rank):
    with open(os.path.join(folder, "log%d" % rank), encoding="utf-8", errors="replace") as file:
        return file.read()


def run(case, options):
    mode, stop, right = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        processes = start(folder, mode, stop, options.nccl)
        try:
            end = time.time() + 60
            while "ready" not in log_of(folder, CULPRIT):
                if time.time() > end or any(process.poll() is not None for process in processes):
                    return [case, "the job did not start", log_of(folder, CULPRIT)[-200:], "", "?"]
                time.sleep(0.2)
            if isinstance(stop, signal.Signals):
                processes[CULPRIT].send_signal(stop)
                if stop == signal.SIGKILL:
                    processes[CULPRIT].wait()
            time.sleep(2)
            begin = time.time()
            found = subprocess.run([options.pulse, "diagnose", "--json"], capture_output=True, text=True, timeout=120,
                                   check=False)
            seconds = time.time() - begin
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.wait()
    try:
        verdict = json.loads(found.stdout)
    except ValueError:
        return [case, "no verdict", (found.stdout + found.stderr)[-300:], "%.1f" % seconds, "WRONG"]
    roots = verdict["roots"]
    name = roots[0]["verdict"] if roots else None
    ranks = [rank["rank"] for root in roots for rank in root["ranks"]]
    is_right = name in right and ranks == ([CULPRIT] if name else [])
    if options.verbose or not is_right:
        print(case, found.returncode, verdict["sentence"], verdict["notes"], found.stderr, flush=True)
    return [case, name or verdict["finding"], ",".join(map(str, ranks)) or "-", "%.1f" % seconds,
            "right" if is_right else "WRONG"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pulse", required=True)
    parser.add_argument("--nccl", help="another libnccl.so.2, preloaded")
    parser.add_argument("--verbose", action="store_true", help="print each sentence")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    options = parser.parse_args()
    rows = [["case", "verdict", "rank", "seconds", ""]]
    for case in options.cases or CASES:
        rows.append(run(case, options))
        print(" | ".join(rows[-1]), flush=True)
    print("\n| %s |\n%s" % (" | ".join(rows[0]), "|---" * len(rows[0]) + "|"))
    for row in rows[1:]:
        print("| %s |" % " | ".join(row))
    return any(row[-1] != "right" for row in rows[1:])


if __name__ == "__main__":
    sys.exit(main())
