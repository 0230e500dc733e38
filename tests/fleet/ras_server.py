"""What listens where NCCL's RAS does.

The made-up report has the form of NCCL 2.28.9's JSON, whose missing ranks lack a comma; nothing reads it but people.
"""

import socket
import threading

REPORT = """\
{
  "nccl_version": "2.28.9",
  "communicators_count": 1,
  "communicators": [{"hash": "0x68dffeadac8cd14b", "size": 32, "ranks_count": 31, "missing_ranks_count": 1,
    "missing_ranks": [{"rank": 5, "host": "172.16.64.213", "pid": 3487984, "cuda_dev": 5, "nvml_dev": 5
      "status": {"unresponsive": true, "considered_dead": false}}]}]
}
"""


class Ras:
    """Answers each line by what `answers` has for it, and closes after the report."""

    def __init__(self, report=REPORT, answers=(), closes=True, is_old=False, port=0):
        """`report`: bytes or text. `is_old`: NCCL before 2.28.7, which has no JSON."""
        self.answers = {"CLIENT PROTOCOL": b"SERVER PROTOCOL 2\n", "TIMEOUT": b"OK\n", "SET FORMAT json": b"OK\n",
                        "STATUS": report if isinstance(report, bytes) else report.encode(), **dict(answers)}
        if is_old:
            del self.answers["SET FORMAT json"]
        self.closes, self.heard = closes, []
        self.server = socket.create_server(("127.0.0.1", port))
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
                        if key == "STATUS" and self.closes:
                            break
                except OSError:
                    pass
