#!/usr/bin/env python3
"""DDP under PyTorch's profiler, for kineto.py: steps of a small model, and AllReduces of known sizes.

    torchrun --nproc-per-node=2 kineto_worker.py FOLDER [SECONDS]

Warms up, writes FOLDER/begun-RANK, runs for SECONDS (5), writes FOLDER/profiled-RANK, runs as long under the profiler,
writes FOLDER/kineto-RANK.json. Rank 0 keeps the page as it is before the profiler and behind it: FOLDER/page-{before,behind}.txt.
"""

import os
import sys
import time
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile

SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26)


def main():
    folder, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 5
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
    ddp = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    data = torch.randn(64, 1024, device="cuda")
    buffers = [torch.zeros(size // 4, device="cuda") for size in SIZES]

    def step():
        optimizer.zero_grad()
        ddp(data).square().mean().backward()
        optimizer.step()
        for buffer in buffers:
            dist.all_reduce(buffer)
        torch.cuda.synchronize()
        time.sleep(0.005)

    over = torch.zeros(1, device="cuda")

    def steps(mark):
        dist.barrier()
        with open(os.path.join(folder, "%s-%d" % (mark, rank)), "w", encoding="ascii"):
            pass
        begin = time.monotonic()
        over.zero_()
        # All ranks make the same number of steps.
        while not over.item():
            for _ in range(20):
                step()
            over.fill_(float(rank == 0 and time.monotonic() - begin > seconds))
            dist.all_reduce(over)

    def keep_page(name):
        time.sleep(1.5)  # all have ended, and no page is older than a second
        if rank == 0:
            page = urllib.request.urlopen("http://%s/metrics" % os.environ["NCCL_PULSE_LISTEN"], timeout=20).read()
            with open(os.path.join(folder, "page-%s.txt" % name), "wb") as file:
                file.write(page)

    for _ in range(50):
        step()
    steps("begun")
    keep_page("before")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        steps("profiled")
    keep_page("behind")
    profiler.export_chrome_trace(os.path.join(folder, "kineto-%d.json" % rank))
    # The timeline reads what is there; it ends first.
    time.sleep(3)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
