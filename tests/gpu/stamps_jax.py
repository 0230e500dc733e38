#!/usr/bin/env python3
"""JAX with command buffers: results right, and counts of replays exact or said to be unknown.

    tests/gpu/stamps_jax.py --plugin ./libnccl-profiler-pulse.so [--graphs auto|off] [--steps 40] [--layers 48]

One process and two GPUs or more. XLA puts collectives into CUDA graphs (command buffers) where it is told to;
a program with a loop gets the body of a conditional node. It runs itself three times:

    plain   no command buffers: all calls are eager
    flat    a step of so many layers, a product and an all-gather each, which needs the one before: none are combined
    loop    the same step, its layers in a lax.fori_loop

The result of each must be that of `plain`. For `flat` and `loop` it prints what the endpoint says of graphs: captures
by what became of them, captured calls and how many of them there are in a capture, replays and operations by rank, and what
is said of the ranks' activity. The run is wrong when the counts of ranks differ, when replays were counted and what was executed is
not what the program made, or when idle is claimed beside graphs.

XLA captures each collective into a graph of its own and adds that to the command buffer as a child (CollectiveCmd::AddTracedCommandBuffer
in xla/backends/gpu/runtime/command_buffer_cmd.cc, read in three versions). So however many layers there are, a capture
should have one call, too few for stamps; the calls of each capture that are printed say whether that is still so.
 NCCL instantiates no conditional body with its mixing
of graphs and eager calls (docs/cuda-graphs.md), so the loop runs with NCCL_GRAPH_MIXING_SUPPORT=0.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import endpoint

PORT = 9479
FLAGS = ("--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUDNN,COLLECTIVES,WHILE,CONDITIONAL "
         "--xla_gpu_graph_min_graph_size=1")


def seen():
    """What the endpoint says, as plain values."""
    time.sleep(1)  # the plugin's thread looks ten times a second
    page = endpoint.metrics(PORT)
    ranks = [rank for comm in endpoint.communicators(PORT) for rank in comm["ranks"]]

    def sums(name, **fixed):
        """By communicator and rank, over all else, of the series with these labels."""
        totals = {}
        for labels, value in page.select(name, **fixed):
            key = labels["comm"] + "/" + labels["rank"]
            totals[key] = totals.get(key, 0) + value
        return totals

    return {
        "captures": {labels["fate"]: value for labels, value in page.select("nccl_pulse_graph_captures_total")},
        "replays": sums("nccl_graph_replays_total"),
        "operations": sums("nccl_graph_operations_total"),
        "finished": sums("nccl_graph_finished_operations_total"),
        "counters": [[labels["state"], labels["reason"], value]
                     for labels, value in page.select("nccl_pulse_work_counters") if value],
        "calls": sums("nccl_operations_total"),
        "captured": sums("nccl_operations_total", captured="true"),
        "eager": sums("nccl_operations_total", captured="false"),
        "states": sorted({(rank["captured"], rank["state"], rank["unknown"]) for rank in ranks},
                         key=str),
        "idle": [rank["rank"] for rank in ranks if rank["captured"] and rank["state"] == "idle"],
    }


def work(options):
    """In a process of its own: prints the result and what the endpoint says."""
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    import numpy

    devices = jax.devices()
    mesh = Mesh(numpy.array(devices), ("x",))
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map

    # Not psum: XLA has a kernel of its own for a small one, and calls no NCCL.
    def layer(values):
        return values * 0.5 + lax.all_gather(values, "x").sum(axis=0) * (0.5 / len(devices))

    def step(values):
        if options.work == "loop":
            return lax.fori_loop(0, options.layers, lambda _, each: layer(each), values)
        for _ in range(options.layers):
            values = layer(values)
        return values

    spec = PartitionSpec("x")
    # The check of what varies over the mesh has had two names.
    try:
        mapped = shard_map(step, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    except TypeError:
        mapped = shard_map(step, mesh=mesh, in_specs=spec, out_specs=spec, check_rep=False)
    compiled = jax.jit(mapped)
    values = jax.device_put(jnp.arange(1024.0 * len(devices)), NamedSharding(mesh, spec))
    for _ in range(options.steps):
        values = compiled(values)
    result = numpy.asarray(jax.block_until_ready(values), dtype=numpy.float64)
    found = seen()
    found.update(sum=float(result.sum()), first=float(result[0]), last=float(result[-1]), gpus=len(devices),
                 jax=jax.__version__)
    print("FOUND " + json.dumps(found), flush=True)
    os._exit(0)


def run(options, name):
    environment = dict(os.environ, NCCL_PROFILER_PLUGIN=os.path.abspath(options.plugin),
                       NCCL_PULSE_GRAPHS=options.graphs, NCCL_PULSE_LISTEN="127.0.0.1:%d" % PORT)
    if name != "plain":
        environment["XLA_FLAGS"] = FLAGS
    else:
        environment["XLA_FLAGS"] = "--xla_gpu_enable_command_buffer="
    if name == "loop":
        environment["NCCL_GRAPH_MIXING_SUPPORT"] = "0"
    done = subprocess.run(
        [sys.executable, __file__, "--plugin", options.plugin, "--steps", str(options.steps),
         "--layers", str(options.layers), "--work", "flat" if name == "plain" else name],
        env=environment, capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    if not lines:
        print("%s: it ended with %d\n%s" % (name, done.returncode, done.stderr[-2000:]))
        return None
    return json.loads(lines[0][len("FOUND "):])


def executed(found):
    """By communicator and rank: eager calls, and those of replays, by NCCL's own counter or by stamps."""
    replayed = found["finished"] or found["operations"]
    return {key: found["eager"].get(key, 0) + replayed.get(key, 0) for key in found["calls"]}


