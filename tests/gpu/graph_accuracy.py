#!/usr/bin/env python3
"""How long the same AllReduces take by stamps in CUDA graphs, by events, and by NCCL's own kernel times, over sizes.

    graph_accuracy.py --library libnccl-profiler-pulse.so [--gpus 2] [--replays 150]

Two jobs of PyTorch, one process a GPU: one with events and stamps, one with NCCL_PULSE_TIMING=kernel. Each makes, for each
size, a graph of 65 AllReduces, of which the 61st has a pair of stamps, replays it, and makes as many calls eagerly. Ranks meet
before each replay, so nobody is waited for. Between replays there are 10 ms: the plugin's thread looks every 20 ms, and finds
the last one. Each size is made in blocks, and the page is read after each: the table has the median of the blocks' means on rank 0,
and the mean of all beside it. The first five calls of a size are left out,
which may wait long for the other rank. Exit status 1: a size has no duration of one of the three, or the median by stamps differs
from the kernel's by more than 4 us and 10 %.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

import endpoint

PORT = 9486
CALLS = 65
SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26)
BLOCKS = 3
PAGE_S = 1.1  # a page is at most a second old


def totals(page, rank):
    """{(timing, size label): {"count": calls, "sum": seconds}} of AllReduce."""
    values = {}
    for what, labels, value in re.findall(
            r"^nccl_operation_duration_seconds_(count|sum)\{([^}]*)\} (\S+)$", page, re.M):
        label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if label["op"] == "AllReduce" and label["rank"] == str(rank):
            values.setdefault((label["timing"], label["size"]), {})[what] = float(value)
    return values


def durations(pages):
    """{timing: {size label: (calls, median of the blocks' means, mean of all, in microseconds)}} of (is of a block, totals), one
    after the other; what was not of a block is left out."""
    blocks, before = {}, {}
    for is_block, page in pages:
        for key, value in page.items():
            last = before.get(key, {"count": 0, "sum": 0})
            calls = value["count"] - last["count"]
            if calls > 0 and is_block:
                blocks.setdefault(key, []).append((calls, (value["sum"] - last["sum"]) * 1e6))
        before = page
    found = {}
    for (timing, size), parts in blocks.items():
        calls = sum(part[0] for part in parts)
        found.setdefault(timing, {})[size] = (
            int(calls), statistics.median(total / count for count, total in parts), sum(part[1] for part in parts) / calls)
    return found


def differ(stamps, kernel):
    """Whether two medians, in microseconds, are not those of the same work."""
    return abs(stamps - kernel) > max(4, 0.1 * kernel)


def worker(replays):
    import torch  # pylint: disable=import-outside-toplevel
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    stream = torch.cuda.Stream()
    # Not an AllReduce, as a barrier is: these are counted.
    token, tokens = torch.zeros(1, device="cuda"), torch.zeros(dist.get_world_size(), device="cuda")

    pages = []

    def read_page(is_block):
        time.sleep(PAGE_S)
        if rank == 0:
            pages.append((is_block, totals(endpoint.get(PORT, timeout=20), 0)))

    def in_blocks(times, work):
        for _ in range(BLOCKS if times else 0):
            for _ in range(times // BLOCKS):
                work()
            read_page(True)

    def meet():
        dist.all_gather_into_tensor(tokens, token)
        stream.synchronize()

    with torch.cuda.stream(stream):
        for size in SIZES:
            buffer = torch.zeros(size // 4, device="cuda")
            for _ in range(5):
                dist.all_reduce(buffer)
            stream.synchronize()
            read_page(False)  # the first calls wait for whom is late
            if os.environ["NCCL_PULSE_GRAPHS"] == "auto":  # with kernel times there are no stamps
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    for _ in range(CALLS):
                        dist.all_reduce(buffer)

                def replay():
                    meet()
                    graph.replay()  # pylint: disable=cell-var-from-loop
                    stream.synchronize()
                    time.sleep(0.01)
                in_blocks(replays, replay)

            # Behind work of the GPU, so that it does not wait for the host, and behind a call in which the ranks' GPUs meet.
            def call():
                meet()
                torch.cuda._sleep(12000000)  # pylint: disable=protected-access
                dist.all_gather_into_tensor(tokens, token)
                for _ in range(50):
                    dist.all_reduce(buffer)  # pylint: disable=cell-var-from-loop
                stream.synchronize()
            in_blocks(replays // 10, call)
    dist.barrier()
    if rank == 0:
        print("DURATIONS " + json.dumps(durations(pages)), flush=True)
    dist.barrier()
    os._exit(0)


def run(options, **environment):
    done = subprocess.run(
        ["torchrun", "--nproc-per-node=%d" % options.gpus, "--master-port=29579", os.path.abspath(__file__),
         "--library=" + options.library, "--replays=%d" % options.replays, "--worker"],
        env=dict(os.environ, NCCL_PROFILER_PLUGIN=os.path.abspath(options.library), NCCL_NVLS_ENABLE="0",
                 NCCL_PULSE_LISTEN="127.0.0.1:%d" % PORT, **environment),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=180)
    found = re.search(r"^DURATIONS (.*)$", done.stdout, re.M)
    if not found:
        sys.exit("graph_accuracy.py: exit status %d\n%s" % (done.returncode, done.stderr[-3000:]))
    return json.loads(found[1])


def order(label):
    """Of a size class by its bytes: le_16KiB."""
    number, unit = re.search(r"(\d+)(\w*?)B?$", label.replace("iB", "B")).groups()
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}.get(unit, 40)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--replays", type=int, default=150, help="a multiple of 30")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args()  # prove.sh gives its parts more
    if options.worker:
        return worker(options.replays)
    events = run(options, NCCL_PULSE_GRAPHS="auto", NCCL_PULSE_TIMED_LAUNCHES_PER_SECOND="1000000")
    kernel = run(options, NCCL_PULSE_GRAPHS="off", NCCL_PULSE_TIMING="kernel")
    columns = {"graph": events.get("graph", {}), "stream": events.get("stream", {}), "kernel": kernel.get("kernel", {})}
    wrong = 0
    print("| size | by stamps, in graphs | by events, eager | by NCCL's kernel times, eager |")
    print("|---|---|---|---|")
    sizes = sorted(set().union(*columns.values()), key=order)
    for size in sizes:
        cells = [columns[each].get(size) for each in ("graph", "stream", "kernel")]
        if cells[0] and cells[2]:
            wrong += differ(cells[0][1], cells[2][1])
        wrong += cells[0] is not None and None in cells
        print("| %s | %s |" % (size, " | ".join(
            "%.1f µs (mean %.1f, %d calls)" % (each[1], each[2], each[0]) if each else "" for each in cells)))
    timed = len(columns["graph"])
    wrong += abs(len(SIZES) - timed)
    print("RESULT %s graph-accuracy: %d sizes timed in graphs, %d differ or are missing" % (
        "WRONG" if wrong else "OK", timed, wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
