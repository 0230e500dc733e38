#!/usr/bin/env python3
"""Replays of short CUDA graphs without a pause, with an eager call between them, as a serving engine makes them.

    steady_mix.py --library libnccl-profiler-pulse.so [--gpus 2] [--ops none,all_reduce,...] [--every 1,32,...]
    steady_mix.py ... --cases mix,stops,quiet

A process for each GPU, on PyTorch. A line for each mix. Of mix and quiet the first mix is on the job's first
communicator, each other one on a new one.

    case    what the job does                                        what must be said
    mix     replays, an eager call after each --every of them, for   proven within 3 s; all all_reduces of the replays
            --seconds; then it reads its counts                      and no other; `replaying` or `in_flight`; no hang
    stops   as mix; the host of rank 1 stops at once, while the      rank_not_begun, rank 1, within 15 s
            counter is being proven
    quiet   as mix; then nothing for --quiet seconds                 nothing
"""

import argparse
import json
import os
import sys
import time

import endpoint
import torch_job

PORT = 9482
ROUND = 6400  # replays between two looks at whether to end


# ---- one rank -----------------------------------------------------------------------------------


def run_rank(options):
    import torch

    device = torch_job.own_device()
    rank, world, dist = torch_job.join()
    # Not over NCCL: op none has no eager call at all.
    store = dist.FileStore(os.environ["PULSE_STORE"] + ".flags", world)
    weights = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    x = torch.randn(64, 4096, device=device, dtype=torch.bfloat16)
    y = torch.zeros_like(x)
    whole = torch.empty(world * 64, 4096, device=device, dtype=torch.bfloat16)
    small = torch.zeros(16, device=device)

    def mix(name, every, group):
        """Warms up and captures. Returns what makes so many replays, with the eager calls between."""
        eager = {"none": None, "all_reduce": lambda: dist.all_reduce(small, group=group),
                 "all_gather": lambda: dist.all_gather_into_tensor(whole, x, group=group),
                 "broadcast": lambda: dist.broadcast(small, 0, group=group)}[name]

        def layer():
            y.copy_(torch.nn.functional.gelu(x @ weights))
            dist.all_reduce(y, group=group)
            y.mul_(0.1)
            dist.all_reduce(y, group=group)

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                layer()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graphs = []
        for _ in range(8):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                layer()
            graphs.append(graph)
        torch.cuda.synchronize()

        def replay(count):
            for n in range(count):
                graphs[n % 8].replay()
                if eager is not None and (n + 1) % every == 0:
                    eager()
                if n % 64 == 63:
                    torch.cuda.synchronize()
            torch.cuda.synchronize()

        return replay

    for number, (op, every) in enumerate(options.mixes):
        replay = mix(op, every, dist.group.WORLD if number == 0 else dist.new_group())
        print(json.dumps({"event": "begins"}), flush=True)
        if options.case == "stops":
            replay(640)
            if rank != 1:
                replay(64)
            time.sleep(3600)
        begin, replays, ends = time.time(), 0, False
        while not ends:
            replay(ROUND)
            replays += ROUND
            flag = "%d.%d" % (number, replays)
            if rank == 0:
                store.set(flag, "end" if time.time() - begin > options.seconds else "go on")
            ends = store.get(flag) == b"end"
        version = ".".join(map(str, torch.cuda.nccl.version()))
        print(json.dumps({"event": "ended", "replayed": 2 * replays, "nccl": version}), flush=True)
        sys.stdin.readline()


# ---- the job ------------------------------------------------------------------------------------


class Job(torch_job.Job):
    def __init__(self, options, case, mixes):
        super().__init__([os.path.abspath(__file__), *sys.argv[1:], "--cases=" + case, "--mixes=" + json.dumps(mixes)],
                         dict(enumerate(range(options.gpus))),
                         variables=lambda rank: torch_job.measured(options.library, PORT))

    def lines(self):
        """The next line of each rank. Raises ValueError when one has ended."""
        return [json.loads(rank.stdout.readline()) for rank in self.ranks.values()]

    def go_on(self):
        for rank in self.ranks.values():
            rank.stdin.write("\n")
            rank.stdin.flush()


