"""What the endpoint of a job on this host says, for scripts that start the job at a port of their own."""

import json
import urllib.request

from check_page import Page


def get(port, path="/metrics", timeout=10):
    """The text of a response. Raises OSError if there is none, or one that is not good."""
    with urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, path), timeout=timeout) as response:
        return response.read().decode()


def metrics(port, timeout=10):
    return Page(get(port, "/metrics", timeout))


def communicators(port, timeout=10):
    return json.loads(get(port, "/api/v1/communicators", timeout))["communicators"]
