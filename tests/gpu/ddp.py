#!/usr/bin/env python3
"""PyTorch training with NCCL, under check.py: DDP, FSDP2, and collectives of its own.

    check.py --program ddp.py ...         or alone, without stops: torchrun ddp.py

The protocol is nccl_program's: after each phase one line of JSON, then it waits for a line. PyTorch
gives its communicators no names and decides itself how gradients are bucketed, so the report has
two parts: "exact", calls of a data type that nothing but this file uses, and "at_least". Phases:

    explicit   all_reduce, all_gather_into_tensor, reduce_scatter_tensor, broadcast, reduce,
               all_to_all_single, send and recv, on the default group and on a second one; float64
    ddp        ten steps of DistributedDataParallel on a small model; float32
    fsdp       ten steps with fully_shard (FSDP2) of the same model; float32
    destroy    destroy_process_group, then goes on living
    exit       leaves without destroy_process_group; only as the last phase

An all-to-all reaches NCCL as a Send and a Recv for each rank, itself included.
"""

import argparse
import collections
import ctypes
import json
import math
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

STEPS = 10
REPEATS = 5
ELEMENTS = (500, 20000)  # float64: 4 KB, 160 KB

# gloo on the CPU, to try this file without a GPU.
BACKEND = os.environ.get("PULSE_DDP_BACKEND", "nccl")


def nccl_version():
    """Of the library that runs; torch.cuda.nccl.version() is what PyTorch was compiled with."""
    try:
        version = ctypes.c_int()
        ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
        return version.value
    except (OSError, AttributeError):  # PyTorch with NCCL in itself
        major, minor, patch = torch.cuda.nccl.version()[:3]
        return 10000 * major + 100 * minor + patch


class Trainer:

    def __init__(self, rank, nranks, device):
        self.rank, self.nranks, self.device = rank, nranks, device
        self.exact = collections.Counter()  # (op, bytes of a call) -> calls
        self.at_least = collections.Counter()  # (op, datatype) -> calls
        self.wrong = 0
        self.checked = 0
        self.note = ""

    def tensor(self, elements, value):
        return torch.full((elements,), float(value), dtype=torch.float64, device=self.device)

    def expect(self, tensor, value):
        self.checked += 1
        if not bool((tensor == value).all()):
            self.wrong += 1
            print("ddp.py: wrong result", file=sys.stderr)

    def called(self, op, elements, calls=1):
        self.exact[op, elements * 8] += calls

    def explicit(self):
        groups = [None, dist.new_group(list(range(self.nranks)))]
        for group in groups:
            for elements in ELEMENTS:
                for _ in range(REPEATS):
                    self.collectives(group, elements)

    def collectives(self, group, elements):
        n, rank = self.nranks, self.rank
        total = n * (n + 1) // 2
        own = self.tensor(elements, rank + 1)
        dist.all_reduce(own, group=group)
        self.expect(own, total)
        self.called("AllReduce", elements)

        gathered = self.tensor(elements * n, 0)
        dist.all_gather_into_tensor(gathered, self.tensor(elements, rank + 1), group=group)
        self.expect(gathered[-elements:], n)
        self.called("AllGather", elements)

        scattered = self.tensor(elements, 0)
        dist.reduce_scatter_tensor(scattered, self.tensor(elements * n, rank + 1), group=group)
        self.expect(scattered, total)
        self.called("ReduceScatter", elements)

        own = self.tensor(elements, rank + 1)
        dist.broadcast(own, src=n - 1, group=group)
        self.expect(own, n)
        self.called("Broadcast", elements)

        own = self.tensor(elements, rank + 1)
        dist.reduce(own, dst=0, group=group)
        if rank == 0:
            self.expect(own, total)
        self.called("Reduce", elements)

        received = self.tensor(elements * n, 0)
        dist.all_to_all_single(received, self.tensor(elements * n, rank + 1), group=group)
        self.expect(received[:elements], 1)
        self.called("Send", elements, n)
        self.called("Recv", elements, n)

        # One direction within each pair, so that nobody waits in a circle.
        own = self.tensor(elements, rank + 1)
        if rank % 2 == 0 and rank + 1 < n:
            dist.send(own, dst=rank + 1, group=group)
            self.called("Send", elements)
        elif rank % 2 == 1:
            dist.recv(own, src=rank - 1, group=group)
            self.expect(own, rank)
            self.called("Recv", elements)

    def model(self):
        torch.manual_seed(7)
        return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                             nn.Linear(1024, 64)).to(self.device)

    def train(self, model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        torch.manual_seed(self.rank)
        for _ in range(STEPS):
            batch = torch.randn(32, 256, device=self.device)
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        self.checked += 1
        if not math.isfinite(loss.item()):
            self.wrong += 1
            print("ddp.py: the loss is not finite", file=sys.stderr)

    def ddp(self):
        cuda = self.device.type == "cuda"
        self.train(nn.parallel.DistributedDataParallel(self.model(), device_ids=[self.device.index] if cuda else None))
        # One bucket at least a step.
        self.at_least["AllReduce", "ncclFloat32"] += STEPS

    def fsdp(self):
        try:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard
        except ImportError as error:
            self.note = "no FSDP2 here: %s" % error
            return
        mesh = init_device_mesh(self.device.type, (self.nranks,))
        model = self.model()
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        self.train(model)
        # Three linear layers, each gathered at least once a step and reduced once.
        self.at_least["AllGather", "ncclFloat32"] += 3 * STEPS
        self.at_least["ReduceScatter", "ncclFloat32"] += 3 * STEPS

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def report(self, phase):
        exact = [{"op": op, "datatype": "ncclFloat64", "bytes": size, "calls": calls}
                 for (op, size), calls in sorted(self.exact.items())]
        at_least = [{"op": op, "datatype": datatype, "calls": calls}
                    for (op, datatype), calls in sorted(self.at_least.items())]
        report = {"phase": phase, "rank": self.rank, "pid": os.getpid(), "exact": exact,
                  "at_least": at_least, "checked": self.checked, "wrong": self.wrong}
        if self.device.type == "cuda":
            report.update(nccl=nccl_version(), torch=torch.__version__)
        if self.note:
            report["note"] = self.note
        return json.dumps(report)


def run(rank, nranks, gpu, exchange, phases, stops):
    device = torch.device("cpu" if BACKEND == "gloo" else "cuda:%d" % gpu)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    where = {"init_method": "file://" + os.path.join(exchange, "store")} if exchange else {}
    dist.init_process_group(BACKEND, rank=rank, world_size=nranks, **where)
    trainer = Trainer(rank, nranks, device)
    for phase in phases:
        if phase in ("explicit", "ddp", "fsdp"):
            getattr(trainer, phase)()
        elif phase == "destroy":
            dist.destroy_process_group()
        elif phase != "exit":
            sys.exit("ddp.py: no phase " + phase)
        trainer.synchronize()
        print(trainer.report(phase), flush=True)
        if stops and not sys.stdin.readline():
            sys.exit("ddp.py: end of input")
    if phases[-1] != "exit" and dist.is_initialized():
        dist.destroy_process_group()
    return 1 if trainer.wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rank", type=int)
    parser.add_argument("--nranks", type=int)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--exchange", default="", help="empty folder that all ranks see")
    parser.add_argument("--phases", default="explicit,ddp,fsdp,destroy")
    options = parser.parse_args()
    if options.rank is not None:
        return run(options.rank, options.nranks, options.gpu, options.exchange, options.phases.split(","), True)
    return run(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]),
               int(os.environ["LOCAL_RANK"]), "", options.phases.split(","), False)


if __name__ == "__main__":
    sys.exit(main())
