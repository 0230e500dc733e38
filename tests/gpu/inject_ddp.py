#!/usr/bin/env python3
"""PyTorch DDP of which one rank is late, for inject.py.

    inject_ddp.py --rank=R --nranks=N --gpu=G --exchange=FOLDER --control=FILE

Steps of a model of four wide layers, about 10 ms of an H200 each. The control file's one line, written
by rename, is "CASE RANK MILLISECONDS": each case has a process group and a model of its own, so a
communicator of its own, and RANK sleeps so long before each step, as with a slow input. Each step
ends as training loops do, with the mean of the loss over all ranks, on the default group; that
all_reduce also tells all ranks what rank 0 has read.

Standard output as inject_program's: {"event": "case", "case": N} when a case has made five steps.
"""

import argparse
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

LIFE_S = 280
WARM_STEPS = 5
WIDTH, LAYERS, BATCH = 4096, 4, 1024

# gloo on the CPU, to try this file without a GPU.
BACKEND = os.environ.get("PULSE_DDP_BACKEND", "nccl")
if BACKEND == "gloo":
    WIDTH, BATCH = 64, 16


class Case:
    """A model, a process group, and who is late."""

    def __init__(self, number, nranks, device):
        self.number = number
        self.steps = 0
        group = dist.new_group(list(range(nranks)))
        torch.manual_seed(7)
        layers = []
        for _ in range(LAYERS):
            layers += [nn.Linear(WIDTH, WIDTH, device=device), nn.ReLU()]
        cuda = device.type == "cuda"
        self.model = nn.parallel.DistributedDataParallel(
            nn.Sequential(*layers), process_group=group,
            device_ids=[device.index] if cuda else None)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.batch = torch.randn(BATCH, WIDTH, device=device)

    def step(self, delay_s):
        # The GPU has nothing to do here, so all of it is late.
        if delay_s:
            time.sleep(delay_s)
        loss = self.model(self.batch).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        return loss.detach()


def read_control(path):
    with open(path, encoding="ascii") as file:
        return [float(word) for word in file.read().split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--nranks", type=int, required=True)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--exchange", required=True, help="empty folder that all ranks see")
    parser.add_argument("--control", required=True)
    options = parser.parse_args()
    signal.alarm(LIFE_S)
    device = torch.device("cpu" if BACKEND == "gloo" else "cuda:%d" % options.gpu)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(BACKEND, rank=options.rank, world_size=options.nranks,
                            init_method="file://" + os.path.join(options.exchange, "store"))
    case = None
    delay_s = 0.0
    loss = torch.zeros((), device=device)
    begin = time.monotonic()
    while True:
        shared = torch.zeros(4, device=device)
        if options.rank == 0:
            shared[1:] = torch.tensor(read_control(options.control), device=device)
        shared[0] = loss / options.nranks
        dist.all_reduce(shared)
        mean, number, late, delay_ms = shared.tolist()
        if mean != mean:
            sys.exit("inject_ddp.py: the loss is not a number")
        if case is None or case.number != int(number):
            case = Case(int(number), options.nranks, device)
        delay_s = delay_ms / 1000 if int(late) == options.rank else 0.0
        if case.steps == 2:  # the first ones set up
            begin = time.monotonic()
        loss = case.step(delay_s)
        if case.steps == WARM_STEPS:
            print(json.dumps({"event": "case", "case": case.number, "pid": os.getpid(),
                              "torch": torch.__version__,
                              "step_ms": (time.monotonic() - begin) / (WARM_STEPS - 2) * 1000}),
                  flush=True)


if __name__ == "__main__":
    main()
