"""The stores: a PostgreSQL and a Redis of our own, on free ports of loopback, gone when the run is over.

PostgreSQL has what `initdb` gives it: fsync, full_page_writes and synchronous_commit on. It never runs as
root. Redis keeps an append-only file, synced each second.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.processes import fresh_directory, wait_until

USER = "bench"
_UNPRIVILEGED = ("postgres", "nobody")
_DEBIAN = Path("/usr/lib/postgresql")


class NotInstalledError(Exception):
    """A program that a store needs is not installed."""


class PeerStore(Protocol):
    """Where queues live: it gives each round a fresh place."""

    pid: int | None
    """Of the server; None if there is none."""
    version: str

    def fresh(self, template: str = "") -> Any:
        """Give the URL of an empty place, or of a copy of a kept one, for a block."""
        ...


@dataclass(slots=True)
class Sqlite:
    """A directory a place; no server."""

    pid: int | None = None
    version: str = ""

    @contextmanager
    def fresh(self, template: str = "") -> Iterator[str]:
        """Give an empty directory."""
        with fresh_directory() as directory:
            yield str(directory)


@dataclass(slots=True)
class Redis:
    """One server, emptied for each place."""

    pid: int | None
    version: str
    port: int

    @contextmanager
    def fresh(self, template: str = "") -> Iterator[str]:
        """Give the server, emptied."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            assert connection.recv(16).startswith(b"+OK")
        yield f"redis://127.0.0.1:{self.port}/0"


@dataclass(slots=True)
class PostgreSQL:
    """One server, a database a place; made ones can be kept and copied."""

    pid: int | None
    version: str
    port: int
    kept: set[str] = field(default_factory=set)

    def url(self, database: str) -> str:
        """Return a database's URL, over TCP as in most installations."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def execute(self, sql: str, database: str = "postgres") -> None:
        """Run statements, in one transaction if several."""
        asyncio.run(_execute(self.url(database), sql))

    @contextmanager
    def fresh(self, template: str = "") -> Iterator[str]:
        """Give a database for a block: empty, or a copy of what `keep` made."""
        self.execute("DROP DATABASE IF EXISTS round WITH (FORCE)")
        self.execute(f"CREATE DATABASE round TEMPLATE {template or 'template0'} STRATEGY file_copy")
        self.execute("CHECKPOINT")  # the copy's pages are not this round's to write
        try:
            yield self.url("round")
        finally:
            self.execute("DROP DATABASE IF EXISTS round WITH (FORCE)")

    def keep(self, name: str) -> str:
        """Make an empty database to be copied later, and return its URL."""
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        self.kept.add(name)
        return self.url(name)


async def _execute(url: str, sql: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


@contextmanager
def sqlite() -> Iterator[Sqlite]:
    """Need no server for a block."""
    yield Sqlite()


@contextmanager
def postgresql() -> Iterator[PostgreSQL]:
    """Run a PostgreSQL for a block.

    Raises:
        NotHereError: None is installed.
    """
    programs = _postgresql_programs()
    whom = _unprivileged()
    with fresh_directory() as directory:
        directory.chmod(0o755)
        data, port = directory / "data", _free_port()
        data.mkdir(mode=0o700)
        if whom:
            os.chown(data, whom["user"], whom["group"])
        options = ["--username", USER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C.UTF-8"]
        _run([programs / "initdb", "--pgdata", data, *options], cwd=data, **whom)
        own = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        settings = [word for name, value in own.items() for word in ("-c", f"{name}={value}")]
        version = _run([programs / "postgres", "--version"], cwd=data, **whom).split()[2]
        with _server([programs / "postgres", "-D", data, *settings], data, signal.SIGINT, **whom) as server:
            _until_it_listens(server, port)
            yield PostgreSQL(pid=server.pid, version=version, port=port)


@contextmanager
def redis() -> Iterator[Redis]:
    """Run a Redis for a block.

    Raises:
        NotHereError: None is installed.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise NotInstalledError("no redis-server is installed (Debian: apt-get install redis-server)")
    with fresh_directory() as directory:
        port = _free_port()
        own = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]
        version = _run([program, "--version"], cwd=directory).split()[2].removeprefix("v=")
        command = [program, *own, "--appendfsync", "everysec"]
        with _server(command, directory, signal.SIGTERM) as server:
            _until_it_listens(server, port)
            yield Redis(pid=server.pid, version=version, port=port)


def _postgresql_programs() -> Path:
    """Return the folder of `initdb` and `postgres`: those of the PATH, else Debian's newest."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(_DEBIAN.glob("*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)
    for folder in folders:
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            return folder
    raise NotInstalledError("no PostgreSQL server is installed (Debian: apt-get install postgresql)")


def _unprivileged() -> dict[str, int]:
    """Return who a server must run as: nobody else unless we are root, whom PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    for name in _UNPRIVILEGED:
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid}
    raise NotInstalledError(
        "PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody' here"
    )


def _run(command: list[Any], **how: Any) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, timeout=60, **how
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return done.stdout


@contextmanager
def _server(
    command: list[Any], directory: Path, farewell: signal.Signals, **whom: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server for a block, its talk kept in a file; end it by `farewell`, or else by force."""
    with (directory / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [str(word) for word in command],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # an interrupt at the terminal ends it through us, after its clients
            **whom,
        )
        try:
            yield server
        finally:
            server.send_signal(farewell)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def _until_it_listens(server: subprocess.Popen[bytes], port: int) -> None:
    def listens() -> bool:
        if server.poll() is not None:
            raise RuntimeError(f"{server.args} ended with exit code {server.returncode}")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    wait_until(listens, what=f"a server listens on port {port}", within=60)
    time.sleep(0.2)  # PostgreSQL listens a little before it lets clients in


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
