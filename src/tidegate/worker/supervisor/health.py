"""Health checks of running services. Each service has a Unix socket, and all sockets are in one directory.

A client that connects receives one JSON object, sent by the service's own event loop. So an answer proves
that the loop runs. A service that does not answer hangs. A service that refuses the connection is dead, and
its socket is removed later.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import socket
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

log = logging.getLogger("tidegate.supervisor")

STALE_SOCKET_SECONDS = 60.0
"""A dead socket is removed at this age. A younger one may belong to a service that is starting."""

RECREATE_SECONDS = 10.0
"""Shortest time between two attempts to create the socket again."""

_LONGEST_ADDRESS = 100
_OPEN_FILES = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class Health:
    """The health of one service."""

    kind: str
    """`worker` or `scheduler`."""
    name: str
    pid: int
    database_url: str
    version: str
    status: str
    """What the service does now, in one line."""
    problems: list[str] = field(default_factory=list)
    """Why the service is not ready; empty if it is ready."""
    crash_loops: list[str] = field(default_factory=list)
    """One sentence for each pool with a crash loop."""


def run_directory() -> Path:
    """Return the directory of the sockets: `TIDEGATE_RUN`, else a temporary directory of this user."""
    given = os.environ.get("TIDEGATE_RUN")
    return Path(given) if given else Path(tempfile.gettempdir()) / f"tidegate-run-{os.getuid()}"


class HealthSocket:
    """Answers health checks for one service, from `open` to `close`.

    Args:
        kind: `worker` or `scheduler`.
        name: The service's name.
        get_health: Returns the current health.
    """

    def __init__(self, kind: str, name: str, get_health: Callable[[], Health]) -> None:
        self._get_health = get_health
        self._path = run_directory() / f"{_file_stem(kind, name)}-{uuid.uuid4().hex[:8]}.sock"
        self._server: asyncio.Server | None = None
        self._opened_at = 0.0

    async def open(self) -> None:
        """Start to answer. If the socket cannot be created, log a warning; the service works without it."""
        self._opened_at = time.monotonic()
        temporary = self._path.with_suffix(".new")
        try:
            _make_private(self._path.parent)
            _remove_dead_sockets(self._path.parent)
            with _short_address(temporary) as path:
                self._server = await asyncio.start_unix_server(self._send_health, path)
            temporary.rename(self._path)  # from now on clients find the socket and can connect
        except OSError as error:
            log.warning("`tidegate … health` cannot check this process: %s: %s", self._path, error)
            await self.close()

    async def recreate_if_removed(self) -> None:
        """Create the socket again if it was removed, for example by a cleaner of temporary directories.

        If it could not be created, try again after `RECREATE_SECONDS`.
        """
        if self._exists() or time.monotonic() - self._opened_at < RECREATE_SECONDS:
            return
        if self._server is not None:
            log.warning("the socket for `tidegate … health` was removed; it is created again: %s", self._path)
        await self.close()
        await self.open()

    def _exists(self) -> bool:
        return self._server is not None and os.path.lexists(self._path)

    async def close(self) -> None:
        """Stop answering and remove the socket. Safe to repeat."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for path in (self._path, self._path.with_suffix(".new")):
            with contextlib.suppress(OSError):
                path.unlink()

    async def _send_health(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(json.dumps(asdict(self._get_health())).encode())
            await writer.drain()
        writer.close()


def query_health(kind: str, name: str | None, timeout_seconds: float) -> list[Health | None]:
    """Return the health of each service of this machine and user; None for a service that hangs.

    Args:
        kind: `worker` or `scheduler`.
        name: Only services of this name; None: all of the kind.
        timeout_seconds: How many seconds each service may take to respond.
    """
    answers = []
    for path in _sockets(run_directory(), f"{kind}-*" if name is None else f"{_file_stem(kind, name)}-*"):
        with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):  # the service is dead
            answers.append(_query_one(path, timeout_seconds))
    return answers


def _query_one(path: Path, timeout_seconds: float) -> Health | None:
    until = time.monotonic() + timeout_seconds
    received = b""
    with socket.socket(socket.AF_UNIX) as end, _short_address(path) as address:
        try:
            end.settimeout(timeout_seconds)
            end.connect(address)
            while part := end.recv(65_536):
                received += part
                end.settimeout(max(0.001, until - time.monotonic()))
            return Health(**json.loads(received))
        except (TimeoutError, ValueError, TypeError, ConnectionResetError):
            return None


def _file_stem(kind: str, name: str) -> str:
    """Return the start of the socket's file name. The service's name is hashed because it may be any text."""
    return f"{kind}-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:8]}"


@contextlib.contextmanager
def _short_address(path: Path) -> Iterator[str]:
    """Yield an address for the socket: addresses are limited to 107 bytes, paths may be longer (Linux)."""
    if len(os.fsencode(path)) < _LONGEST_ADDRESS or not _OPEN_FILES.is_dir():
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"{_OPEN_FILES}/{directory}/{path.name}"
    finally:
        os.close(directory)


def _sockets(directory: Path, pattern: str) -> Iterator[Path]:
    yield from sorted(directory.glob(f"{pattern}.sock"))


def _make_private(directory: Path) -> None:
    """Create the directory; refuse one that other users can write to.

    Raises:
        OSError: The directory cannot be created, or other users can write to it.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & stat.S_IWOTH:
        raise PermissionError("it is not a directory that only this user can write to")


def _remove_dead_sockets(directory: Path) -> None:
    """Remove the sockets of dead services."""
    for path in _sockets(directory, "*"):
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX) as end,
            _short_address(path) as address,
        ):
            if time.time() - path.stat().st_mtime < STALE_SOCKET_SECONDS:
                continue
            end.setblocking(False)
            try:
                end.connect(address)
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
