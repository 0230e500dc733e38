#!/usr/bin/env python3
"""Hangs of PyTorch on two real GPUs, named twice: by NCCL Pulse while they last, and by `pulse diagnose
--flight-recorder` from PyTorch's own dumps of the same hangs.

    flight_recorder.py --plugin libnccl-profiler-pulse.so --pulse pulse --out FOLDER [--cases missing,peer]

Each case is a job of two ranks whose second one does something wrong after some steps. Once `pulse diagnose` calls
it a hang, each rank dumps what its Flight Recorder has: as a pickle, as a pickle without what has completed, and as
JSON. Then PyTorch's watchdog times out and writes its own dumps. Each of the four must name whom the endpoints have named, with the same
verdict. Only the dumps of `peer` without what has completed have no call. Dumps of PyTorch that lack one of the forms are reported as NOT MADE. A line RESULT for each; exit
status 1 if one differs. Less than a minute for each case. Python 3.9's standard library and PyTorch; nothing else of
this repository.
"""

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import threading
import time

PORT = 9700
STEPS = 50
TIMEOUT_S = 30  # until PyTorch's watchdog ends the job
FORMS = ("pickle", "active", "json", "watchdog")
# What the second rank does: does not come; has something before it on its GPU; sends nothing.
CASES = {"missing": "rank_not_called", "kernel": "rank_not_begun", "peer": "rank_not_called"}


def dump_on_request(c10d, rank, out):
    """In a thread: the three forms, once the file is there."""
    while not os.path.exists(os.path.join(out, "dump")):
        time.sleep(0.1)
    makers = {
        "pickle": lambda: c10d._dump_nccl_trace(includeCollectives=True, includeStackTraces=True, onlyActive=False),
        "active": lambda: c10d._dump_nccl_trace(includeCollectives=True, includeStackTraces=False, onlyActive=True),
        "json": lambda: c10d._dump_nccl_trace_json(includeCollectives=True, onlyActive=False)}
    for form, make in makers.items():
        folder = os.path.join(out, form)
        os.makedirs(folder, exist_ok=True)
        try:
            data = make()
        except Exception as error:  # pylint: disable=broad-except
            with open(os.path.join(folder, "why_%d.txt" % rank), "w", encoding="utf-8") as file:
                file.write("%s: %s" % (type(error).__name__, error))
            continue
        with open(os.path.join(folder, "rank_%d" % rank), "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
    with open(os.path.join(out, "dumped-%d" % rank), "w", encoding="ascii"):
        pass


def work(case, rank, out):
    """One rank of a job."""
    import torch  # pylint: disable=import-outside-toplevel
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel
    signal.alarm(TIMEOUT_S + 60)
    device = torch.device("cuda:%d" % rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=2, init_method="file://" + os.path.join(out, "store"),
                            timeout=datetime.timedelta(seconds=TIMEOUT_S))
    pair = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=TIMEOUT_S))
    threading.Thread(target=dump_on_request, args=(torch._C._distributed_c10d, rank, out), daemon=True).start()
    values = torch.ones(1 << 20, device=device)
    shard = torch.empty(1 << 19, device=device)
    for _ in range(STEPS):
        dist.all_reduce(values)
        dist.reduce_scatter_tensor(shard, values)
        (dist.send if rank == 0 else dist.recv)(values, 1 - rank, group=pair)
        values.fill_(1)
    torch.cuda.synchronize()
    print(json.dumps({"event": "hangs", "torch": torch.__version__, "nccl": torch.cuda.nccl.version()}), flush=True)
    if rank == 1 and case in ("missing", "peer"):
        time.sleep(TIMEOUT_S + 60)
    if rank == 1 and case == "kernel":
        for _ in range(40):  # of one to two seconds each
            torch.cuda._sleep(3 * 10**9)
    if case == "peer":
        dist.recv(values, 1, group=pair)
    dist.all_reduce(values)
    torch.cuda.synchronize()


