"""A headless Chromium, spoken to over its debugging pipe (the Chrome DevTools Protocol)."""

import base64
import collections
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

# For a broken build to end; a slow machine is no failure.
# As in tests/node/cluster.py.
PATIENCE_S = 240
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Root may run it; nothing is asked of the network.
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars",
         "--remote-debugging-pipe")


class ProtocolError(Exception):
    pass


class Browser:

    def __init__(self):
        program = next((found for found in map(shutil.which, NAMES) if found), None)
        if program is None:
            raise AssertionError("no Chromium in PATH (%s): ./bazelw installs it on Debian" % ", ".join(NAMES))
        self.profile = tempfile.TemporaryDirectory(prefix="browser", ignore_cleanup_errors=True)
        commands, self.write = self._pipe()
        self.read, answers = self._pipe()
        # The browser reads from its descriptor 3 and writes to 4.
        self.process = subprocess.Popen(
            ["bash", "-c", 'exec "${@:3}" 3<&"$1" 4>&"$2"', "bash", str(commands), str(answers),
             program, "--user-data-dir=" + self.profile.name, *FLAGS, "about:blank"],
            pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=dict(os.environ, HOME=self.profile.name))
        os.close(commands)
        os.close(answers)
        self.buffer = b""
        self.number = 0
        self.events = collections.deque()

    @staticmethod
    def _pipe():
        """Far from the numbers that the child gives them."""
        ends = []
        for end in os.pipe():
            ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 50))
            os.close(end)
        return ends

    def _message(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                return None
            more = os.read(self.read, 1 << 20)
            if not more:
                raise ProtocolError("the browser ended")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data):]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._message(deadline)
            if answer is None:
                raise ProtocolError("no answer to " + method)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise ProtocolError("%s: %s" % (method, answer["error"]))
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def open(self, url, width=1280, height=720, hurry=1, **media):
        """hurry: the page's timeouts end so many times earlier."""
        return Page(self, url, width, height, hurry, media)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.read)
        os.close(self.write)
        self.profile.cleanup()


class Page:
    """One tab."""

    def __init__(self, browser, url, width, height, hurry, media):
        self.browser = browser
        self.problems = []  # what the console says, and exceptions
        self.network = []   # requests that failed
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.resize(width, height)
        self.set_media(**media)
        self.call("Page.addScriptToEvaluateOnNewDocument", source="""{
            const original = window.setTimeout;
            window.setTimeout = (call, ms) => original(call, ms / %d); }""" % hurry)
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def set_media(self, **features):
        """color_scheme="dark", reduced_motion="reduce"."""
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-" + name.replace("_", "-"), "value": value}
                            for name, value in features.items()])

    def collect(self):
        """Sorts what the browser told meanwhile."""
        others = collections.deque()
        while self.browser.events:
            event = self.browser.events.popleft()
            if event.get("sessionId") != self.session:
                others.append(event)
                continue
            told = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(told["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled":
                self.problems.append(json.dumps(told["args"]))
            elif event["method"] == "Log.entryAdded":
                where = self.network if told["entry"]["source"] == "network" else self.problems
                where.append(json.dumps(told["entry"]))
        self.browser.events = others

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        self.collect()
        if "exceptionDetails" in result:
            raise ProtocolError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def wait(self, expression):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            value = self.evaluate(expression)
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError("waited in vain for %s; the page says:\n%s" % (
                    expression, self.evaluate("document.body.innerText")))
            time.sleep(0.05)

    def text(self, selector):
        """As it is shown; None when it is not there."""
        return self.evaluate("document.querySelector(%s)?.innerText" % json.dumps(selector))

    def press(self, key, code=None, shift=False):
        code = code or {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, " ": 32}[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=code, modifiers=8 if shift else 0,
                      **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}))

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
