"""Made-up endpoints of a job, good and bad ones, and `pulse diagnose` asking them."""

import atexit
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import unittest

from tests.kit import PULSE, RUNFILES, Server, reply

SNAPSHOT_PAGE = os.path.join(RUNFILES, "tests/fleet/snapshot_page")
MAKE_CERTIFICATES = os.path.join(RUNFILES, "tests/exporter/web/make_certificates")
MIB = 1 << 20


class Endpoint(Server):
    """Over TLS where it has a certificate; of `clients` only those that this authority knows."""

    def __init__(self, answer, certificate=None, clients=None, port=0):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
        if certificate:
            context.load_cert_chain(certificate + ".pem", certificate + ".key")
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(clients)
        self.asked = []
        self.scheme = "https" if certificate else "http"
        super().__init__(answer, port, context)


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
        self.addCleanup(endpoint.end)
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
