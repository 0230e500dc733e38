#!/usr/bin/env python3
"""PyTorch jobs of two ranks that stand for reasons that are not NCCL's, on real GPUs, and what is said of each.

    stalls_torch.py --library libnccl-profiler-pulse.so --pulse pulse [--cases foreign,exit,...] [--out FOLDER]

    case      what happens                                             what must be said
    foreign   a kernel that is not NCCL's holds both GPUs, with an     queued for six times --hang, then no_progress that
              AllReduce launched behind it                             names nobody
    exit      rank 1 is in exit(), and a handler of it does not end    rank_not_called, rank 1, "in exit()"
    assert    a kernel of rank 1 fails an assertion; its program then  driver_error, rank 1, CUDA_ERROR_ASSERT
              does nothing
    address   the same with a store where there is no memory           driver_error, rank 1, CUDA_ERROR_ILLEGAL_ADDRESS
    stopped   rank 1 is stopped by a signal                            process_stopped, rank 1, "stopped by a signal"
    watchdog  rank 1 does nothing, and PyTorch's watchdog aborts       not rank 0, whatever has ended
              rank 0, which waited
    split     rank 0 splits the communicator, rank 1 does not          nobody in the wrong; what is said is printed

Each case is a job of its own, served by an agent. A line of JSON for each: `said` has each new verdict with the seconds
from the moment on at which the job stands, `right` whether the last one is as above. The folder gets the pages. About
four minutes.
"""

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import endpoint

LIFE_S = 120
PORT = 9479
WARM_STEPS = 50
LIMIT = 6  # times as long as makes a hang

# case: (verdict, suspects, part of the text, seconds until then, beside three times --hang)
EXPECTED = {
    "foreign": ("no_progress", [], "Probably a kernel outside of NCCL.", True),
    "exit": ("rank_not_called", [1], "Rank 1 has been in exit() since", False),
    "assert": ("driver_error", [1], "CUDA_ERROR_ASSERT", False),
    "address": ("driver_error", [1], "CUDA_ERROR_ILLEGAL_ADDRESS", False),
    "stopped": ("process_stopped", [1], "stopped by a signal", False),
    "watchdog": None,
    "split": None,
}


# ---- one rank -----------------------------------------------------------------------------------


def never_ends_at_exit():
    """A handler that was registered before the plugin's runs after it."""
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(ctypes.cast(libc.pause, ctypes.c_void_p), None, None)


def spin(torch, seconds):
    # About two cycles a nanosecond; a little more or less does not matter here.
    for _ in range(seconds):
        torch.cuda._sleep(2_000_000_000)


def fail_address(torch):
    """A kernel of our own, since PyTorch checks its own bounds, stores where there is no memory."""
    ptx = (b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry store() {\n"
           b".reg .u64 %far;\n.reg .u32 %one;\nmov.u64 %far, 16;\nmov.u32 %one, 1;\nst.global.u32 [%far], %one;\n"
           b"ret;\n}\n\0")
    driver, module, kernel = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    for result in (driver.cuModuleLoadData(ctypes.byref(module), ptx),
                   driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"store"),
                   driver.cuLaunchKernel(kernel, *[ctypes.c_uint(1)] * 6, 0, None, None, None)):
        if result != 0:
            raise OSError("the driver refuses the kernel: %d" % result)
    torch.cuda.synchronize()


def stand(case, rank, torch, dist, values):
    """What this rank does from the moment on at which the job stands."""
    if case == "foreign":
        spin(torch, LIFE_S)
        dist.all_reduce(values)
    elif rank == 0 and case == "split":
        dist.new_group([0, 1])
    elif rank == 0:
        dist.all_reduce(values)
    elif case == "exit":
        ctypes.CDLL(None).exit(0)
    elif case in ("assert", "address"):
        try:
            if case == "assert":
                values[torch.tensor([1 << 20], device="cuda")].clone()
                torch.cuda.synchronize()
            else:
                fail_address(torch)
        except RuntimeError as error:  # torch.AcceleratorError is one
            print(json.dumps({"event": "error", "text": str(error).split("\n", maxsplit=1)[0]}), flush=True)
    elif case == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)


