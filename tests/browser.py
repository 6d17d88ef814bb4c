"""A real Chromium, driven through its debugging pipe: what a page logs, loads and shows, and how it answers."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from contextlib import contextmanager, suppress

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--disable-default-apps", "--mute-audio", "--hide-scrollbars", "--remote-debugging-pipe", "about:blank",
)  # fmt: skip


class Browser:
    """One tab. `console` is everything that went wrong or was logged, `requests` every address that was asked for."""

    def __init__(self, process, to_browser, from_browser):
        self._process, self._to, self._from = process, to_browser, from_browser
        self._number, self._buffer, self._answers = 0, b"", {}
        self.console, self.requests = [], []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = None
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def _call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        number = self._number
        self._pump(lambda: number in self._answers, 120)
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _pump(self, done, seconds):
        end = time.monotonic() + seconds
        while not done():
            left = end - time.monotonic()
            assert left > 0, "the browser does not answer"
            ready, _, _ = select.select([self._from], [], [], left)
            if ready:
                raw = os.read(self._from, 1 << 20)
                assert raw, "the browser has ended"
                *whole, self._buffer = (self._buffer + raw).split(b"\0")
                for each in whole:
                    self._took(json.loads(each))

    def _took(self, message):
        if "id" in message:
            self._answers[message["id"]] = message
            return
        name, facts = message["method"], message["params"]
        if name == "Runtime.exceptionThrown":
            details = facts["exceptionDetails"]
            self.console.append(details.get("exception", {}).get("description") or details["text"])
        elif name == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(each.get("value", each.get("description"))) for each in facts["args"]))
        elif name == "Log.entryAdded":
            self.console.append(f"{facts['entry']['level']}: {facts['entry']['text']} {facts['entry'].get('url', '')}")
        elif name == "Network.requestWillBeSent":
            self.requests.append(facts["request"]["url"])

    def size(self, width, height, dark=False, media=""):
        """The window, the theme that the user prefers, and the medium: "print" lays out as for paper."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=media, features=[theme])

    def scripts(self, on):
        """Whether pages may run scripts, from the next visit on."""
        self._call("Emulation.setScriptExecutionDisabled", value=not on)

    def visit(self, url):
        found = self._call("Page.navigate", url=url)
        assert "errorText" not in found, f"{url}: {found['errorText']}"
        there = f"location.href.startsWith({json.dumps(url.partition('?')[0])})"
        self.wait(f"document.documentElement && document.readyState === 'complete' && {there}")

    def run(self, script):
        """The value of an expression in the page."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script, seconds=60.0):
        """Until an expression is true; returns its value, true for a part of the page."""
        end = time.monotonic() + seconds
        whole = f"(() => {{ const found = ({script}); return found instanceof Node ? true : found; }})()"
        while not (found := self.run(whole)):
            assert time.monotonic() < end, f"never true: {script}; console: {self.console}"
            time.sleep(0.1)
        return found

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def click(self, selector):
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def select(self, selector, value):
        """Choose in a list, as a person would."""
        self.run(f"""(() => {{ const node = document.querySelector({json.dumps(selector)});
          node.value = {json.dumps(value)}; node.dispatchEvent(new Event("change")); }})()""")

    def hover(self, selector, x=0.5, y=0.5):
        """Move the pointer over a part of the page, at a share of its width and height."""
        script = f"""(() => {{ const node = document.querySelector({json.dumps(selector)});
          node.scrollIntoView({{block: "center"}}); const box = node.getBoundingClientRect();
          return [box.left, box.top, box.width, box.height]; }})()"""
        left, top, width, height = self.run(script)
        where = {"x": left + x * width, "y": top + y * height}
        self._call("Input.dispatchMouseEvent", type="mouseMoved", **where)
        return where

    def press(self, key, code=0):
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path, whole=True):
        found = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        if whole:
            height = self.run("document.documentElement.scrollHeight")
            width = self.run("innerWidth")
            clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
            found = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browsing(profile):
    """A browser with a profile of its own; it is gone when the block ends."""
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    # Chromium reads commands from descriptor 3 and writes answers to 4.
    shell = f'exec 3</dev/fd/{theirs_in} 4>/dev/fd/{theirs_out}; exec "$@"'
    command = ["sh", "-c", shell, "sh", CHROMIUM, *FLAGS[:-1], f"--user-data-dir={profile}", FLAGS[-1]]
    process = subprocess.Popen(
        command, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(process, ours_out, ours_in)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
        os.close(ours_in)
        os.close(ours_out)