def calls_in_a_capture(found):
    """The mean over all captures of the process; None: nothing was captured."""
    captures = sum(map(float, found["captures"].values()))
    return sum(found["captured"].values()) / captures if captures else None


def judge(name, found, expected, wanted):
    wrong = []
    for key in ("sum", "first", "last"):
        if abs(found[key] - expected[key]) > 1e-4 * max(1.0, abs(expected[key])):
            wrong.append("%s is %r instead of %r" % (key, found[key], expected[key]))
    for what in ("replays", "operations"):
        by_communicator = {}
        for key, count in found[what].items():
            by_communicator.setdefault(key.split("/")[0], set()).add(count)
        wrong += ["the ranks of %s counted %s %s" % (comm, sorted(counts), what)
                  for comm, counts in by_communicator.items() if len(counts) > 1]
    if (found["finished"] or any(found["replays"].values())) and set(executed(found).values()) != {wanted}:
        wrong.append("%s were executed, %d were wanted of each rank" % (executed(found), wanted))
    if found["idle"]:
        wrong.append("idle is claimed of ranks %s, beside graphs" % found["idle"])
    print("%-6s %s" % (name, {key: found[key] for key in ("captures", "captured", "eager", "replays", "operations", "finished", "counters", "states")}))
    print("%-6s calls in a capture, on average: %s" % (name, calls_in_a_capture(found)))
    print("%-6s %s" % (name, "; ".join(wrong) or "right"), flush=True)
    return bool(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--graphs", default="auto")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options)
    expected = run(options, "plain")
    if expected is None:
        sys.exit(1)
    print("plain  JAX %s, %d GPUs, calls %s" % (expected["jax"], expected["gpus"], expected["calls"]))
    wanted = options.steps * options.layers
    failed = len(expected["calls"]) != expected["gpus"] or set(expected["calls"].values()) != {wanted}
    if failed:
        print("plain  %d calls were wanted of each rank" % wanted)
    for name in ("flat", "loop"):
        found = run(options, name)
        failed += found is None or judge(name, found, expected, wanted)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