def run_rank(options):
    signal.alarm(LIFE_S)
    case, rank = options.case, options.rank
    if case == "exit" and rank == 1:
        never_ends_at_exit()
    import datetime

    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    patience = datetime.timedelta(seconds=4 * options.hang if case == "watchdog" else 600)
    dist.init_process_group("nccl", rank=rank, world_size=2, timeout=patience,
                            init_method="file://" + os.path.join(options.exchange, "store"),
                            device_id=torch.device("cuda", rank))
    values = torch.ones(1024, device="cuda")
    for _ in range(WARM_STEPS):
        dist.all_reduce(values)
        torch.cuda.synchronize()
    time.sleep(1)
    print(json.dumps({"event": "stands", "rank": rank}), flush=True)
    stand(case, rank, torch, dist, values)
    while True:  # without a further call of CUDA
        time.sleep(1)


# ---- the job ------------------------------------------------------------------------------------


def environment(options):
    return dict(os.environ, NCCL_PROFILER_PLUGIN=os.path.abspath(options.library),
                NCCL_PULSE_LISTEN="127.0.0.1:%d" % PORT, NCCL_PULSE_HANG_SECONDS=str(options.hang),
                # A rank whose GPU has failed stands; nothing of PyTorch's ends it.
                TORCH_NCCL_ASYNC_ERROR_HANDLING="1" if options.case == "watchdog" else "0",
                TORCH_NCCL_ENABLE_MONITORING="0", TORCH_NCCL_DUMP_ON_TIMEOUT="0", OMP_NUM_THREADS="1")


def communicators():
    try:
        return endpoint.communicators(PORT, timeout=5)
    except (OSError, ValueError):
        return []


def said_of(comms):
    """(verdict, suspects, text), what is queued, or nothing."""
    for comm in comms:
        if comm["hang"]:
            return comm["hang"]["verdict"], comm["hang"]["suspects"], comm["hang"]["text"]
    for comm in comms:
        if comm["queued"]:
            return "queued", [], comm["queued"]["text"]
    return "nothing", [], ""


def judge(options, last):
    verdict, suspects, text = last
    expected = EXPECTED[options.case]
    if expected is None:
        return 0 not in suspects
    return (verdict, suspects) == expected[:2] and expected[2] in text


def watch(options, begin):
    expected = EXPECTED[options.case]
    wait_s = options.hang * (LIMIT + 3 if expected is not None and expected[3] else 8)
    said, last = [], ("", [], "")
    while time.monotonic() - begin < wait_s:
        comms = communicators()
        seen = said_of(comms)
        if seen[:2] != last[:2]:
            said.append({"seconds": round(time.monotonic() - begin, 1), "verdict": seen[0], "suspects": seen[1],
                         "text": seen[2]})
            name = "%s-%02d.json" % (options.case, len(said))
            with open(os.path.join(options.out, name), "w", encoding="utf-8") as file:
                json.dump(comms, file, indent=1)
        last = seen
        if expected is not None and judge(options, last):
            break
        time.sleep(0.5)
    return said, judge(options, last)


def run_case(options):
    with tempfile.TemporaryDirectory() as options.exchange:
        agent = subprocess.Popen([options.pulse, "agent", "--listen=127.0.0.1:%d" % PORT,
                                  "--hang-after=%ds" % options.hang], stderr=subprocess.DEVNULL)
        time.sleep(1)
        ranks = [subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--rank=%d" % rank, "--case=" + options.case,
             "--exchange=" + options.exchange, "--hang=%d" % options.hang],
            env=environment(options), stdout=subprocess.PIPE,
            stderr=open(os.path.join(options.out, "%s-rank-%d.txt" % (options.case, rank)), "w", encoding="utf-8"))
            for rank in range(2)]
        try:
            for rank in ranks:
                if b"stands" not in rank.stdout.readline():
                    return {"case": options.case, "right": False, "said": [], "error": "the job does not start"}
            said, right = watch(options, time.monotonic())
            return {"case": options.case, "right": right, "said": said}
        finally:
            for process in (*ranks, agent):
                process.kill()
                process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--library")
    parser.add_argument("--pulse")
    parser.add_argument("--cases", default=",".join(EXPECTED))
    parser.add_argument("--out", default="")
    parser.add_argument("--hang", type=int, default=3, help="NCCL_PULSE_HANG_SECONDS")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--exchange", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        return run_rank(options)
    options.out = options.out or tempfile.mkdtemp(prefix="stalls-")
    os.makedirs(options.out, exist_ok=True)
    wrong = 0
    for options.case in options.cases.split(","):
        result = run_case(options)
        wrong += not result["right"]
        print(json.dumps(result), flush=True)
    print("RESULT %s stalls: %d of %d cases right; pages in %s" %
          ("WRONG" if wrong else "OK", len(options.cases.split(",")) - wrong, len(options.cases.split(",")), options.out))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
