"""A real Alertmanager with our example, and a receiver for what it sends."""

import os
import re
import subprocess
import unittest

from tests.deploy import servers
from tests.kit import Server, ServerProgram, free_port, posted, reply, temporary_folder

EXAMPLE = os.path.join(os.getcwd(), "deploy/prometheus/alertmanager.yaml")

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


class Webhook(Server):
    """Keeps what is sent: [(path, names of the alerts that fire)], and the alerts: [(path, alert)]"""

    def __init__(self):
        self.sent, self.alerts = [], []
        super().__init__(self.keep)
        self.address = "http://" + self.name

    def keep(self, handler):
        alerts = posted(handler)["alerts"]
        self.alerts.extend((handler.path, each) for each in alerts)
        self.sent.append((handler.path, sorted(each["labels"]["alertname"] for each in alerts)))
        reply(handler)


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
    """(receiver, the real one), with the example's receivers here and nothing to wait for, or what the example waits for."""
    webhook = Webhook()
    test.addCleanup(webhook.end)
    folder = temporary_folder(test)
    with open(EXAMPLE, encoding="utf-8") as file:
        text = file.read().replace("http://localhost:9095", webhook.address)
    path = os.path.join(folder, "alertmanager.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text if as_shipped else re.sub(r"group_(wait|interval): \S+", r"group_\1: 1s", text))
    port = free_port()
    server = ServerProgram(
        [*namespace_or_skip(), *IN_PLACE, os.path.join(servers.FOLDER, "root" + TEMPLATES),
         servers.path_or_skip("prometheus-alertmanager"), "--config.file=" + path, "--storage.path=" + folder,
         "--web.listen-address=127.0.0.1:%d" % port, "--cluster.listen-address="],
        port, os.path.join(folder, "log"), "/-/ready")
    test.addCleanup(server.end)
    return webhook, server
