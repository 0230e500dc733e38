"""pulse agent --web-config: TLS, client certificates, passwords, reload, what is refused."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import unittest

from tests import running
from tests.node import cluster
from tests.node.cluster import Agent, free_port, wait_until
from tests.node.web_case import ABC, DEF, TLS, USERS, UnixConnection, VERIFY, WebCase, basic


class TlsTest(WebCase):

    def test_versions_and_protocol(self):
        self.agent(TLS)
        context = self.context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        connection = self.connect(context)
        self.assertEqual(self.get(connection=connection), (200, "ok\n"))
        self.assertEqual(connection.sock.version(), "TLSv1.3")
        self.assertEqual(connection.sock.selected_alpn_protocol(), "http/1.1")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        connection = self.connect(context)
        self.assertEqual(self.get("/metrics", connection=connection)[0], 200)
        self.assertEqual(connection.sock.version(), "TLSv1.2")

    def test_too_old_a_client(self):
        agent = self.agent(TLS + "  min_version: TLS13\n")
        context = self.context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        self.assert_refused(context)
        self.assertEqual(self.get()[0], 200)
        wait_until(lambda: "TLS handshake with 127.0.0.1 failed: UNSUPPORTED_PROTOCOL" in agent.log(), "it says why")

    def test_newest_version_suites_and_curves(self):
        self.agent(TLS + "  max_version: TLS12\n"
                   "  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]\n"
                   "  curve_preferences: [CurveP384]\n")
        connection = self.connect()
        self.assertEqual(self.get(connection=connection)[0], 200)
        self.assertEqual(connection.sock.version(), "TLSv1.2")
        self.assertEqual(connection.sock.cipher()[0], "ECDHE-ECDSA-AES256-GCM-SHA384")
        other = self.context()
        other.maximum_version = ssl.TLSVersion.TLSv1_2
        other.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        self.assert_refused(other)

    def test_client_that_does_not_trust_the_server(self):
        agent = self.agent(TLS)
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.get(context=self.context(ca="other_ca"))
        wait_until(lambda: "TLS handshake with 127.0.0.1 failed: " in agent.log() and
                   "the client does not trust the certificate" in agent.log(), "it says why")
        self.assertEqual(self.get()[0], 200)

    def test_expired(self):
        agent = self.agent(TLS.replace("server.", "expired."))
        self.assertIn("the certificate in %s/expired.pem has expired" % self.folder, agent.log())

    def test_unix_socket(self):
        path = os.path.join(self.folder, "socket")
        self.agent(TLS + USERS, listen="unix:" + path)
        connection = UnixConnection(path, self.context())
        self.addCleanup(connection.close)
        self.assertEqual(self.get(connection=connection)[0], 401)
        self.assertEqual(self.get("/metrics", basic("ann", "abc"), connection=connection)[0], 200)
        self.assertEqual(self.get("/api/v1/http_sd", basic("ann", "abc"), connection=connection), (200, "[]\n"))

    def test_processes_hand_over_as_ever(self):
        self.agent(VERIFY + USERS)
        process = self.start(0)
        process.ask("run 10")
        wait_until(lambda: "nccl_operations_total{" in self.get(
            "/metrics", basic("ann", "abc"), self.context("client"))[1], "its numbers are there")

    def test_service_discovery(self):
        self.agent(TLS, "--file-sd-dir=" + self.folder)
        targets = [{"targets": [self.listen],
                    "labels": {"__scheme__": "https",
                               "__meta_nccl_pulse_host": socket.gethostname()}}]
        self.assertEqual(json.loads(self.get("/api/v1/http_sd")[1]), targets)
        name, = [name for name in os.listdir(self.folder) if name.endswith(".json")]
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            written = json.load(file)
        written[0]["labels"].pop("__meta_nccl_pulse_boot")
        self.assertEqual(written, targets)


class ClientCertificateTest(WebCase):

    def test_verified(self):
        agent = self.agent(VERIFY)
        self.assertEqual(self.get(context=self.context("client"))[0], 200)
        self.assert_refused(self.context())
        wait_until(lambda: "PEER_DID_NOT_RETURN_A_CERTIFICATE" in agent.log(), "it says why")
        self.assertEqual(self.get(context=self.context("client"))[0], 200)

    def test_why_a_certificate_was_refused(self):
        agent = self.agent(VERIFY)
        self.assert_refused(self.context("stranger"))
        wait_until(lambda: "CERTIFICATE_VERIFY_FAILED (unable to get local issuer certificate)"
                   in agent.log(), "it says why")
        self.assertEqual(self.get(context=self.context("client"))[0], 200)

    def test_below_tls_13(self):
        self.agent(VERIFY + "  max_version: TLS12\n")
        self.assertEqual(self.get(context=self.context("client"))[0], 200)
        for name in (None, "stranger"):
            self.assert_refused(self.context(name))

    def test_verified_if_given(self):
        self.agent(VERIFY.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"))
        self.assertEqual(self.get(context=self.context("client"))[0], 200)
        self.assertEqual(self.get()[0], 200)
        self.assert_refused(self.context("stranger"))

    def test_any(self):
        self.agent(TLS + "  client_auth_type: RequireAnyClientCert\n")
        self.assertEqual(self.get(context=self.context("stranger"))[0], 200)
        self.assert_refused(self.context())

    def test_requested(self):
        self.agent(TLS + "  client_auth_type: RequestClientCert\n")
        self.assertEqual(self.get(context=self.context("stranger"))[0], 200)
        self.assertEqual(self.get()[0], 200)

    def test_names(self):
        agent = self.agent(VERIFY + "  client_allowed_sans: [other.example, client.example]\n")
        self.assertEqual(self.get(context=self.context("client"))[0], 200)
        self.reload(agent, VERIFY + "  client_allowed_sans: [127.0.0.1]\n")
        self.assertEqual(self.get(context=self.context("client"))[0], 200)
        self.reload(agent, VERIFY + "  client_allowed_sans: [example, '*.example']\n")
        self.assert_refused(self.context("client"))


class PasswordTest(WebCase):

    def test_every_page(self):
        self.agent(TLS + USERS)
        for path in ("/", "/metrics", "/healthz", "/api/v1/communicators", "/nowhere"):
            connection = self.connect()
            connection.request("GET", path)
            response = connection.getresponse()
            self.assertEqual(response.status, 401, path)
            self.assertEqual(response.headers["WWW-Authenticate"], "Basic")
            response.read()
            self.assertEqual(self.get(path, basic("ann", "abd"))[0], 401)
            self.assertEqual(self.get(path, basic("bob", "abc"))[0], 401)
            self.assertEqual(self.get(path, basic("ann", "abc"))[0], 404 if path == "/nowhere" else 200)

    def test_real_curl(self):
        self.agent(TLS + USERS)
        curl = ["curl", "--silent", "--show-error", "--cacert", self.folder + "/ca.pem",
                "--write-out", "%{http_code}", "https://localhost:%d/healthz" % self.port]
        self.assertEqual(subprocess.check_output(curl), b"401 Unauthorized\n401")
        self.assertEqual(subprocess.check_output(curl + ["--user", "ann:abc"]), b"ok\n200")

    # Hashes of a cost that takes a moment: meanwhile others are answered, and the agent ends.
    def test_nobody_waits_for_a_guess(self):
        agent = self.agent(TLS + USERS + "  bob: $2b$16$" + ABC[7:] + "\n")
        connection = self.connect()
        self.assertEqual(self.get(headers=basic("ann", "abc"), connection=connection)[0], 200)
        guess = self.connect()
        guess.request("GET", "/healthz", headers=basic("bob", "x"))
        for _ in range(20):
            self.assertEqual(self.get("/metrics", basic("ann", "abc"), connection=connection)[0], 200)
        self.assertEqual(agent.end(), 0)


class ReloadTest(WebCase):

    def test_rotated_certificate(self):
        agent = self.agent(TLS)
        before = self.connect()
        self.assertEqual(self.get(connection=before)[0], 200)
        self.assertEqual(self.subject(before), "server")
        for suffix in (".pem", ".key"):
            shutil.copy(os.path.join(self.folder, "rotated" + suffix), os.path.join(self.folder, "server" + suffix))
        self.assertIn("passwords reloaded", self.reload(agent))
        after = self.connect()
        self.assertEqual(self.get(connection=after)[0], 200)
        self.assertEqual(self.subject(after), "rotated")
        self.assertEqual(self.get(connection=before)[0], 200)

    def test_passwords(self):
        agent = self.agent(TLS + USERS)
        self.assertEqual(self.get(headers=basic("ann", "abc"))[0], 200)
        self.reload(agent, TLS + USERS.replace(ABC, DEF))
        self.assertEqual(self.get(headers=basic("ann", "abc"))[0], 401)
        self.assertEqual(self.get(headers=basic("ann", "def"))[0], 200)
        # What was once right is remembered, with the hash that it was right for.
        self.reload(agent, TLS + USERS)
        self.assertEqual(self.get(headers=basic("ann", "def"))[0], 401)
        self.assertEqual(self.get(headers=basic("ann", "abc"))[0], 200)

    def test_nothing_changes_when_it_is_broken(self):
        agent = self.agent(TLS + USERS)
        for text, reason in (
                ("", "the file is empty"),
                (TLS + USERS + "oops: 1\n", "unknown key oops"),
                (TLS.replace("server.key", "client.key") + USERS,
                 "client.key does not belong to the certificate in %s/server.pem" % self.folder),
                (USERS, "tls_server_config was removed, which needs a restart")):
            message = self.reload(agent, text)
            self.assertTrue(message.startswith("not reloaded: web configuration %s: " % self.config), message)
            self.assertIn(reason, message.splitlines()[0])
            self.assertEqual(self.get()[0], 401)
            self.assertEqual(self.get(headers=basic("ann", "abc"))[0], 200)
        os.remove(self.config)
        self.assertIn("No such file or directory", self.reload(agent))
        self.assertEqual(self.get(headers=basic("ann", "abc"))[0], 200)
        self.assertIn("passwords reloaded", self.reload(agent, TLS))
        self.assertEqual(self.get()[0], 200)

    def test_tls_is_not_switched_on(self):
        agent = self.agent(USERS)
        self.assertIn("tls_server_config was added", self.reload(agent, TLS + USERS))


class BadConfigurationTest(WebCase):

    def refused(self, text):
        self.write(text)
        agent = Agent.of(self, self.listen, "--web-config=" + self.config)
        self.assertEqual(agent.status(), 1)
        prefix = "pulse: web configuration %s: " % self.config
        self.assertTrue(agent.log().startswith(prefix), agent.log())
        self.assertEqual(agent.log().count("\n"), 1)
        return agent.log()[len(prefix):].rstrip()

    def test_files(self):
        with open(os.path.join(self.folder, "text"), "w", encoding="utf-8") as file:
            file.write("no certificate\n")
        with open(os.path.join(self.folder, "server.pem"), encoding="utf-8") as file:
            lines = file.readlines()
        with open(os.path.join(self.folder, "damaged"), "w", encoding="utf-8") as file:
            file.writelines(lines[:3] + lines[5:])
        at = self.folder + "/"
        for text, message in (
                (TLS.replace("server.pem", "no.pem"),
                 "tls_server_config.cert_file: cannot read %sno.pem: No such file or "
                 "directory" % at),
                (TLS.replace("server.pem", "text"),
                 "tls_server_config.cert_file: %stext has no certificate in PEM form" % at),
                (TLS.replace("server.key", "no.key"),
                 "tls_server_config.key_file: cannot read %sno.key: No such file or "
                 "directory" % at),
                (TLS.replace("server.key", "text"),
                 "tls_server_config.key_file: %stext has no private key in PEM form, or one with a "
                 "passphrase, which is not supported" % at),
                (TLS.replace("server.key", "client.key"),
                 "tls_server_config.key_file: %sclient.key does not belong to the certificate in "
                 "%sserver.pem" % (at, at)),
                (VERIFY.replace("ca.pem", "no.pem"),
                 "tls_server_config.client_ca_file: cannot read %sno.pem: No such file or directory"
                 % at),
                (VERIFY.replace("ca.pem", "text"),
                 "tls_server_config.client_ca_file: %stext has no certificate in PEM form" % at)):
            self.assertEqual(self.refused(text), message)
        self.assertIn("damaged has a damaged certificate: ", self.refused(TLS.replace("server.pem", "damaged")))


@unittest.skipUnless(shutil.which("prometheus"), "takes Prometheus")
class PrometheusTest(WebCase):

    def test_real_prometheus(self):
        agent = self.agent(VERIFY + USERS)
        port = free_port()
        common = """
    scheme: https
    basic_auth: {username: ann, password: abc}
    tls_config: {ca_file: ca.pem, cert_file: client.pem, key_file: client.key}
