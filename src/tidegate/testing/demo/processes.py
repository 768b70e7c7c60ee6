"""Start and stop the demo's processes, the provider and the worker, by their real commands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import httpx2

from tidegate.errors import TidegateError

_START_SECONDS = 30.0
_STOP_SECONDS = 8.0
_FIRST_SIGTERM_SECONDS = 0.5
_POLL_SECONDS = 0.05


class DemoProcess:
    """One command in its own session, so that Ctrl-C in the terminal reaches only the demo itself.

    Args:
        name: Name in messages and of the log file.
        arguments: Arguments of the Python interpreter.
        directory: Working directory and place of the log.
        env: Environment variables to add to this process's own.
    """

    def __init__(
        self, name: str, arguments: list[str], directory: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log_path = directory / f"{name}.log"
        self._arguments = arguments
        self._directory = directory
        self._env = _clean_environment() | dict(env or {})
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process id; 0 before the start."""
        return self._process.pid if self._process is not None else 0

    @property
    def has_ended(self) -> bool:
        """Whether the process has run and ended."""
        return self._process is not None and self._process.returncode is not None

    async def start(self, *, read: bool = False) -> None:
        """Start the process.

        The command's output goes to its log; with `read`, its stdout goes to `first_line`.
        """
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._arguments,
                cwd=self._directory,
                env=self._env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if read else log,
                stderr=log,
                start_new_session=True,
            )

    async def first_line(self) -> str:
        """Return the first line that the process prints.

        Raises:
            TidegateError: The process ended, or printed nothing for half a minute.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_START_SECONDS):
                line = await self._process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            raise TidegateError(f"the {self.name} did not start", fix=f"see {self.log_path}")
        return line.decode()

    async def wait_for_log(self, pattern: str) -> re.Match[str]:
        """Wait for a pattern in the log and return its first match.

        Raises:
            TidegateError: The process ended, or did not log it for half a minute.
        """
        ends_at = time.monotonic() + _START_SECONDS
        while not (found := re.search(pattern, self.log_path.read_text(errors="replace"))):
            if self.has_ended or time.monotonic() > ends_at:
                raise TidegateError(f"the {self.name} did not start", fix=f"see {self.log_path}")
            await asyncio.sleep(_POLL_SECONDS)
        return found

    def kill(self, others: Iterable[int] = ()) -> None:
        """Kill the process and the process groups of `others` with SIGKILL at the same time."""
        if self._process is None or self.has_ended:
            return
        os.kill(self.pid, signal.SIGSTOP)  # so that it does not notice that its children die
        for group in others:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        os.kill(self.pid, signal.SIGKILL)

    async def ended(self) -> None:
        """Wait until the process has ended."""
        if self._process is not None:
            await self._process.wait()

    async def stop(self) -> None:
        """Stop the process: SIGTERM twice, then SIGKILL. Safe to repeat, also before the start."""
        if self._process is None:
            return
        for number, timeout in (
            (signal.SIGTERM, _FIRST_SIGTERM_SECONDS),
            (signal.SIGTERM, _STOP_SECONDS),
            (signal.SIGKILL, _STOP_SECONDS),
        ):
            if self.has_ended:
                return
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._process.wait()


class ProviderProcess:
    """The simulated provider in its own process, and the control of its behaviour."""

    def __init__(self, directory: Path, *, latency: float, ledger_path: Path) -> None:
        arguments = ["-m", "tidegate.testing.provider", "--ledger", str(ledger_path)]
        arguments += ["--latency", f"{latency:.3f}", "--jitter", "0.4"]
        self.process = DemoProcess("provider", arguments, directory)
        self.url = ""
        """URL of its API; empty before the start."""
        self._control: httpx2.AsyncClient | None = None

    async def start(self) -> None:
        """Start the provider and read its URL.

        Raises:
            TidegateError: The provider did not start.
        """
        await self.process.start(read=True)
        self.url = json.loads(await self.process.first_line())["url"]
        self._control = httpx2.AsyncClient(base_url=self.url.removesuffix("/v1"), timeout=10)

    async def limit(self, calls_per_second: float | None) -> None:
        """Limit the calls per second from now on; None removes the limit."""
        limit = None if calls_per_second is None else max(1, round(calls_per_second * 60))
        burst = None if calls_per_second is None else max(1, round(calls_per_second))
        await self._post("settings", {"requests_per_minute": limit, "requests_burst": burst})

    async def refuse_connections(self, seconds: float) -> None:
        """Refuse connections for some seconds, from now on."""
        await self._post("outage", {"kind": "refuse", "seconds": seconds})

    async def stop(self) -> None:
        """Stop the provider. Safe to repeat."""
        control, self._control = self._control, None
        if control is not None:
            await control.aclose()
        await self.process.stop()

    async def _post(self, route: str, content: Mapping[str, Any]) -> None:
        assert self._control is not None
        (await self._control.post(f"/_sim/{route}", json=content)).raise_for_status()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def _clean_environment() -> dict[str, str]:
    """Return this process's environment without Tidegate's variables, which are for other queues."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    if "PYTHONPATH" in env:  # the processes run in another directory
        parts = env["PYTHONPATH"].split(os.pathsep)
        env["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in parts if part)  # noqa: PTH100
    return env
