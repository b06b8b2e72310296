"""A headless Chromium on the end of a pipe: just enough of its DevTools protocol to open a page, click and look."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")


class Chromium:
    """One browser with one page. What the page logs, throws or requests is kept."""

    def __init__(self, profile: Path) -> None:
        binary = next((found for name in NAMES if (found := shutil.which(name))), None)
        assert binary is not None, "no chromium: `make test-browser` installs it"
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # away from 3 and 4 first, since these are the numbers chromium expects
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (to_read, to_write)]

        def place() -> None:
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            "--no-first-run",
        ]
        self._process = subprocess.Popen(
            [binary, *flags, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=place,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (to_read, to_write, *high):
            os.close(fd)
        self._number, self._buffer, self._session = 0, b"", ""
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(10)
        os.close(self._write)
        os.close(self._read)

    def open(self, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load a file and wait until its script is through."""
        self.errors.clear()
        self.requests.clear()
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.body && document.body.dataset.ready === 'yes'")

    def run(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float = 30.0) -> None:
        """Until the expression is true."""
        until = time.monotonic() + seconds
        while not self.run(expression):
            assert time.monotonic() < until, f"never true: {expression}"
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        """Press the mouse on the middle of an element."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
            " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        height = self.run("document.documentElement.scrollHeight")
        width = self.run("window.innerWidth")
        shot = self.send(
            "Page.captureScreenshot",
            captureBeyondViewport=True,
            clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1},
        )
        path.write_bytes(base64.b64decode(shot["data"]))

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found["error"]
                result: dict[str, Any] = found["result"]
                return result

    def _next(self, seconds: float = 60.0) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._read], [], [], seconds)[0], "chromium does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, "chromium ended"
            self._buffer += data
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(raw)
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"].get("exception", {}).get("description", params)))
        if message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        if message.get("method") == "Page.javascriptDialogOpening":
            self.errors.append(f"dialog: {params.get('message')}")
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        return message
