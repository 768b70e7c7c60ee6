"""A pgbouncer in transaction mode in front of a server: what most large installations have."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pgserver.programs import as_whom, pooler_programs
from pgserver.server import Server, free_port

_READY_WITHIN = 20.0


class Bouncer:
    """A pooler on a port of its own; every name of a database is the server's."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """Return a database's URL through the pooler."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"


@contextmanager
def pgbouncer(
    server: Server, *, users: Sequence[str] = ("postgres",), connections: int = 20
) -> Iterator[Bouncer]:
    """A pooler in transaction mode that knows these users; gone after the block, or with the server.

    Args:
        server: Behind it.
        users: By name; none has a password.
        connections: To the server, for each user and database.

    Raises:
        NotHereError: pgbouncer is neither installed nor can be fetched.
    """
    programs = pooler_programs().within_reach(server.directory)
    port = free_port()
    folder = server.directory / f"pgbouncer-{port}"
    folder.mkdir()
    if owner := as_whom():
        os.chown(folder, owner["user"], owner["group"])
    conf = folder / "pgbouncer.ini"
    conf.write_text(_conf(server, port, folder, connections))
    (folder / "pgbouncer.users").write_text("".join(f'"{user}" ""\n' for user in users))
    process = subprocess.Popen(
        [programs.path("pgbouncer"), "-q", conf],
        cwd=folder,
        env=programs.env(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        **as_whom(),
    )
    try:
        _wait_until_ready(process, port, folder / "pgbouncer.log")
        yield Bouncer(server, port)
    finally:
        process.kill()
        process.wait(10)


def _conf(server: Server, port: int, folder: Path, connections: int) -> str:
    return f"""
[databases]
* = host={server.host} port={server.port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/pgbouncer.users
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 200
server_check_delay = 0
logfile = {folder}/pgbouncer.log
pidfile = {folder}/pgbouncer.pid
"""


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    ends_at = time.monotonic() + _READY_WITHIN
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > ends_at:
                printed = log.read_text(errors="replace")[-2000:] if log.exists() else ""
                raise RuntimeError(f"pgbouncer does not start: {printed}") from None
        time.sleep(0.01)
