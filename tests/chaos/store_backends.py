"""The stores of chaos runs, and the ways in which each becomes unreachable for everyone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol

from chaos import outage
from pgserver import Server, postgres_server
from postgres_support import SCHEMA, prepared
from tidegate.store.postgres.roles import role

STORES = ("sqlite", "postgres")


class StoreBackend(Protocol):
    """What chaos must know of a store."""

    url: str
    outage_kinds: tuple[str, ...]
    """The ways in which the store can become unreachable."""

    def make_unavailable(self, outage_kind: str, env: Mapping[str, str]) -> AbstractAsyncContextManager[None]:
        """Prevent all writes to the store for the block, without a notice to anyone.

        Args:
            outage_kind: One of `outage_kinds`.
            env: The environment of helper processes.
        """


class SqliteBackend:
    """A file, in a directory of its own that need not exist."""

    outage_kinds: tuple[str, ...] = outage.OUTAGE_KINDS

    def __init__(self, database: Path) -> None:
        self.url = f"sqlite:///{database}"
        self._database = database

    def make_unavailable(self, outage_kind: str, env: Mapping[str, str]) -> AbstractAsyncContextManager[None]:
        """Lock the file, or move it."""
        return outage.make_unavailable(outage_kind, self._database, env)


class PostgresBackend:
    """A server of our own: `stopped` as a crash would, or `frozen` with every connection open."""

    outage_kinds: tuple[str, ...] = ("stopped", "frozen")

    def __init__(self, server: Server) -> None:
        self.url = server.url(user=role(SCHEMA, "worker"))
        self._server = server

    @asynccontextmanager
    async def make_unavailable(self, outage_kind: str, env: Mapping[str, str]) -> AsyncIterator[None]:
        """Stop or freeze the server."""
        if outage_kind == "stopped":
            await asyncio.to_thread(self._server.stop, immediately=True)
            try:
                yield
            finally:
                await asyncio.to_thread(self._server.start)
            return
        frozen = self._processes()
        _signal_all(frozen, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal_all(frozen, signal.SIGCONT)

    def _processes(self) -> list[int]:
        postmaster = self._server.process_id
        listed = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return [postmaster, *map(int, listed)]


@contextmanager
def store_backend(store: str, directory: Path) -> Iterator[StoreBackend]:
    """Set up a store for the block."""
    if store == "sqlite":
        yield SqliteBackend(directory / "store" / "queue.db")
        return
    with postgres_server() as server:
        prepared(server)
        yield PostgresBackend(server)


def _signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
