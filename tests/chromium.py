"""A headless Chromium, driven by its DevTools protocol: Debian's own, never one that a tool downloads."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import websockets

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-port=0",
)
_START_SECONDS = 60.0
_INSTALL_SECONDS = 300.0


class NoChromiumError(Exception):
    """It is neither installed nor can be."""


def program() -> str:
    """Return the path of Chromium, installed by apt if that is possible here.

    Raises:
        NoChromiumError: It is not.
    """
    lock = Path(tempfile.gettempdir()) / f"tidegate-tests-chromium.{os.geteuid()}.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if found := shutil.which("chromium"):
            return found
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise NoChromiumError("chromium is not installed, and installing it needs apt-get and root")
        _install()
    found = shutil.which("chromium")
    if found is None:
        raise NoChromiumError("apt-get installed no chromium")
    return found


def _install() -> None:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        try:
            subprocess.run(
                ["apt-get", "-q", *command],
                env=env,
                check=True,
                capture_output=True,
                timeout=_INSTALL_SECONDS,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            printed = (error.stderr or b"").decode(errors="replace").strip()
            raise NoChromiumError(f"apt-get {command[0]} failed: {printed[-300:] or error}") from error


@contextlib.contextmanager
def chromium() -> Iterator[str]:
    """Run one with a profile of its own for the block; give the address of its DevTools.

    Raises:
        NoChromiumError: There is none here, or it does not start.
    """
    command = program()
    profile = tempfile.mkdtemp(prefix="tidegate-chromium-")
    process = subprocess.Popen(
        [command, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield _address(process, Path(profile) / "DevToolsActivePort")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait(20)
        shutil.rmtree(profile, ignore_errors=True)


def _address(process: subprocess.Popen[bytes], received: Path) -> str:
    ends_at = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < ends_at:
        with contextlib.suppress(FileNotFoundError, ValueError):
            port, path = received.read_text().split("\n")
            return f"ws://127.0.0.1:{port}{path}"
        time.sleep(0.02)
    raise NoChromiumError("chromium does not start here")


class Page:
    """One page in a browser context of its own: no storage or cookies of others.

    Args:
        socket: To the browser's DevTools.
    """

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._session = ""
        self._numbers = itertools.count(1)
        self._commands: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.complaints: list[str] = []
        """Uncaught errors, and what the browser itself logged as an error."""

    async def open(self, url: str) -> None:
        """Go there and wait until it is loaded."""
        await self.send_command("Page.navigate", url=url)
        await self._loaded()

    async def reload(self) -> None:
        """Load it again, as F5 does, and wait until that is done."""
        await self.run("window.isBeforeReload = true")
        await self.send_command("Page.reload")
        await self.until("!window.isBeforeReload")
        await self._loaded()

    async def run(self, script: str) -> Any:
        """Run an expression in the page and return its value; a promise's is awaited."""
        received = await self.send_command(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in received:
            thrown = received["exceptionDetails"]
            raise AssertionError(thrown.get("exception", {}).get("description", thrown["text"]))
        return received["result"].get("value")

    async def until(self, condition: str, within: float = 30.0) -> None:
        """Return once an expression is true in the page."""
        ends_at = time.monotonic() + within
        while True:
            with contextlib.suppress(AssertionError):  # the page is being replaced
                if await self.run(f"Boolean({condition})"):
                    return
            assert time.monotonic() < ends_at, f"not within {within} s: {condition}; {self.complaints}"
            await asyncio.sleep(0.02)

    async def type(self, text: str) -> None:
        """Type into what has the focus; a line's end is the Enter key."""
        *lines, last = text.split("\n")
        for line in lines:
            await self.send_command("Input.insertText", text=line)
            for kind in ("keyDown", "keyUp"):
                enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
                await self.send_command("Input.dispatchKeyEvent", type=kind, **enter)
        if last:
            await self.send_command("Input.insertText", text=last)

    async def set_size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Give the page a size in pixels, and light or dark as the user's wish."""
        await self.send_command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send_command("Emulation.setEmulatedMedia", features=[scheme])

    async def screenshot(self, path: Path) -> None:
        """Write what it looks like, as a PNG."""
        received = await self.send_command("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(received["data"]))

    async def send_command(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command of the protocol and return its answer."""
        number = next(self._numbers)
        self._commands[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        await self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        async with asyncio.timeout(60):
            received = await self._commands[number]
        assert "error" not in received, (method, received["error"])
        return received["result"]

    async def begin(self) -> None:
        """Make the page."""
        context = await self.send_command("Target.createBrowserContext", disposeOnDetach=True)
        target = await self.send_command("Target.createTarget", url="about:blank", **context)
        self._session = (await self.send_command("Target.attachToTarget", flatten=True, **target))[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            await self.send_command(f"{domain}.enable")

    async def listen(self) -> None:
        """Take in what the browser says, until it goes."""
        async for text in self._socket:
            received = json.loads(text)
            if "id" in received:
                self._commands.pop(received["id"]).set_result(received)
            elif received["method"] == "Runtime.exceptionThrown":
                thrown = received["params"]["exceptionDetails"]
                self.complaints.append(thrown.get("exception", {}).get("description", thrown["text"]))
            elif received["method"] == "Log.entryAdded" and received["params"]["entry"]["level"] == "error":
                self.complaints.append(received["params"]["entry"]["text"])

    async def _loaded(self) -> None:
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")


@contextlib.asynccontextmanager
async def new_page(devtools: str) -> AsyncIterator[Page]:
    """Open a page for the block."""
    async with websockets.connect(devtools, proxy=None, max_size=None) as socket:
        page = Page(socket)
        listening = asyncio.create_task(page.listen(), name="chromium")
        try:
            await page.begin()
            yield page
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
