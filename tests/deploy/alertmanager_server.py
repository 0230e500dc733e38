"""A real Alertmanager with our example, and a receiver for what it sends."""

import http.server
import json
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

from tests.deploy import servers

EXAMPLE = os.path.join(os.getcwd(), "deploy/prometheus/alertmanager.yaml")
PATIENCE_S = 120

# Debian's reads its templates from where the package puts them, and it is not installed: they are put there in a mount
# namespace of its own.
TEMPLATES = "/usr/share/prometheus/alertmanager"
IN_PLACE = ["sh", "-ec", """
mount -t tmpfs none /usr/share
mkdir -p %s
cp -L "$0"/*.tmpl %s
exec "$@"
""" % (TEMPLATES, TEMPLATES)]
# For anybody, and where users may not have namespaces of their own: for root.
NAMESPACES = [["unshare", "--user", "--map-root-user", "--mount"], ["unshare", "--mount"]]


class Webhook:
    """Keeps what is sent: [(path, names of the alerts that fire)], and the alerts: [(path, alert)]"""

    def __init__(self):
        sent = self.sent = []
        alerts = self.alerts = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # pylint: disable=invalid-name
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                alerts.extend((self.path, each) for each in body["alerts"])
                sent.append((self.path, sorted(each["labels"]["alertname"] for each in body["alerts"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = "http://127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self):
        self.server.shutdown()
        self.server.server_close()


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=10).status == 200
    except OSError:
        return False


def namespace_or_skip():
    """What gives a command mounts of its own; where nothing does, in a chroot or a container say, the test is skipped."""
    refused = []
    for command in NAMESPACES:
        tried = subprocess.run([*command, "mount", "-t", "tmpfs", "none", "/usr/share"], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, check=False)
        if tried.returncode == 0:
            return command
        refused.append(tried.stdout.strip())
    raise unittest.SkipTest("Alertmanager's templates cannot be put where it looks for them: " + "; ".join(refused))


def start(test, as_shipped=False):
    """The real one, with the example's receivers here and nothing to wait for, or what the example waits for."""
    webhook = Webhook()
    test.addCleanup(webhook.end)
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    with open(EXAMPLE, encoding="utf-8") as file:
        text = file.read().replace("http://localhost:9095", webhook.address)
    path = os.path.join(folder.name, "alertmanager.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text if as_shipped else re.sub(r"group_(wait|interval): \S+", r"group_\1: 1s", text))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:%d" % probe.getsockname()[1]
    log = open(os.path.join(folder.name, "log"), "w+", encoding="utf-8")
    test.addCleanup(log.close)
    process = subprocess.Popen(
        [*namespace_or_skip(), *IN_PLACE, os.path.join(servers.FOLDER, "root" + TEMPLATES),
         servers.path_or_skip("prometheus-alertmanager"), "--config.file=" + path, "--storage.path=" + folder.name,
         "--web.listen-address=" + url[len("http://"):], "--cluster.listen-address="],
        stdout=log, stderr=log)
    test.addCleanup(process.wait)
    test.addCleanup(process.terminate)
    deadline = time.monotonic() + PATIENCE_S
    while not answers(url + "/-/ready"):
        if process.poll() is not None or time.monotonic() > deadline:
            log.seek(0)
            test.fail("Alertmanager does not start:\n" + log.read())
        time.sleep(0.1)
    return webhook, url
