"""What listens where NCCL's RAS does.

The made-up report has the form of NCCL 2.28's (NVIDIA's guide, "RAS"); nothing reads it but people.
"""

import socket
import threading

REPORT = """\
NCCL version 2.28.3 compiled with CUDA 12.9

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5
"""


class Ras:
    """Answers each line by what `answers` has for it, and closes after the report."""

    def __init__(self, report=REPORT, answers=(), closes=True, faults=None):
        """`faults`: of DIAGNOSTICS; None: this NCCL is older and does not know it."""
        self.answers = {"CLIENT PROTOCOL": b"SERVER PROTOCOL 2\n", "TIMEOUT": b"OK\n",
                        "VERBOSE STATUS": report.encode(), **dict(answers)}
        if faults is not None:
            self.answers["DIAGNOSTICS"] = faults.encode()
        self.closes, self.heard = closes, []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.flag = "--ras=127.0.0.1:%d" % self.server.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            with client, client.makefile("rb") as lines:
                try:
                    for line in lines:
                        text = line.decode().strip()
                        self.heard.append(text)
                        key = next((key for key in self.answers if text.startswith(key)), None)
                        client.sendall(self.answers.get(key, b"ERROR: Unknown command\n"))
                        if key in ("VERBOSE STATUS", "DIAGNOSTICS") and self.closes:
                            break
                except OSError:
                    pass
