"""A real Chromium, driven over its debugging pipe: no package is needed for it."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from waiting import wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


class Tab:
    """One page of the browser, at a width and in a colour scheme."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number, self._rest, self._session = 0, b"", None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            received = os.read(self._from, 1 << 20)
            assert received, "the browser has gone"
            self._rest += received
        message, self._rest = self._rest.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer

    def look(self, width: int, *, dark: bool = False, height: int = 900) -> None:
        small = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=small)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, file: Path) -> None:
        """Open a file, and return when its script said that it is ready and it was drawn."""
        self.call("Page.navigate", url="about:blank")  # or the page before would be found ready
        wait_until(lambda: self.run("location.href") == "about:blank")
        before = len(self.complaints)
        self.call("Page.navigate", url=file.resolve().as_uri())
        wait_until(lambda: self._is_ready() or self.complaints[before:])
        assert self._is_ready(), self.complaints[before:]
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def _is_ready(self) -> bool:
        return bool(self.run("document.documentElement?.dataset.ready") == "yes")

    def counts(self) -> dict[str, float]:
        """What Chromium counts of the page, such as how often it laid it out."""
        self.call("Performance.enable")
        return {each["name"]: each["value"] for each in self.call("Performance.getMetrics")["metrics"]}

    def run(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            code = {"Enter": 13, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38}.get(key, 0)
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **typed)

    def picture(self, file: Path) -> None:
        """What is in the window now."""
        taken = self.call("Page.captureScreenshot")
        file.write_bytes(base64.b64decode(taken["data"]))

    @property
    def complaints(self) -> list[str]:
        """What the page threw, and what its policy stopped."""
        self.run("1")
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in kinds]

    @property
    def requests(self) -> list[str]:
        """Addresses that were asked for, without those inside the page."""
        sent = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [address for address in sent if not address.startswith("data:")]


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """A fresh browser with its profile in `folder`."""
    (theirs_in, to_browser), (from_browser, theirs_out) = os.pipe(), os.pipe()
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
    flags += [f"--user-data-dir={folder / 'profile'}", "--no-first-run", "--disable-background-networking"]
    redirect = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    process = subprocess.Popen(
        ["bash", "-c", redirect, str(CHROMIUM), *flags, "about:blank"],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Tab(to_browser, from_browser)
    finally:
        os.close(to_browser)
        os.close(from_browser)
        process.terminate()
        process.wait()
