"""A page in headless Chromium, controlled over the DevTools protocol."""

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

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
TIMEOUT = 180.0  # seconds; only for what hangs: a busy machine must not fail a test
PHONE_WIDTH = 500  # narrower windows are emulated as phones


def find_browser() -> str | None:
    """Return the path of the browser, or None if none is installed."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Tab:
    """One page. `errors` collects its exceptions, and the errors and warnings that it logs."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(address, timeout=TIMEOUT, suppress_origin=True)
        self._number = 0
        self.errors: list[str] = []
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._socket.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol and return its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                return dict(message["result"])
            self._record_error(message.get("method"), message.get("params"))

    def _record_error(self, event: str, details: Any) -> None:
        if event == "Runtime.exceptionThrown":
            self.errors.append(details["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif event == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
            self.errors.append(str([one.get("value") for one in details["args"]]))
        elif event == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{details['entry']['text']} {details['entry'].get('url', '')}")

    def open(self, url: str, width: int) -> None:
        """Load a page in a window of the given width."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
            mobile=width < PHONE_WIDTH,
        )  # fmt: skip
        self.call("Page.navigate", url=url)
        self.until(f"location.href.startsWith({url!r}) && document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """Evaluate an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, (expression, found)
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        return str(self.value(f"document.querySelector({selector!r}).textContent"))

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + TIMEOUT
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < deadline, (expression, self.errors)
            time.sleep(0.05)

    def click(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """Click on an element, at these fractions of its width and height."""
        box, before = self._box(selector), None
        deadline = time.monotonic() + TIMEOUT
        while box != before:  # the page may be scrolling
            assert time.monotonic() < deadline, f"{selector} keeps moving"
            time.sleep(0.1)
            box, before = self._box(selector), box
        at = {"x": box["x"] + across * box["width"], "y": box["y"] + down * box["height"]}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def _box(self, selector: str) -> Any:
        self.value(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
        return self.value(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")

    def press(self, key: str) -> None:
        """Press and release a key."""
        code = {"Enter": 13, "ArrowLeft": 37, "Tab": 9}[key]
        more = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    def fill(self, selector: str, text: str) -> None:
        """Enter a value into a field, as typing and leaving it would."""
        events = ", ".join(
            f"element.dispatchEvent(new Event('{kind}', {{bubbles: true}}))" for kind in ("input", "change")
        )
        self.value(f"element = document.querySelector({selector!r}), element.value = {text!r}, {events}, 0")


@contextmanager
def open_tab(folder: Path) -> Iterator[Tab]:
    """Start a browser with one tab; end both when the context is left."""
    program = find_browser()
    assert program is not None
    options = (
        "--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}", "--no-first-run", "--no-sandbox",
        "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-extensions",
        "--disable-component-update", "--disable-sync",
    )  # fmt: skip
    # A new session, so that helper processes can be ended with the browser. The sandbox needs rights that containers do
    # not have; only local pages are opened.
    process = subprocess.Popen(
        [program, *options, "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port = _debugging_port(folder, process)
        with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=TIMEOUT) as response:
            (address,) = (one["webSocketDebuggerUrl"] for one in json.load(response) if one["type"] == "page")
        tab = Tab(address)
        try:
            yield tab
        finally:
            tab.close()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(TIMEOUT)


def _debugging_port(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the port that the browser has chosen."""
    file, deadline = folder / "DevToolsActivePort", time.monotonic() + TIMEOUT
    while not (file.exists() and (lines := file.read_text().split())):
        assert process.poll() is None, "the browser has ended"
        assert time.monotonic() < deadline, "the browser does not answer"
        time.sleep(0.05)
    return lines[0]
