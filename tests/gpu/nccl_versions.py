"""What each NCCL lets a profiler see below the API call: data for check.py, prove.py and inject.py.

    from     profiler  Broadcast       symmetric-memory kernels
    2.27.3   v4        seen            not seen
    2.28.3   v5        seen            not seen
    2.29.2   v6        not seen        not seen
    2.31.2   v7        not seen        seen (Coll with isSymColl)

v4 has neither calls nor launches: each Coll and P2p counts as a call. Only check.py knows of it.

"Not seen": calls are counted, and then comes nothing: no Coll, no KernelLaunch, no ProxyOp; the plugin follows such
launches by the end of their group, where that tells of them (docs/timing.md). Broadcast is seen with NCCL_ALLGATHERV_ENABLE=0. Source: NCCL's enqueue.cc (collTaskAppend, ncclPrepareTasks) and plugin/profiler.cc
(ncclProfilerStartKernelLaunchEvent) of 2.30.7 and 2.31.2, and runs on GPUs with 2.28.9, 2.30.7 and 2.31.2. The
programs here register no memory windows, so no symmetric kernel runs.
"""

import os
import re
import typing


class Release(typing.NamedTuple):
    since: int  # as ncclGetVersion spells it
    api: int  # newest profiler API that it looks for
    unreported: typing.FrozenSet[str]  # operations of which only the call is seen


RELEASES = (
    Release(22703, 4, frozenset()),
    Release(22803, 5, frozenset()),
    Release(22902, 6, frozenset({"Broadcast"})),
    Release(23102, 7, frozenset({"Broadcast"})),
)

# Why an operation has no duration that NCCL reports nothing of and that was not followed alone.
UNREPORTED_REASON = "unreported"


def text(version):
    """2.30.7 of 23007"""
    return "%d.%d.%d" % (version // 10000, version // 100 % 100, version % 100)


def release(version):
    known = [entry for entry in RELEASES if entry.since <= version]
    if not known:
        raise ValueError("NCCL %s: what it reports is not known here, see nccl_versions.py" % text(version))
    return known[-1]


def unreported(version, environment=os.environ):
    """The operations of which nothing is seen below the call."""
    if environment.get("NCCL_ALLGATHERV_ENABLE") == "0":
        return frozenset()
    return release(version).unreported


def reports_calls(version):
    """False: there are neither calls nor launches, and Coll and P2p count as calls."""
    return release(version).api >= 5


def profiler_api(version, library):
    """The newest profiler API that both this NCCL and the plugin have."""
    with open(library, "rb") as file:
        exported = {int(number) for number in re.findall(rb"ncclProfiler_v(\d+)\0", file.read())}
    return max(number for number in exported if number <= release(version).api)


def preload(environment):
    """Puts the NCCL of run_versions.py in front of the one that PyTorch would load."""
    if os.environ.get("PULSE_PRELOAD"):
        environment["LD_PRELOAD"] = os.environ["PULSE_PRELOAD"]
