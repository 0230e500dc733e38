#!/usr/bin/env python3
"""CUDA graphs of PyTorch with NCCL collectives, under prove.py: captured, replayed, compared.

    prove.py graph --program torch_graph.py ...

Each phase is a round: a process group of its own, a chain of ten all_reduces captured in global mode
(the strictest: a forbidden call from any thread of the process ends the capture), replayed with
inputs that change, every result compared with the same chain run eagerly, bit by bit: the values
are such that no order of additions rounds (two, four or eight ranks). Then the group is destroyed. After each round one line of
JSON, {"phase", "rank", "checked", "wrong", "error"}; a line on standard input starts the next.
"""

import argparse
import datetime
import gc
import json
import os
import sys
import time

import torch
import torch.distributed as dist

COLLECTIVES = 10
ELEMENTS = 20000  # float64: 160 KB
TIMEOUT_S = 20


def chain(values, nranks):
    result = values.clone()
    for i in range(COLLECTIVES):
        result = result + i
        dist.all_reduce(result)
        result = result / nranks
    return result


def inputs(rank, replay, device):
    """Small whole numbers; divided by two or four ten times they still fit a float64."""
    return (torch.arange(ELEMENTS, device=device) % 17 + rank * 3 + replay).to(torch.float64)


def run_round(rank, nranks, device, store, replays):
    """(results checked, results wrong)"""
    dist.init_process_group("nccl", rank=rank, world_size=nranks, init_method="file://" + store,
                            timeout=datetime.timedelta(seconds=TIMEOUT_S))
    static = inputs(rank, 0, device)
    # The first calls make the communicator, which must not happen within a capture.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            chain(static, nranks)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    time.sleep(0.2)  # PyTorch's own watchdog forgets what has completed
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, capture_error_mode="global"):
        output = chain(static, nranks)
        time.sleep(0.12)  # longer than the plugin's thread rests
    wrong = 0
    for replay in range(replays):
        values = inputs(rank, replay, device)
        static.copy_(values)
        captured.replay()
        replayed = output.clone()
        wrong += not torch.equal(replayed, chain(values, nranks))
    torch.cuda.synchronize()
    # NCCL keeps a communicator while a graph has its collectives.
    del captured, output
    gc.collect()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    return replays, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--nranks", type=int, required=True)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--exchange", required=True, help="empty folder that all ranks see")
    parser.add_argument("--phases", required=True, help="names of the rounds")
    parser.add_argument("--replays", type=int, default=100)
    options = parser.parse_args()
    device = torch.device("cuda:%d" % options.gpu)
    torch.cuda.set_device(device)
    for phase in options.phases.split(","):
        report = {"phase": phase, "rank": options.rank, "checked": 0, "wrong": 0, "error": ""}
        try:
            report["checked"], report["wrong"] = run_round(
                options.rank, options.nranks, device,
                os.path.join(options.exchange, "store-" + phase), options.replays)
        except RuntimeError as error:  # CUDA's and NCCL's errors, too
            report["error"] = str(error).strip().split("\n", 1)[0][:300] or type(error).__name__
        print(json.dumps(report), flush=True)
        if not sys.stdin.readline():
            sys.exit("torch_graph.py: end of input")
        if report["error"]:
            os._exit(1)  # after an invalidated capture nothing can be relied on
    os._exit(0)  # the plugin's numbers have been read


if __name__ == "__main__":
    main()
