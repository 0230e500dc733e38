"""`pulse status` against an agent that asks for TLS, certificates or passwords."""

import os
import subprocess

from tests import running
from tests.node import cluster
from tests.node.web_case import USERS, VERIFY, WebCase


class StatusTest(WebCase):
    """`pulse status` gets in, and says why not."""

    def status(self, endpoint, *arguments):
        done = subprocess.run([cluster.PULSE, "status", endpoint, *arguments], text=True,
                              capture_output=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def file(self, name):
        return os.path.join(self.folder, name)

    def test_tls(self):
        self.agent(VERIFY)
        secure = "https://localhost:%d" % self.port
        ca = "--ca-cert=" + self.file("ca.pem")
        own = ["--cert=" + self.file("client.pem"), "--key=" + self.file("client.key")]
        code, output = self.status(secure, ca, *own)
        self.assertEqual(code, 0, output)
        self.assertIn("No communicator is in use.", output)
        # A file says it as well as the address.
        self.assertEqual(self.status("localhost:%d" % self.port, ca, *own)[0], 0)
        for arguments, expected in (
                ([secure, ca], "TLS: "),  # no certificate
                ([secure, *own, "--ca-cert=" + self.file("client.pem")], "unable to get local issuer certificate"),
                ([secure, ca, *own, "--server-name=elsewhere"], "ostname mismatch"),
                (["localhost:%d" % self.port], "This endpoint speaks TLS: use https")):
            code, output = self.status(*arguments)
            self.assertEqual(code, 2, output)
            self.assertIn(expected, output)

    def test_password(self):
        self.agent(USERS)
        endpoint = "localhost:%d" % self.port
        with open(self.file("password"), "w", encoding="utf-8") as file:
            file.write("abc\n")
        with open(self.file("wrong"), "w", encoding="utf-8") as file:
            file.write("abd\n")
        right = ["--user=ann", "--password-file=" + self.file("password")]
        self.assertEqual(self.status(endpoint, *right)[0], 0)
        code, output = self.status(endpoint)
        self.assertEqual((code, "asks for a password" in output), (2, True), output)
        code, output = self.status(endpoint, "--user=ann", "--password-file=" + self.file("wrong"))
        self.assertEqual((code, "does not take this user" in output), (2, True), output)
        code, output = self.status("https://" + endpoint, "--ca-cert=" + self.file("ca.pem"))
        self.assertEqual((code, "plain http" in output), (2, True), output)


if __name__ == "__main__":
    running.main()
