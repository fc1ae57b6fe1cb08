"""A headless Chromium driven over its debugging pipe: enough to open a page, measure it, and print it."""

import base64
import fcntl
import json
import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
DESKTOP = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}


def find():
    """Path of a browser, None where there is none. VRGD_BROWSER names another."""
    return os.environ.get("VRGD_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


def _pipe():
    """Both ends of a pipe, clear of the descriptors 3 and 4 that the browser wants."""
    low = os.pipe()
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low]
    for end in low:
        os.close(end)
    return ends


class Browser:
    """One browser with one tab. Messages are JSON ended by a zero byte: ours on its descriptor 3, its on 4."""

    def __init__(self, folder):
        (theirs_in, self._out), (self._in, theirs_out) = _pipe(), _pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        command = [find(), *flags, "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        # A shell can place descriptors; "$@" keeps the arguments apart.
        script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out} {theirs_in}<&- {theirs_out}>&-'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._next, self._session, self.events = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method, **parameters):
        """Send a command and return its result; what happens meanwhile is kept in `events`."""
        self._next += 1
        message = {"id": self._next, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._next:
            self.events.append(answer)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def open(self, path, screen=DESKTOP, media="", dark=False):
        """Load a file on a screen, and return once it has loaded."""
        self.events = []
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def evaluate(self, expression):
        """Value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self):
        """What the console, the page or the network said is wrong."""
        texts = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                texts.append(parameters["entry"]["text"])
            if method in ("Runtime.exceptionThrown", "Network.loadingFailed"):
                texts.append(json.dumps(parameters))
            if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                texts.append(json.dumps(parameters["args"]))
        return texts

    def requests(self):
        """Every address the page asked for."""
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent]

    def screenshot(self):
        """The whole page as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def pdf(self):
        """The page as it is printed on A4."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
        return base64.b64decode(self.call("Page.printToPDF", **paper)["data"])

    def _read(self):
        while b"\0" not in self._buffer:
            part = os.read(self._in, 1 << 16)
            assert part, "the browser has gone"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)