def start(options, case, out):
    os.makedirs(os.path.join(out, "watchdog"))
    ranks = []
    for rank in range(2):
        prefix = os.path.join(out, "watchdog", "nccl_trace_rank_")
        environment = dict(
            os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", NCCL_PROFILER_PLUGIN=options.plugin,
            NCCL_PULSE_LISTEN="127.0.0.1:%d" % PORT, NCCL_DEBUG="WARN", TORCH_FR_BUFFER_SIZE="2000",
            TORCH_NCCL_TRACE_BUFFER_SIZE="2000", TORCH_NCCL_DUMP_ON_TIMEOUT="1", TORCH_NCCL_ENABLE_MONITORING="1",
            TORCH_FR_DUMP_TEMP_FILE=prefix, TORCH_NCCL_DEBUG_INFO_TEMP_FILE=prefix)
        if case == "kernel":
            environment["TORCH_NCCL_ENABLE_TIMING"] = "1"
        log = open(os.path.join(out, "rank-%d.txt" % rank), "wb")
        ranks.append(subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--work=" + case, "--rank=%d" % rank, "--out=" + out],
            env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True))
    return ranks


def named(pulse, *flags):
    """(verdict, global ranks) of the first root; None: there is no hang. And what it printed."""
    done = subprocess.run([pulse, "diagnose", "--json"] + list(flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return None, done.stdout + done.stderr
    for root in answer["roots"]:
        ranks = [rank["process"]["global_rank"] for rank in root["ranks"] if rank["process"]]
        return (root["verdict"], sorted(ranks)), answer["sentence"]
    return None, answer["sentence"]


def wait_for(seconds, is_true):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if is_true():
            return True
        time.sleep(0.5)
    return False


def has_dumps(folder):
    """Of both ranks, and nobody writes them any more."""
    def sizes():
        return {name: os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)}
    before = sizes()
    if len(before) < 2 or not all(before.values()):
        return False
    time.sleep(1)
    return sizes() == before


def run_case(options, case):
    out = os.path.join(options.out, case)
    os.makedirs(out)
    ranks = start(options, case, out)
    right = True
    try:
        live = [None, ""]

        def is_named():
            live[:] = named(options.pulse, "127.0.0.1:%d" % PORT, "--ras=off")
            return live[0] is not None and live[0][1]
        if not wait_for(60, is_named):
            print("RESULT WRONG %s: the endpoints name nobody: %s" % (case, live[1]), flush=True)
            return False
        expected = (CASES[case], ["1"])
        right = live[0] == expected
        print("RESULT %s %s endpoints: %s" % ("OK" if right else "WRONG", case, live[1]), flush=True)
        with open(os.path.join(out, "dump"), "w", encoding="ascii"):
            pass
        wait_for(20, lambda: all(os.path.exists(os.path.join(out, "dumped-%d" % rank)) for rank in range(2)))
        wait_for(TIMEOUT_S + 30, lambda: has_dumps(os.path.join(out, "watchdog")))
        for form in FORMS:
            folder = os.path.join(out, form)
            if not os.path.isdir(folder) or not [n for n in os.listdir(folder) if not n.startswith("why")]:
                print("RESULT NOT MADE %s %s" % (case, form), flush=True)
                continue
            found, sentence = named(options.pulse, "--flight-recorder=" + folder)
            # Inside NCCL a call is not active, by PyTorch, and its watchdog does not know it.
            is_right = found == (None if (case, form) == ("peer", "active") else live[0])
            right &= is_right
            print("RESULT %s %s %s: %s" % ("OK" if is_right else "WRONG", case, form, sentence), flush=True)
            with open(os.path.join(out, form + ".txt"), "w", encoding="utf-8") as file:
                subprocess.run([options.pulse, "diagnose", "--flight-recorder=" + folder], stdout=file,
                               stderr=subprocess.STDOUT, check=False)
        return right
    finally:
        for rank in ranks:
            try:
                os.killpg(rank.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            rank.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin")
    parser.add_argument("--pulse")
    parser.add_argument("--out", required=True)
    parser.add_argument("--cases", default="missing,kernel,peer")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out = os.path.abspath(options.out)
    if options.work:
        return work(options.work, options.rank, options.out)
    options.plugin, options.pulse = os.path.abspath(options.plugin), os.path.abspath(options.pulse)
    results = [run_case(options, case) for case in options.cases.split(",")]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
