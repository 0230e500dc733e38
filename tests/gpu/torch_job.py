"""A job of PyTorch ranks, a process for each, and what each rank begins with. The rank's place is in its environment."""

import datetime
import os
import subprocess
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))


class Job:
    """Ranks that end with the block, whatever they do; their lines come through pipes, or go to logs.

    arguments: of Python, the same for all ranks; gpus: {rank: GPU}; ranks: with those that are left out;
    variables(rank): more of the environment, None: unset.
    """

    def __init__(self, arguments, gpus, ranks=None, variables=lambda rank: {}, has_logs=False):
        self.folder = tempfile.TemporaryDirectory()
        self.ranks = {}
        for rank, gpu in gpus.items():
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks or len(gpus)), LOCAL_RANK=str(gpu),
                               PULSE_STORE=os.path.join(self.folder.name, "store"), OMP_NUM_THREADS="1",
                               PYTHONPATH=os.pathsep.join([FOLDER, os.environ.get("PYTHONPATH", "")]),
                               TORCH_NCCL_ASYNC_ERROR_HANDLING="0", TORCH_NCCL_ENABLE_MONITORING="0")
            for name, value in variables(rank).items():
                environment.pop(name, None) if value is None else environment.update({name: value})
            with open(self.log(rank), "wb") as log:
                self.ranks[rank] = subprocess.Popen(
                    [sys.executable, *arguments], env=environment, stdin=subprocess.PIPE, text=True,
                    stdout=log if has_logs else subprocess.PIPE, stderr=log if has_logs else None)

    def log(self, rank):
        return os.path.join(self.folder.name, "log%d" % rank)

    def text(self, rank):
        with open(self.log(rank), encoding="utf-8", errors="replace") as file:
            return file.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.ranks.values():
            process.kill()
        for process in self.ranks.values():
            process.wait()
        self.folder.cleanup()


def is_rank():
    return "PULSE_STORE" in os.environ


def measured(library, port):
    """Variables of ranks with the plugin."""
    return {"NCCL_PROFILER_PLUGIN": os.path.abspath(library), "NCCL_PULSE_LISTEN": "127.0.0.1:%d" % port}


def own_device():
    """The rank's GPU; where there are fewer, ranks share them."""
    import torch  # pylint: disable=import-outside-toplevel
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def join():
    """(rank, ranks, torch.distributed), once all ranks are there."""
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl", rank=rank, world_size=ranks, init_method="file://" + os.environ["PULSE_STORE"],
                            timeout=datetime.timedelta(seconds=600), device_id=own_device())
    return rank, ranks, dist
