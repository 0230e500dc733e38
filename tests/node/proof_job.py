"""Ranks that run tests/gpu/proof_program on the stand-in for NCCL, with a shared endpoint."""

import json
import os
import subprocess

from tests.node import cluster

FILES = ("libnccl.so.2", "libcudart.so.13", "libcuda.so.1")
RANKS = 3


def runfile(path):
    return os.path.join(cluster.RUNFILES, path)


class Job:
    """proof_program's ranks, which go on to the next phase when they are told so."""

    def __init__(self, folder, listen, *phases, delays="20", repeats="1000", hang_seconds="2", **variables):
        self.ranks = []
        libraries = os.path.join(folder, "lib")
        os.mkdir(libraries)
        for name in FILES:
            os.symlink(runfile("tests/gpu/fake/libfake_nccl.so"), os.path.join(libraries, name))
        environment = dict(os.environ, LD_LIBRARY_PATH=libraries, NCCL_PULSE_LISTEN=listen,
                           NCCL_PROFILER_PLUGIN=runfile("plugin/libnccl-profiler-pulse.so"),
                           NCCL_PULSE_HANG_SECONDS=hang_seconds, **variables)
        for rank in range(RANKS):
            self.ranks.append(subprocess.Popen(
                [runfile("tests/gpu/proof_program"), "--rank=%d" % rank, "--nranks=%d" % RANKS,
                 "--gpu=%d" % rank, "--exchange=" + folder, "--library-path=" + libraries,
                 "--delays-ms=" + delays, "--repeats=" + repeats, "--phases=" + ",".join(phases)],
                env=dict(environment, RANK=str(rank)), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))

    def report(self):
        return [json.loads(rank.stdout.readline())["phase"] for rank in self.ranks]

    def go_on(self):
        for rank in self.ranks:
            rank.stdin.write("\n")
            rank.stdin.flush()

    def close(self):
        for rank in self.ranks:
            rank.kill()
            rank.communicate()