class Watch:
    """What the endpoint says of the communicators with captured calls that were not seen before."""

    def __init__(self, gpus):
        self.gpus = gpus
        self.before = set()
        self.begin_next()

    def begin_next(self):
        self.ranks, self.hangs, self.states = [], [], set()
        self.proven_s = None
        self.slowest_s = 0
        self.begun = time.monotonic()
        self.seen = set()
        self.headline = ""

    def seconds(self):
        return time.monotonic() - self.begun

    def end(self):
        self.before |= self.seen

    def look(self):
        asked = self.seconds()
        try:
            headers, text = endpoint.ask(PORT, "/api/v1/communicators", timeout=5)
            age_s, said = int(headers.get("Age", 0)), json.loads(text)
        except (OSError, ValueError):
            return
        finally:
            self.slowest_s = max(self.slowest_s, self.seconds() - asked)
        self.headline = said["health"]["summary"]
        for comm in said["communicators"]:
            name = comm["comm"]
            if len(comm["ranks"]) < self.gpus or not all(each["captured"] for each in comm["ranks"]) or name in self.before:
                continue
            self.seen.add(name)
            self.ranks = comm["ranks"]
            if self.proven_s is None and all(each["work"] and each["work"]["state"] == "proven" for each in self.ranks):
                self.proven_s = round(self.seconds() - age_s, 1)
            if self.proven_s is not None:
                self.states.update(each["state"] for each in self.ranks)
            hang = comm["hang"]
            if hang and (not self.hangs or self.hangs[-1][1:] != [hang["verdict"], hang["suspects"]]):
                self.hangs.append([round(self.seconds(), 1), hang["verdict"], hang["suspects"]])

    def counts(self, expected):
        """Returns the counts. Waits for the expected ones, because a page may be seconds old (docs/http-api.md)."""
        end = self.seconds() + 10
        while True:
            time.sleep(0.5)
            self.look()
            counted = [each["work"] and each["work"]["operations"] for each in self.ranks]
            if counted == expected or self.seconds() > end:
                return counted

    def look_until(self, ends):
        while not ends():
            self.look()
            time.sleep(0.1)


def report(*columns):
    print("  ".join(str(column).ljust(width) for column, width in zip(columns, (6, 10, 5, 7, 52, 0))).rstrip(), flush=True)


def run_mix(options, case, mixes):
    watch = Watch(options.gpus)
    with Job(options, case, mixes) as job:
        for op, every in mixes:
            job.lines()
            watch.begin_next()
            watch.look_until(lambda: watch.seconds() > options.seconds - 0.5)
            states = watch.states
            lines = job.lines()
            replayed = [line["replayed"] for line in lines]
            counted = watch.counts(replayed)
            headline = watch.headline
            if case == "quiet":
                quiet_from = watch.seconds()
                watch.look_until(lambda begun=quiet_from: watch.seconds() > begun + options.quiet)
            right = (watch.proven_s is not None and watch.proven_s < 3 and counted == replayed and not watch.hangs and
                     states <= {"replaying", "in_flight"})
            report(case, op, every, "right" if right else "WRONG",
                   "proven after %s s, %s, answers in %.1f s" % (watch.proven_s, "/".join(sorted(states)), watch.slowest_s),
                   "%s of %s %s %s" % (counted, replayed, watch.hangs or "", lines[0]["nccl"] if right else headline))
            watch.end()
            job.go_on()


def run_stops(options, case, mixes):
    for op, every in mixes:
        watch = Watch(options.gpus)
        with Job(options, case, [(op, every)]) as job:
            job.lines()
            watch.begin_next()
            watch.look_until(lambda seen=watch: seen.seconds() > 20 or (seen.hangs and seen.hangs[-1][2] == [1]))
            right = bool(watch.hangs) and watch.hangs[-1][1:] == ["rank_not_begun", [1]] and watch.hangs[-1][0] <= 15
            report(case, op, every, "right" if right else "WRONG", "proven after %s s" % watch.proven_s,
                   "%s %s" % (watch.hangs, "" if right else watch.headline))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--library")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--cases", default="mix")
    parser.add_argument("--ops", default="none,all_reduce,all_gather,broadcast")
    parser.add_argument("--every", default="1,32,640,6400", help="numbers of replays, with commas between")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--quiet", type=float, default=120)
    parser.add_argument("--mixes", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if torch_job.is_rank():
        options.case = options.cases
        return run_rank(options)
    mixes = [(op, int(every)) for op in options.ops.split(",")
             for every in (options.every.split(",") if op != "none" else ["0"])]
    runs = {"mix": run_mix, "quiet": run_mix, "stops": run_stops}
    report("case", "op", "every", "", "", "counted of replayed")
    for case in options.cases.split(","):
        try:
            runs[case](options, case, mixes)
        except (ValueError, OSError) as error:
            report(case, "", "", "WRONG", "the job has ended", repr(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
