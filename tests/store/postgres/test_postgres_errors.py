"""What the server's errors mean: each has its kind and a fix."""

from __future__ import annotations

import socket

import asyncpg
import pytest
from store_build import Build

from pgserver import Server
from tidegate.errors import ArgumentsError, StoreError, StoreUnavailableError
from tidegate.store.postgres import errors
from tidegate.store.postgres.enqueue import COPY_TASKS
from tidegate.store.postgres.store import PostgresStore

SOON = 10.0
ONE = "SELECT 1"
MINE = "SELECT pg_backend_pid() FROM pg_sleep(0.01)"


async def test_a_server_that_never_answers_raises_an_error_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(8)
        store = PostgresStore(
            f"postgresql://me:secret@127.0.0.1:{deaf.getsockname()[1]}/db", busy_seconds=0.3
        )
        with pytest.raises(StoreUnavailableError) as caught:
            await store.now()
        assert "secret" not in str(caught.value)
        await store.close()


async def test_a_wrong_database_or_user_raises_an_error_with_the_fix(postgres: Server) -> None:
    for url, says in (
        (postgres.url("nowhere"), "no such database"),
        (postgres.url(user="nobody"), "refuses this user"),
    ):
        store = PostgresStore(url)
        with pytest.raises(StoreUnavailableError, match=says):
            await store.open()
        await store.close()


@pytest.mark.parametrize(("error", "trouble"), [
    (asyncpg.SerializationError("x"), errors.ErrorKind.AGAIN),
    (asyncpg.DeadlockDetectedError("x"), errors.ErrorKind.AGAIN),
    (asyncpg.LockNotAvailableError("x"), errors.ErrorKind.AGAIN),
    (asyncpg.AdminShutdownError("x"), errors.ErrorKind.LOST),
    (asyncpg.CannotConnectNowError("x"), errors.ErrorKind.LOST),
    (asyncpg.ConnectionDoesNotExistError("x"), errors.ErrorKind.LOST),
    (asyncpg.ReadOnlySQLTransactionError("x"), errors.ErrorKind.LOST),
    (asyncpg.InterfaceError("x"), errors.ErrorKind.LOST),
    (ConnectionResetError("x"), errors.ErrorKind.LOST),
    (asyncpg.QueryCanceledError("x"), errors.ErrorKind.REFUSED),
    (asyncpg.DiskFullError("x"), errors.ErrorKind.REFUSED),
    (asyncpg.TooManyConnectionsError("x"), errors.ErrorKind.REFUSED),
    (asyncpg.CharacterNotInRepertoireError("x"), errors.ErrorKind.CONTENT),
    (asyncpg.UniqueViolationError("x"), errors.ErrorKind.CONTENT),
    (KeyError("x"), errors.ErrorKind.OTHER),
])  # fmt: skip
def test_each_error_has_its_kind(error: Exception, trouble: errors.ErrorKind) -> None:
    assert errors.error_kind(error) is trouble
    printed = errors.wrap(error, "db.example.com/shop")
    if trouble in (errors.ErrorKind.CONTENT, errors.ErrorKind.OTHER):
        assert printed is error
    else:
        assert isinstance(printed, StoreError)
        assert printed.fix
        assert printed.__cause__ is error


@pytest.mark.parametrize("count", [1, COPY_TASKS])
async def test_a_number_that_is_too_large_raises_arguments_error(
    store: PostgresStore, build: Build, count: int
) -> None:
    with pytest.raises(ArgumentsError, match="smaller numbers"):
        await store.enqueue([build.new(max_attempts=2**40) for _ in range(count)])
