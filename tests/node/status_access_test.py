"""Whom `pulse status` asks, and how it gets in: without an address, and against an agent that asks for TLS,
certificates or passwords."""

import os
import re
import socket
import subprocess
import unittest

from tests import running
from tests.node import cluster
from tests.node.web_case import USERS, VERIFY, WebCase

PORTS = range(9410, 9418)


def run_status(*arguments, before=()):
    """(exit status, output, errors)"""
    done = subprocess.run([*before, cluster.PULSE, "status", *arguments], text=True, capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr


class WithoutAddressTest(unittest.TestCase):
    """This test has a network of its own where Bazel can give it one."""

    def agent(self):
        """The port of a new endpoint, the last that is free."""
        for port in reversed(PORTS):
            agent = cluster.Agent("127.0.0.1:%d" % port)
            self.addCleanup(agent.close)
            if "the agent serves at" in agent.wait_ready().log():
                return port
        return self.skipTest("all eight ports are taken")

    def test_first_of_this_host(self):
        ours = {self.agent(), self.agent()}
        code, output, errors = run_status("--interval=250ms")
        self.assertIn(code, (0, 3, 4), errors)
        self.assertIn("NCCL Pulse", output)
        named = [int(port) for port in re.findall(r":(\d{4})\b", errors)]
        self.assertIn("no address was given: this is localhost:%d; other" % named[0], errors)
        self.assertEqual(named, sorted(named))
        self.assertLessEqual(ours, set(named))
        self.assertLessEqual(set(named), set(PORTS))

    def test_one_that_does_not_answer_is_not_left_out_without_a_word(self):
        """A process that was stopped holds its port."""
        ours = self.agent()
        stopped = socket.socket()
        self.addCleanup(stopped.close)
        for port in PORTS:
            try:
                stopped.bind(("127.0.0.1", port))
                break
            except OSError:
                continue
        stopped.listen()
        code, output, errors = run_status("--interval=250ms")
        self.assertEqual(code, 4, errors)
        self.assertIn("NCCL Pulse", output)
        self.assertIn("localhost:%d is left out: it accepts connections, but does not answer in time" % port, errors)
        self.assertIn("this is localhost:%d" % ours, errors)

    def test_where_only_one_that_does_not_answer_is_there_it_is_named(self):
        stopped = socket.socket()
        self.addCleanup(stopped.close)
        stopped.bind(("127.0.0.1", 9411))
        stopped.listen()
        code, output, errors = run_status()
        self.assertEqual((code, output), (2, ""))
        self.assertIn("no answer from localhost:9411", errors)

    def test_a_watcher_is_no_endpoint(self):
        for port in reversed(PORTS):
            served = subprocess.Popen([cluster.PULSE, "watch", "localhost:1", "--listen=127.0.0.1:%d" % port],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.addCleanup(served.stdout.close)
            self.addCleanup(served.wait)
            self.addCleanup(served.kill)
            if "all jobs at" in served.stdout.readline():
                break
        else:
            self.skipTest("all eight ports are taken")
        self.assertNotIn(":%d" % port, run_status()[2])

    def test_password_is_for_the_default_port(self):
        self.agent()
        with open(self.password(), encoding="utf-8") as file:
            _, _, errors = run_status("--credentials-file=" + file.name)
        self.assertNotIn("no address was given", errors)

    def password(self):
        path = os.path.join(os.environ["TEST_TMPDIR"], "password")
        with open(path, "w", encoding="utf-8") as file:
            file.write("ann:abc\n")
        return path

    def test_nobody(self):
        alone = ["unshare", "--net"]
        if subprocess.run([*alone, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("no network namespaces")
        code, output, errors = run_status(before=alone)
        self.assertEqual((code, output), (2, ""))
        self.assertIn("no answer from localhost:9410", errors)
        self.assertIn("localhost was asked at the ports 9410 to 9417", errors)


class StatusTest(WebCase):
    """`pulse status` gets in, and says why not."""

    def status(self, endpoint, *arguments):
        code, output, errors = run_status(endpoint, *arguments)
        return code, output + errors

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
        self.assertEqual(self.status("localhost:%d" % self.port, "--insecure", *own)[0], 0)
        for arguments, expected in (
                ([secure, ca], "TLS: "),  # no certificate
                ([secure, "--insecure"], "TLS: "),
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
            file.write("ann:abc\n")
        with open(self.file("wrong"), "w", encoding="utf-8") as file:
            file.write("ann:abd\n")
        right = ["--credentials-file=" + self.file("password")]
        self.assertEqual(self.status(endpoint, *right)[0], 0)
        code, output = self.status(endpoint)
        self.assertEqual((code, "asks for a password" in output), (2, True), output)
        code, output = self.status(endpoint, "--credentials-file=" + self.file("wrong"))
        self.assertEqual((code, "does not accept these credentials" in output), (2, True), output)
        for wrong in ((), ("--bearer-file=" + self.file("wrong"),)):
            self.assertEqual(self.status(endpoint, *wrong)[0], 2)
        code, output = self.status("https://" + endpoint, "--ca-cert=" + self.file("ca.pem"))
        self.assertEqual((code, "does not speak TLS" in output), (2, True), output)


if __name__ == "__main__":
    running.main()
