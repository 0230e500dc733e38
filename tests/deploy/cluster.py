"""A real Prometheus over real replays, with the rules of deploy/prometheus."""

import os
import re
import signal
import subprocess
import threading

from tests.deploy.prometheus_server import (  # pylint: disable=unused-import
    PATIENCE_S, Page, Prometheus, free_port, write_targets)
from tests.replay.replayed_run import LIBRARY, REPLAY, RUNFILES, trace_folder

PULSE = os.path.join(RUNFILES, "exporter/pulse")
DRIVER = os.path.join(RUNFILES, "bench")  # holds libcuda.so.1


class Replay:
    """A replay of a recorded run, over and over, at an endpoint that its processes share."""

    def __init__(self, run, speed, **environment):
        self.process = subprocess.Popen(
            [REPLAY, "--library=" + LIBRARY, "--speed=%g" % speed, "--repeat=0",
             trace_folder(run)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=dict(os.environ, NCCL_PULSE_LISTEN="127.0.0.1:%d" % free_port(),
                     LD_LIBRARY_PATH=DRIVER, NCCL_PULSE_TIMED_LAUNCHES_PER_SECOND="1000000",
                     **environment))
        self.output = []
        for line in self.process.stdout:
            self.output.append(line)
            url = re.search(r"http://([^/\s]+)", line)
            if url:
                self.target = url.group(1)
                break
        else:
            raise RuntimeError("the replay ended:\n" + "".join(self.output))
        # Nobody else reads on.
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self):
        for line in self.process.stdout:
            self.output.append(line)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=PATIENCE_S)
        self.process.stdout.close()
