"""Made-up endpoints of a job, good and bad ones, and `pulse diagnose` asking them."""

import atexit
import http.server
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import threading
import unittest

RUNFILES = os.path.join(os.environ["TEST_SRCDIR"],
                        os.environ.get("TEST_WORKSPACE", "nccl_pulse"))
PULSE = os.path.join(RUNFILES, "exporter/pulse")
SNAPSHOT_PAGE = os.path.join(RUNFILES, "tests/fleet/snapshot_page")
MAKE_CERTIFICATES = os.path.join(RUNFILES, "tests/exporter/web/make_certificates")
MIB = 1 << 20


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        try:
            self.server.answer(self)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client has seen enough


class Endpoint(http.server.ThreadingHTTPServer):
    """Answers each request by `answer(handler)`; of `clients` only those that this authority knows."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer, certificate=None, clients=None, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.answer = answer
        self.asked = []
        self.scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate + ".pem", certificate + ".key")
            if clients:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(clients)
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self.scheme = "https"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def name(self):
        return "127.0.0.1:%d" % self.server_address[1]

    def handle_error(self, request, client_address):
        pass  # handshakes that the client gave up


def reply(handler, body, status=200, headers=()):
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    for name, value in headers:
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


# Before the first case, since cases may run in processes of their own. The pages of all lie there, too.
FOLDER = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
atexit.register(shutil.rmtree, FOLDER)
subprocess.run([MAKE_CERTIFICATES, FOLDER], check=True)


class DiagnoseCase(unittest.TestCase):

    folder = FOLDER

    def pages(self, fault, seed=0, later=0):
        """(what each endpoint of a made-up job answers, so many seconds later, the culprits' global ranks)"""
        folder = tempfile.mkdtemp(dir=self.folder)
        said = subprocess.run([SNAPSHOT_PAGE, folder, fault, str(seed), str(later)], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        pages = []
        for node in range(len(os.listdir(folder))):
            with open(os.path.join(folder, "node-%d" % node), "rb") as file:
                pages.append(file.read())
        return pages, [int(rank) for rank in said.split()]

    def endpoint(self, answer, certificate=None, clients=None, port=0):
        endpoint = Endpoint(answer, certificate, clients, port)
        self.addCleanup(endpoint.server_close)
        self.addCleanup(endpoint.shutdown)
        return endpoint

    def serve(self, page, **headers):
        headers = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return self.endpoint(lambda handler: reply(handler, page, headers=headers))

    def run_pulse(self, *arguments):
        # Longer than a busy machine takes; a test of what never answers says what it waits.
        patience = [] if any(each.startswith("--timeout=") for each in arguments) else ["--timeout=20s"]
        done = subprocess.run([PULSE, "diagnose", *patience, *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=120)
        return done.returncode, done.stdout, done.stderr

    def diagnose(self, endpoints, *arguments):
        status, out, err = self.run_pulse(
            "--json", *["--endpoint=%s://%s" % (each.scheme, each.name) for each in endpoints],
            *arguments)
        self.assertTrue(out, err)
        return status, json.loads(out)
