"""The page of a real agent, shown in a browser with answers that a test makes up."""

import os
import unittest

from tests.node import cluster
from tests.page import made_up
from tests.page.browser import Browser


class PageCase(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        port = cluster.free_port()
        agent = cluster.Agent("127.0.0.1:%d" % port)
        cls.addClassCleanup(agent.close)
        agent.wait_ready()
        response, cls.html = cluster.fetch(port, "/")
        cls.headers = {name: value for name, value in response.getheaders()
                       if name not in ("Content-Length", "Connection")}
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def serve(self, answer, **where):
        endpoint = made_up.Endpoint(self.html, self.headers, answer, **where)
        self.addCleanup(endpoint.end)
        return endpoint

    def open(self, endpoint, **options):
        shown = self.browser.open(endpoint.url, hurry=10, **options)
        self.addCleanup(shown.close)
        return shown

    def look(self, answer, **options):
        shown = self.open(self.serve(answer), **options)
        shown.wait("document.getElementById('connection').className === 'live'")
        return shown

    def picture(self, shown, name):
        """For who wants to look: bazel-testlogs/.../test.outputs."""
        folder = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR")
        if folder:
            shown.screenshot(os.path.join(folder, name + ".png"))

    def assert_clean(self, shown, network=()):
        shown.collect()
        self.assertEqual(shown.problems, [])
        self.assertEqual([entry for entry in shown.network if not any(text in entry for text in network)], [])

    @staticmethod
    def screen_reader_names(shown):
        """{(role, name)} of what a screen reader would find."""
        tree = shown.call("Accessibility.getFullAXTree")["nodes"]
        return {(node.get("role", {}).get("value"), node.get("name", {}).get("value")) for node in tree}
