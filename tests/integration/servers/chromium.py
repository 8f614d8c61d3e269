"""A headless Chromium, driven by the DevTools protocol over a pipe."""

import base64
import json
import os
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from tests.integration.servers.process import need, running

_COMMAND = (
    "chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --remote-debugging-pipe"
)
_PATIENCE = 60.0
Scheme = Literal["light", "dark"]


class Browser:
    """One tab of a running browser."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._buffer, self._last, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "DOM", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; keep the events that come in the meantime."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._last:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def open(self, page: Path | str, before: str = "0") -> None:
        """Open a file or a URL and wait until it is loaded; `before` runs before any script of the page."""
        self.call("Page.navigate", url="about:blank")
        script = self.call("Page.addScriptToEvaluateOnNewDocument", source=before)["identifier"]
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri() if isinstance(page, Path) else page)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")
        self.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + _PATIENCE
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"{expression} is not true after {_PATIENCE} s"
            time.sleep(0.02)

    def choose(self, selector: str, files: Sequence[Path]) -> None:
        """Choose files for an input, as with the browser's own dialogue."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def drop(self, selector: str, files: Sequence[Path]) -> None:
        """Drag files, or folders, from outside and drop them on an element."""
        box = f"document.querySelector({selector!r})"
        self.evaluate(f"{box}.scrollIntoView({{block: 'center'}})")
        middle = "(({x, y, width, height}) => [x + width / 2, y + height / 2])"
        x, y = self.evaluate(f"{middle}({box}.getBoundingClientRect())")
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def press(self, key: str, times: int = 1) -> None:
        """Press a key."""
        for _ in range(times):
            for kind in ("keyDown", "keyUp"):
                self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=_KEYS[key])

    def look(self, width: int, scheme: Scheme, height: int = 900, media: str = "") -> None:
        """Set the width of the window, the colour scheme, and the medium (screen or print)."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call(
            "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )

    def screenshot(self, file: Path, height: int | None = None) -> None:
        """Write a picture of the whole page, or of its upper part."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(answer["data"]))

    def printed(self) -> bytes:
        """Return the page as it is printed, as PDF."""
        return base64.b64decode(self.call("Page.printToPDF")["data"])

    def complaints(self) -> list[str]:
        """Return what the browser has logged or thrown since the page was opened: violations of its policy, errors."""
        self.evaluate("0")
        methods = ("Log.entryAdded", "Runtime.exceptionThrown")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in methods]

    def requests(self) -> list[str]:
        """Return every URL that was requested since the page was opened."""
        self.evaluate("0")
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["request"]["url"] for event in sent]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._receive], [], [], _PATIENCE)[0], "Chromium does not answer"
            piece = os.read(self._receive, 1 << 20)
            assert piece, "Chromium has ended"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


_KEYS = {"Tab": 9, "Enter": 13}


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Run a browser whose profile is in `folder`."""
    need("bash", "chromium")
    folder.mkdir(parents=True, exist_ok=True)
    commands, send = os.pipe()
    receive, answers = os.pipe()
    for end in (commands, answers):
        os.set_inheritable(end, True)
    # Chromium reads from 3 and writes to 4. The shell puts the ends of our pipes there.
    shell = f"exec {_COMMAND} --user-data-dir={folder / 'profile'} 3<&{commands} 4>&{answers}"
    try:
        with running(["bash", "-c", shell], folder / "chromium.log", pass_fds=(commands, answers)):
            os.close(commands)
            os.close(answers)
            yield Browser(send, receive)
    finally:
        os.close(send)
        os.close(receive)
