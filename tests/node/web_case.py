"""An agent with TLS, client certificates and passwords, for tests of it."""

import base64
import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile

from tests.node import cluster
from tests.node.cluster import Agent, NodeCase, wait_until

MAKE_CERTIFICATES = os.path.join(cluster.RUNFILES, "tests/exporter/web/make_certificates")
# "abc", at the lowest cost, and "def"
ABC = "$2b$04$abcdefghijklmnopqrstuuCi15uRb1eH7NAlJ/TgeJertyknQpYn2"
DEF = "$2y$04$abcdefghijklmnopqrstuum3FdWd3EFrV1PlJ.XJplhBHKXD4zSbW"

TLS = """
tls_server_config:
  cert_file: server.pem
  key_file: server.key
"""
VERIFY = TLS + """
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
"""
USERS = """
basic_auth_users:
  ann: %s
""" % ABC


def basic(user, password):
    return {"Authorization": "Basic " + base64.b64encode(("%s:%s" % (user, password)).encode()).decode()}


class UnixConnection(http.client.HTTPConnection):
    """HTTP, or HTTPS, over a Unix socket."""

    def __init__(self, path, context):
        super().__init__("localhost", timeout=cluster.PATIENCE_S)
        self.path = path
        self.context = context

    def connect(self):
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(self.timeout)
        plain.connect(self.path)
        self.sock = self.context.wrap_socket(plain, server_hostname="localhost")


class LocalConnection(http.client.HTTPSConnection):
    """To localhost, as its certificate says. A bare machine finds no address of that name: it has no /etc/hosts."""

    def connect(self):
        plain = socket.create_connection(("127.0.0.1", self.port), self.timeout)
        self.sock = self._context.wrap_socket(plain, server_hostname=self.host)


class WebCase(NodeCase):

    @classmethod
    def setUpClass(cls):
        cls.certificates = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.certificates)
        subprocess.run([MAKE_CERTIFICATES, cls.certificates], check=True)

    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        for name in os.listdir(self.certificates):
            shutil.copy(os.path.join(self.certificates, name), self.folder)
        self.config = os.path.join(self.folder, "web.yml")

    def write(self, text):
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(text)

    def agent(self, text, *arguments, listen=None):
        self.write(text)
        agent = Agent.of(self, listen or self.listen, "--web-config=" + self.config, *arguments)
        self.assertIsNone(agent.process.poll(), agent.log())
        return agent

    def reload(self, agent, text=None):
        if text is not None:
            self.write(text)
        before = agent.log().count("SIGHUP: ")
        agent.process.send_signal(signal.SIGHUP)
        wait_until(lambda: agent.log().count("SIGHUP: ") > before, "it has read it again")
        return agent.log().split("SIGHUP: ")[-1]

    def context(self, name=None, ca="ca"):
        context = ssl.create_default_context(cafile=os.path.join(self.folder, ca + ".pem"))
        if name:
            context.load_cert_chain(os.path.join(self.folder, name + ".pem"), os.path.join(self.folder, name + ".key"))
        return context

    def connect(self, context=None):
        connection = LocalConnection("localhost", self.port, context=context or self.context(),
                                     timeout=cluster.PATIENCE_S)
        self.addCleanup(connection.close)
        return connection

    def get(self, path="/healthz", headers=None, context=None, connection=None):
        connection = connection or self.connect(context)
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        body = response.read().decode()
        return response.status, body

    def assert_refused(self, context):
        with self.assertRaises((OSError, http.client.HTTPException)):
            self.get(context=context)

    def subject(self, connection):
        return dict(item[0] for item in connection.sock.getpeercert()["subject"])["commonName"]
