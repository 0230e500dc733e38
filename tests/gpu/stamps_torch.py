#!/usr/bin/env python3
"""torch.cuda.graph with all_reduces, replayed and counted: a process for each GPU.

    stamps_torch.py --library libnccl-profiler-pulse.so [--gpus 2] [--replays 10000]

Starts itself with torchrun. The graphs are captured in global mode, in which a forbidden call from any thread ends the
capture. The endpoint must have counted as many replays and operations as were made, and the results must be right, also
after the inputs changed. Other options of prove.py's parts are ignored.
"""

import argparse
import os
import subprocess
import sys
import time

import endpoint
import torch
import torch.distributed as dist

CALLS = 64
PORT = 9478


def start(options):
    done = subprocess.run(
        ["torchrun", "--nproc-per-node=%d" % options.gpus, "--master-port=29555", os.path.abspath(__file__)] + sys.argv[1:],
        env=dict(os.environ, NCCL_PROFILER_PLUGIN=os.path.abspath(options.library), NCCL_PULSE_GRAPHS="auto",
                 NCCL_PULSE_LISTEN="127.0.0.1:%d" % PORT),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode:
        print(done.stderr[-2000:])
    print("RESULT %s replays: PyTorch, %d replays on %d ranks" % (
        "WRONG" if done.returncode else "OK", options.replays, options.gpus))
    return done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--replays", type=int, default=10000)
    options, _ = parser.parse_known_args()
    if "RANK" not in os.environ:
        sys.exit(start(options))
    replays = options.replays
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    values = torch.ones(4096, device="cuda") * (rank + 1)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            dist.all_reduce(values.clone())
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    time.sleep(0.5)

    def step(static):
        result = static
        for _ in range(CALLS):
            result = result * 1.0
            dist.all_reduce(result)
            result = result / options.gpus
        return result

    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    outputs = []
    for graph in graphs:
        with torch.cuda.graph(graph, capture_error_mode="global"):
            outputs.append(step(values))
            time.sleep(0.2)  # longer than the plugin's thread rests

    def is_right(mean):
        torch.cuda.synchronize()
        return all(bool((output == mean).all()) for output in outputs)

    begin = time.time()
    for replay in range(replays - 2):
        graphs[replay % 2].replay()
    right = is_right((options.gpus + 1) / 2)
    values.mul_(2)
    for graph in graphs:
        graph.replay()
    right = is_right(options.gpus + 1) and right
    seconds = time.time() - begin
    time.sleep(0.5)
    dist.barrier()
    page = endpoint.metrics(PORT)
    counted, operations = (sum(value for _, value in page.select(name, rank=str(rank)))
                           for name in ("nccl_graph_replays_total", "nccl_graph_operations_total"))
    right = right and [value for _, value in page.select("nccl_communicator_uses_cuda_graphs", rank=str(rank))] == [1]
    print("torch rank %d: %d replays in %.2f s, endpoint %d, operations %d of %d; results %s"
          % (rank, replays, seconds, counted, operations, replays * CALLS, "right" if right else "WRONG"), flush=True)
    dist.barrier()
    os._exit(0 if right and counted == replays and operations == replays * CALLS else 1)


if __name__ == "__main__":
    main()
