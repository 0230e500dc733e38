"""What Python tests share: where programs are, waiting, ports, an HTTP client, and servers: what others wrote, and what
answers as a test says."""

import http.client
import http.server
import json
import os
import random
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse

# `bazel run` sets neither variable, and starts in the folder of the files itself.
RUNFILES = (os.path.join(os.environ["TEST_SRCDIR"], os.environ.get("TEST_WORKSPACE", "nccl_pulse"))
            if "TEST_SRCDIR" in os.environ else os.getcwd())
PULSE = os.path.join(RUNFILES, "exporter/pulse")
# For a broken build to end; a slow machine is no failure.
PATIENCE_S = 300


def wait_until(condition, what="it is so"):
    """Returns what the condition is, once it is true. `what`: text, or a function that gives it in the end."""
    deadline = time.monotonic() + PATIENCE_S
    pause_s = 0.02
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("waited in vain until %s" % (what() if callable(what) else what))
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, 0.2)  # a condition may be dear


def temporary_folder(test):
    """The path of a folder that goes when the test ends."""
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    return folder.name


_reserved = []


def free_port():
    """A port with room for 63 more behind it, which no test takes until this process ends, and the kernel gives to no
    client."""
    while True:
        port = random.randrange(10000, 32000, 64)
        # Network namespaces have such names of their own, as they have ports.
        reserved = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            reserved.bind("\0nccl-pulse-test-%d" % port)
            for each in range(port, port + 8):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", each))
        except OSError:
            reserved.close()
            continue
        _reserved.append(reserved)
        return port


def fetch(port, path="/metrics", method="GET", content=None, **headers):
    """(response, body in bytes). A header's name has _ for -. None when nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, content, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response, response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def get(port, path="/metrics"):
    """(status, body), or None when nobody answers."""
    answer = fetch(port, path)
    return answer and (answer[0].status, answer[1].decode())


class _Handler(http.server.BaseHTTPRequestHandler):

    def do_GET(self):  # pylint: disable=invalid-name
        try:
            self.server.answer(self)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client has seen enough

    do_POST = do_GET

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Answers each request by `answer(handler)`, until it is ended; `context`: over TLS."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, answer, port=0, context=None):
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer = answer
        self.port = self.server_address[1]
        self.name = "127.0.0.1:%d" % self.port
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # a client that has left, or given its handshake up

    def end(self):
        self.shutdown()
        self.server_close()


def reply(handler, body=b"", status=200, headers=()):
    """Answers a request with bytes, or with the JSON of anything else."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    for name, value in headers:
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def posted(handler):
    """The JSON that a request has sent."""
    return json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))


class ServerProgram:
    """A server that others wrote: `command`, which listens at `port`, and answers at the path `ready` when it has started."""

    def __init__(self, command, port, log, ready):
        self.port, self.log_path = port, log
        self.name = "127.0.0.1:%d" % port
        self.url = "http://" + self.name
        with open(log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file)
        wait_until(lambda: (get(port, ready) or [0])[0] == 200 or self.process.poll() is not None, command[0] + " serves")
        if self.process.poll() is not None:
            raise RuntimeError("%s does not start:\n%s" % (command[0], self.log()))

    def log(self):
        with open(self.log_path, encoding="utf-8") as file:
            return file.read()

    def ask(self, path, content=None, **headers):
        """The body of a good response."""
        answer = fetch(self.port, path, "POST" if content else "GET", content, **headers)
        if not answer or answer[0].status // 100 != 2:
            raise ValueError("%s: %s" % (content or path, answer and answer[1].decode()))
        return answer[1]

    def data(self, path, **parameters):
        """What the API of Prometheus, which others have too, answers."""
        form = {"Content_Type": "application/x-www-form-urlencoded"} if parameters else {}
        return json.loads(self.ask(path, urllib.parse.urlencode(parameters), **form))["data"]

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=PATIENCE_S)
