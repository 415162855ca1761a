"""Chromium without a window, spoken to through two pipes: no driver, no port and no network.

It is started with `--remote-debugging-pipe`: messages are JSON, each followed by a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROGRAM = next((path for name in NAMES if (path := shutil.which(name))), "")
"""Empty if there is no browser."""

LIMIT_S = 60.0


class Browser:
    """A browser with one tab."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._received = b""
        self._number = 0
        self._session = ""
        self.complaints: list[str] = []
        """What the page wrote to the console, errors of scripts, and what its policy refused."""

    def attach(self) -> None:
        """Make the tab, and listen to what it complains about."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def open(self, path: Path) -> None:
        """Show a file, and wait until it is loaded."""
        self.call("Page.navigate", url=path.as_uri())
        self._until(lambda message: message.get("method") == "Page.loadEventFired")

    def look(self, width: int, height: int = 900, scheme: str = "light") -> None:
        """Take a width in pixels, and the light or the dark colours."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def run(self, script: str) -> Any:
        """The value of a script in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Save the page as a PNG: all of it, or what is seen without scrolling."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def paper(self, path: Path, width_in: float, height_in: float) -> None:
        """Print the page as a PDF."""
        sheet = {"paperWidth": width_in, "paperHeight": height_in, "preferCSSPageSize": False}
        printed = self.call("Page.printToPDF", printBackground=True, **sheet)
        path.write_bytes(base64.b64decode(printed["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol, and wait for its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda reply: reply.get("id") == self._number)
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def _until(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end_s = time.monotonic() + LIMIT_S
        while True:
            message = self._next(end_s)
            self._listen(message)
            if is_wanted(message):
                return message

    def _next(self, end_s: float) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._read], [], [], max(0, end_s - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has ended"
            self._received += part
        message, _, self._received = self._received.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _listen(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        if message.get("method") == "Runtime.consoleAPICalled":
            self.complaints.append(str(parameters["args"]))
        if message.get("method") == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start a browser, and end it."""
    to_read, from_browser = os.pipe()
    to_browser, to_write = os.pipe()
    home = tempfile.mkdtemp(prefix="mgpubench-browser-")
    # The protocol is spoken on descriptors 3 and 4.
    shell = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
    options = [
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--remote-debugging-pipe", f"--user-data-dir={home}"),
    ]
    process = subprocess.Popen(
        ["bash", "-c", shell, PROGRAM, *options, "about:blank"],
        pass_fds=(to_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    browser = Browser(to_read, to_write)
    try:
        browser.attach()
        yield browser
    finally:
        process.terminate()
        process.wait(30)
        os.close(to_read)
        os.close(to_write)
        shutil.rmtree(home, ignore_errors=True)