"""
        config = os.path.join(self.folder, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write("""
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: static
%s
    static_configs: [{targets: ["%s"]}]
  - job_name: wrong
%s
    static_configs: [{targets: ["%s"]}]
  - job_name: discovered
%s
    http_sd_configs:
      - url: https://%s/api/v1/http_sd
        refresh_interval: 1s
        basic_auth: {username: ann, password: abc}
        tls_config: {ca_file: ca.pem, cert_file: client.pem, key_file: client.key}
    relabel_configs:
      - {source_labels: [__meta_nccl_pulse_host], target_label: host}
""" % (common, self.listen, common.replace("abc", "abd"), self.listen, common, self.listen))
        log = open(os.path.join(self.folder, "log"), "w", encoding="utf-8")
        self.addCleanup(log.close)
        server = subprocess.Popen(
            ["prometheus", "--config.file=" + config, "--log.level=warn",
             "--storage.tsdb.path=" + os.path.join(self.folder, "tsdb"),
             "--web.listen-address=127.0.0.1:%d" % port], stdout=log, stderr=log)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)

        def targets():
            answer = cluster.get(port, "/api/v1/targets")
            if answer is None or answer[0] != 200:
                return {}
            return {target["labels"]["job"]: target for target in json.loads(answer[1])["data"]["activeTargets"]}

        wait_until(lambda: {job: target["health"] for job, target in targets().items()} ==
                   {"static": "up", "wrong": "down", "discovered": "up"}, "Prometheus has scraped")
        found = targets()
        self.assertIn("401", found["wrong"]["lastError"])
        self.assertEqual(found["discovered"]["labels"]["host"], socket.gethostname())
        self.assertIsNone(agent.process.poll())


if __name__ == "__main__":
    running.main(at_once=3)
