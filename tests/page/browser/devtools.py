"""A headless Chromium, driven over the DevTools protocol by a pair of pipes: no library and no port."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from remuda.tests.patience import HANG_S

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = "needs a Chromium: apt-get install --no-install-recommends chromium"
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--mute-audio",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--window-size=1280,900",
)
_CONTROL = 2
_KEYS = {"Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, ""), "Tab": ("Tab", 9, "")} | {
    name: (name, code, "") for name, code in (("ArrowLeft", 37), ("ArrowUp", 38), ("ArrowRight", 39), ("ArrowDown", 40))
}


def found() -> str | None:
    """Where a Chromium is installed; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class BrowserError(Exception):
    """The browser answered with an error, or the page's script threw one."""


class Browser:
    """A Chromium with a profile of its own; a context manager."""

    def __init__(self, profile: Path, *, niceness: int = 0) -> None:
        """`niceness`: how far its processes stand behind others; without the right to change that themselves."""
        program = found()
        assert program is not None, MISSING
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        flags = [*_FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        # Chromium reads from descriptor 3 and writes to 4; bash gives it these.
        behind = f"nice -n {niceness} " if niceness else ""
        if niceness and os.geteuid() == 0:
            behind = f"setpriv --bounding-set -sys_nice {behind}"
        start = f'exec {behind}"$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", start, program, *flags, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest = b""
        self._next = 0
        self.events: list[dict[str, Any]] = []
        """Those that no page has taken yet."""

    def __enter__(self) -> Browser:
        try:
            self.call("Browser.getVersion")  # once it answers, all processes of its start are there
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill it."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=HANG_S)
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, session: str | None = None, **parameters: object) -> dict[str, Any]:
        """Ask for something and return the answer. Raises BrowserError."""
        self._next += 1
        asked = {"id": self._next, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        deadline_s = time.monotonic() + HANG_S
        while True:
            message = self._message(deadline_s)
            assert message is not None, f"no answer to {method}"
            if message.get("id") != self._next:
                self.events.append(message)
            elif "error" in message:
                raise BrowserError(f"{method}: {message['error']['message']}")
            else:
                result: dict[str, Any] = message["result"]
                return result

    def listen(self) -> None:
        """Take what has come in the meantime."""
        while (message := self._message(time.monotonic())) is not None:
            self.events.append(message)

    def _message(self, deadline_s: float) -> dict[str, Any] | None:
        """The next message; None if none came until then."""
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], max(deadline_s - time.monotonic(), 0.0))[0]:
                return None
            piece = os.read(self._from, 1 << 20)
            if not piece:
                raise BrowserError(f"Chromium has ended with code {self._process.wait()}")
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def page(self) -> Page:
        """A new tab with a storage of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, context, session)


class Page:
    """One tab."""

    def __init__(self, browser: Browser, context: str, session: str) -> None:
        self._browser = browser
        self._context = context
        self._session = session
        self._open: dict[str, str] = {}
        self.requested: list[str] = []
        """The addresses of all requests."""
        self.wrong: list[str] = []
        """Errors on the console: exceptions, what the policy for content refused, missing files. Not refused
        requests for data, what nobody answered, and what a test blocks, which are the affair of the page."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.size(1280, 900)

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Ask this tab for something."""
        return self._browser.call(method, self._session, **parameters)

    def close(self) -> None:
        """Close the tab and forget what it has stored."""
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)

    def listen(self) -> None:
        """Bring `requested` and `wrong` up to date."""
        self._browser.listen()
        events, self._browser.events = self._browser.events, []
        for event in events:
            if event.get("sessionId") != self._session:
                self._browser.events.append(event)
                continue
            what: Mapping[str, Any] = event["params"]
            match event["method"]:
                case "Network.requestWillBeSent":
                    self.requested.append(what["request"]["url"])
                    self._open[what["requestId"]] = what["request"]["url"]
                case "Network.loadingFinished" | "Network.loadingFailed":
                    self._open.pop(what["requestId"], None)
                case "Runtime.exceptionThrown":
                    details = what["exceptionDetails"]
                    self.wrong.append(details.get("exception", {}).get("description", details["text"]))
                case "Log.entryAdded" if what["entry"]["level"] == "error":
                    text = f"{what['entry']['text']} {what['entry'].get('url', '')}"
                    if not any(part in text for part in ("/api/", "net::ERR_CONNECTION", "net::ERR_BLOCKED")):
                        self.wrong.append(text)
                case _:
                    pass

    def streams(self) -> list[str]:
        """The addresses of the streams of events that are open now."""
        self.listen()
        return [address for address in self._open.values() if "/api/events" in address]

    def open(self, address: str) -> None:
        """Load a page as a new one, also if only its fragment differs from the present one."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)

    def js(self, expression: str) -> Any:
        """The value of an expression in the page, once it is there. Raises BrowserError."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def until(self, expression: str, what: str = "") -> Any:
        """Wait until the expression is true in the page; an exception in it counts as not yet."""
        end_s = time.monotonic() + HANG_S
        while True:
            with suppress(BrowserError):  # an element is true, but has no value that could be sent
                if value := self.js(f"Promise.resolve({expression}).then((one) => one instanceof Node || one)"):
                    return value
            if time.monotonic() > end_s:
                self.listen()
                raise AssertionError(f"waited for: {what or expression}\n{self.text()}\n{self.wrong}")
            time.sleep(0.03)

    def until_text(self, *texts: str, within: str = "body") -> str:
        """Wait until each of these texts is shown; returns all the text."""
        for text in texts:
            self.until(f"document.querySelector({json.dumps(within)}).innerText.includes({json.dumps(text)})", text)
        return self.text(within)

    def text(self, selector: str = "body") -> str:
        """What is shown there."""
        return str(self.js(f"document.querySelector({json.dumps(selector)}).innerText"))

    def find(self, selector: str, text: str = "") -> tuple[float, float]:
        """The middle of the first visible element with this selector and text, scrolled into view; waits for it."""
        found = self.until(
            f"""(() => {{
              const all = [...document.querySelectorAll({json.dumps(selector)})];
              const one = all.find((each) => each.checkVisibility() && each.textContent.includes({json.dumps(text)}));
              if (!one) return null;
              one.scrollIntoView({{block: "center"}});
              const {{x, y, width, height}} = one.getBoundingClientRect();
              return [x + width / 2, y + height / 2];
            }})()""",
            f"{selector} with {text!r}",
        )
        return found[0], found[1]

    def click(self, selector: str, text: str = "") -> None:
        """Click as a mouse does."""
        x, y = self.find(selector, text)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a select by its value."""
        self.until(f"document.querySelector({json.dumps(selector)}).querySelector('option[value={json.dumps(value)}]')")
        change = f"one.value = {json.dumps(value)}, one.dispatchEvent(new Event('change'))"
        self.js(f"((one) => ({change}))(document.querySelector({json.dumps(selector)}))")

    def press(self, *keys: str) -> None:
        """Press keys one after another, as a keyboard does; `Control+Enter` is one."""
        for held in keys:
            key = held.removeprefix("Control+")
            name, code, text = _KEYS.get(key, (key, ord(key.upper()), key) if len(key) == 1 else (key, 0, ""))
            told = {"key": name, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
            told |= {"modifiers": 0 if key == held else _CONTROL}
            self.call("Input.dispatchKeyEvent", type="keyDown", **told)
            self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def type(self, selector: str, text: str) -> None:
        """Replace what is in a field."""
        self.find(selector)
        field = f"document.querySelector({json.dumps(selector)})"
        self.js(f"((field) => (field.focus(), field.select?.(), 1))({field})")
        self.insert(text)

    def insert(self, text: str) -> None:
        """Type into the field that has the focus."""
        self.call("Input.insertText", text=text)

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        """Show the page at this size, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def scheme(self, name: str) -> None:
        """Prefer `light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is shown, or the whole page, to a PNG file."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))
