"""A PostgreSQL server for tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from pgserver.guard import Guard
from pgserver.programs import as_whom, server_programs

_READY_WITHIN = 60.0

# What is written need not outlive the machine; all else is as installed.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_wal_size": "128MB",
    "max_connections": "100",
}


class Server:
    """A server of its own port and data folder. Its superuser is `postgres`, without a password.

    Args:
        guard: Whose directory it lives in.
        settings: More of postgresql.conf.
    """

    host = "127.0.0.1"

    def __init__(self, guard: Guard, **settings: str) -> None:
        self.directory = guard.directory
        self.port = 0
        self._data = self.directory / "data"
        self._settings = _SETTINGS | {"unix_socket_directories": str(self.directory)} | settings
        self._programs = server_programs().within_reach(self.directory)
        self._process: subprocess.Popen[bytes] | None = None
        self._kept: psycopg.Connection | None = None

    def create(self) -> None:
        """Make the data folder."""
        user = as_whom()
        if user:
            os.chown(self.directory, user["user"], user["group"])
        initdb = [str(self._programs.path("initdb")), "-D", str(self._data), "-U", "postgres", "-A", "trust"]
        options = ["-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        done = subprocess.run(
            [*initdb, *options],
            cwd=self.directory,
            env=self._programs.env(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120,
            **user,
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr}")
        with (self._data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())

    def start(self) -> None:
        """Start it and wait until it accepts connections; on the same port as before, if there was one."""
        self.port = self.port or free_port()
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs.path("postgres"), "-D", self._data, "-p", str(self.port)],
                cwd=self.directory,
                env=self._programs.env(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **as_whom(),
            )
        self._wait_until_ready(self._process)

    def stop(self, *, immediately: bool = False) -> None:
        """End it: in order, cutting every connection; or `immediately`, as a crash would."""
        if self._process is None:
            return
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        self._process.send_signal(signal.SIGQUIT if immediately else signal.SIGINT)
        self._process.wait(60)
        self._process = None

    @property
    def process_id(self) -> int:
        """The postmaster's; it must run."""
        assert self._process is not None
        return self._process.pid

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """Return a database's URL."""
        return f"postgresql://{user}@{self.host}:{self.port}/{database}"

    def connect(self, database: str = "postgres", user: str = "postgres") -> psycopg.Connection:
        """Return a connection that commits each statement."""
        return psycopg.connect(self.url(database, user), autocommit=True, connect_timeout=10)

    def kept_connection(self) -> psycopg.Connection:
        """Return the superuser's one connection that stays open until the server stops.

        Each new connection costs the server about 10 ms of CPU time.
        """
        if self._kept is None or self._kept.closed:
            self._kept = self.connect()
        return self._kept

    def log(self) -> str:
        """Return what the server wrote down."""
        return (self.directory / "log").read_text(errors="replace")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        reported = self._data / "postmaster.pid"
        ends_at = time.monotonic() + _READY_WITHIN
        while not _is_ready(reported, process.pid):
            if process.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError(f"PostgreSQL does not start: {self.log()[-2000:]}")
            time.sleep(0.01)


@contextmanager
def postgres_server(**settings: str) -> Iterator[Server]:
    """A started server, gone after the block or with this process."""
    with Guard() as guard:
        server = Server(guard, **settings)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop(immediately=True)


def _is_ready(reported: Path, pid: int) -> bool:
    """Whether the postmaster of this process says `ready`, in the line that pg_ctl reads."""
    try:
        lines = reported.read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
