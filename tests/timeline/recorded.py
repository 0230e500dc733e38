"""A recorded run of NCCL, replayed and held for whoever asks, and its calls by the independent reader."""

import os
import signal
import subprocess

from tests.kit import PATIENCE_S, RUNFILES, free_port
from tests.reference import reference


class Replay:
    """`with Replay(run) as address`: an endpoint, once all of the run has been replayed."""

    KEPT = 128  # of each rank of a communicator

    def __init__(self, run):
        self.run = run

    def __enter__(self):
        self.process = subprocess.Popen(
            [os.path.join(RUNFILES, "bench/replay/replay"), "--speed=0", "--hold=%d" % PATIENCE_S, self.run], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
            env=dict(os.environ, NCCL_PULSE_LISTEN="127.0.0.1:%d" % free_port(), NCCL_PULSE_LAST_CALLS=str(self.KEPT)))
        said = ""
        while "holding" not in said:
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError("it ended; it said:\n" + said)
            said += line
        return said.split("http://", 1)[1].split("/metrics", 1)[0]

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()


def true_calls(path):
    """{(comm, rank): [(op, bytes), ...]} in the order of the calls, by the independent reader's definitions."""
    calls, communicators = {}, {}
    for event in reference.load(path):
        if event["cb"] == "init":
            communicators[event["ctx"]] = ("%016x" % int(event["commId"], 16), event["rank"])
        elif event["cb"] == "start" and event["type"] in ("collApi", "p2pApi"):
            size = event["count"] * reference.ELEMENT_BYTES[event["datatype"]]
            calls.setdefault(communicators[event["ctx"]], []).append((event["func"], size))
    return calls
