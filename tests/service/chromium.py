"""A page in a real browser, driven over Chromium's DevTools protocol."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
LONGEST = 30.0  # seconds, for what is waited for


def binary() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """One page. What it logs as an error, and what it throws, is in `errors`."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(address, timeout=LONGEST, suppress_origin=True)
        self._number = 0
        self.errors: list[str] = []
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._socket.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            said = json.loads(self._socket.recv())
            if said.get("id") == self._number:
                assert "error" not in said, (method, said["error"])
                return dict(said["result"])
            self._note(said.get("method"), said.get("params"))

    def _note(self, method: str, said: Any) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(said["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.errors.append(str([one.get("value") for one in said["args"]]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")

    def open(self, url: str, width: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Page.navigate", url=url)
        self.until(f"location.href.startsWith({url!r}) && document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """What an expression is in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, (expression, found)
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        return str(self.value(f"document.querySelector({selector!r}).textContent"))

    def until(self, expression: str, seconds: float = LONGEST) -> None:
        """Wait until it is true."""
        deadline = time.monotonic() + seconds
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < deadline, (expression, self.errors)
            time.sleep(0.05)

    def click(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """A press of the mouse on an element, at so much of its width and height."""
        box, before = self._box(selector), None
        deadline = time.monotonic() + LONGEST
        while box != before:  # the page may be scrolling by itself
            assert time.monotonic() < deadline, f"{selector} does not stand still"
            time.sleep(0.1)
            box, before = self._box(selector), box
        at = {"x": box["x"] + across * box["width"], "y": box["y"] + down * box["height"]}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def _box(self, selector: str) -> Any:
        self.value(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
        return self.value(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")

    def press(self, key: str) -> None:
        code = {"Enter": 13, "ArrowLeft": 37, "Tab": 9}[key]
        more = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)


@contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """A browser of our own, with one tab; both are gone afterwards."""
    program = binary()
    assert program is not None
    options = (
        "--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}", "--no-first-run", "--no-sandbox",
        "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-extensions",
    )  # fmt: skip
    # A session of its own, so that its helper processes can be ended with it. The sandbox needs rights that containers
    # do not have, and the only page is ours.
    process = subprocess.Popen(
        [program, *options, "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port = _port(folder, process)
        with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=LONGEST) as answer:
            (address,) = (one["webSocketDebuggerUrl"] for one in json.load(answer) if one["type"] == "page")
        page = Tab(address)
        try:
            yield page
        finally:
            page.close()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(LONGEST)


def _port(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """The port that the browser has chosen."""
    said, deadline = folder / "DevToolsActivePort", time.monotonic() + LONGEST
    while not (said.exists() and (lines := said.read_text().split())):
        assert process.poll() is None, "the browser ended at once"
        assert time.monotonic() < deadline, "the browser does not answer"
        time.sleep(0.05)
    return lines[0]
