"""A page in headless Chromium, driven by its own protocol over a pipe: no library, no port.

https://chromedevtools.github.io/devtools-protocol/, with ``--remote-debugging-pipe``: messages of
JSON, each ended by a zero byte, which Chromium reads from descriptor 3 and writes to 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import HANGS_SECONDS, wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--hide-scrollbars", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-dev-shm-usage", "--no-proxy-server"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no other machine is asked
]


class Browser:
    """A running Chromium."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        wrapped = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        words = [*FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(
            ["bash", "-c", wrapped, CHROMIUM, *words],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._unread, self._number = b"", 0

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method, wait for its result and return it; events in the meantime are ignored."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            readable, _, _ = select.select([self._in], [], [], HANGS_SECONDS)
            assert readable, "Chromium does not answer"
            more = os.read(self._in, 1 << 20)
            assert more, "Chromium has ended"
            self._unread += more
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))

    def open(self, address: str, width: int = 1280, height: int = 1000) -> Tab:
        """Open a page with cookies and storage of its own, as another person would."""
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)
        attached = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = Tab(self, attached["sessionId"])
        tab.resize(width, height)
        keep_all = "performance.setResourceTimingBufferSize(5000)"  # what a page asks for
        tab.ask("Page.addScriptToEvaluateOnNewDocument", source=keep_all)
        tab.ask("Page.navigate", url=address)
        return tab

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._out)
        os.close(self._in)


class Tab:
    """A page, each of whose methods waits for its result."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **parameters)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)

    def run(self, script: str) -> Any:
        """Return the value of an expression of JavaScript."""
        asked = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.ask("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str) -> Any:
        """Wait until an expression of JavaScript is true; return its value."""
        return wait_until(lambda: self.run(script), every=0.1)

    def requests(self, part: str) -> int:
        """Count the answered requests of the page whose addresses contain a text."""
        named = f"entry => entry.name.includes({json.dumps(part)})"
        return int(self.run(f"performance.getEntriesByType('resource').filter({named}).length"))

    def press(self, key: str, code: int, **more: Any) -> None:
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, **more}
            self.ask("Input.dispatchKeyEvent", **event)

    def type(self, text: str) -> None:
        """Type a text into the element that has the focus."""
        self.ask("Input.insertText", text=text)

    def accessible(self) -> list[tuple[str, str]]:
        """Return (role, name) of each element that a screen reader reads."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        told = [node for node in nodes if not node["ignored"]]
        return [(_value(node, "role"), _value(node, "name")) for node in told]

    def picture(self, file: Path) -> None:
        """Write a PNG of the whole page."""
        made = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(made["data"]))


def _value(node: dict[str, Any], name: str) -> str:
    return str(node.get(name, {}).get("value", ""))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Yield a running Chromium with a profile in a folder."""
    started = Browser(folder / "profile")
    try:
        yield started
    finally:
        started.close()
