"""A job on several nodes: a process with the real plugin for each rank, on simulated GPUs."""

import itertools
import mmap
import os
import struct

GPUS = 2  # of a node
RANK = os.path.join(os.getcwd(), "tests/deploy/network/simulated_rank")
PLUGIN = os.path.join(os.getcwd(), "plugin/libnccl-profiler-pulse.so")
DRIVER = os.path.join(os.getcwd(), "simulation/libpulse-simulated-gpu.so")


class Job:
    """name: its job id.

    nodes: on which its ranks are, in order.
    behaviours: {rank: what it does}, of simulated_rank.cc; the others do well.
    others: what these do.
    has_id: the launcher sets a job id.
    """

    communicators = itertools.count(1)

    def __init__(self, name, nodes, folder, behaviours=(), others="well", has_id=True):
        self.name, self.nodes = name, nodes
        number = next(self.communicators)
        path = os.path.join(folder, "%s-%d" % (name, number))
        with open(path, "xb") as file:
            file.truncate(mmap.PAGESIZE)  # ranks make it longer
        communicators = str(number + os.getpid() * 1000)
        self.ranks = [
            node.start([RANK, PLUGIN, DRIVER, path, str(len(nodes)), str(GPUS), str(index * GPUS + gpu),
                        communicators, dict(behaviours).get(index * GPUS + gpu, others)],
                       env=dict(os.environ, RANK=str(index * GPUS + gpu), LOCAL_RANK=str(gpu),
                                **({"SLURM_JOB_ID": name} if has_id else {})))
            for index, node in enumerate(nodes) for gpu in range(GPUS)]
        with open(path, "r+b") as file:
            self.shared = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def go_wrong(self):
        self.shared[:4] = struct.pack("I", 1)

    def host_of(self, rank):
        return self.nodes[rank // GPUS].name

    def end(self):
        self.shared.close()
