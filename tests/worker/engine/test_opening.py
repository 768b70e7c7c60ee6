"""A worker that starts waits for its store, but not after a permanent error."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from tidegate.errors import StoreError, StoreUnavailableError
from tidegate.store.postgres.errors import late, wrap
from tidegate.testing.virtual_time import VirtualLoop
from tidegate.worker.opening import START_SECONDS, open_with_retries


def failure(kind: type[asyncpg.PostgresError]) -> BaseException:
    return wrap(kind("no"), "server/database")


class Server:
    """A store's `open` that fails with these errors first, or with the last of them for ever."""

    def __init__(self, *errors: BaseException, for_ever: bool = False) -> None:
        self.errors = list(errors)
        self.for_ever = for_ever
        self.asked = 0

    async def open(self) -> None:
        self.asked += 1
        if self.errors:
            raise self.errors[0] if self.for_ever else self.errors.pop(0)


def test_opening_retries_while_the_server_is_full_or_starting() -> None:
    server = Server(
        failure(asyncpg.TooManyConnectionsError),
        failure(asyncpg.CannotConnectNowError),
        wrap(ConnectionRefusedError(111, "refused"), "server/database"),
        late("server/database", 5),
    )
    loop = VirtualLoop()
    loop.run_until_complete(open_with_retries(server.open))
    assert server.asked == 5
    loop.close()


def test_after_a_minute_the_last_error_is_raised() -> None:
    server = Server(failure(asyncpg.TooManyConnectionsError), for_ever=True)
    loop = VirtualLoop()
    began_at = loop.time()
    with pytest.raises(StoreUnavailableError):
        loop.run_until_complete(open_with_retries(server.open))
    assert START_SECONDS <= loop.time() - began_at < START_SECONDS + 1
    assert server.asked > 5
    loop.close()


@pytest.mark.parametrize(
    "kind",
    [asyncpg.InvalidPasswordError, asyncpg.InvalidCatalogNameError, asyncpg.ReadOnlySQLTransactionError],
)
def test_a_permanent_error_is_raised_at_once(kind: type[asyncpg.PostgresError]) -> None:
    server = Server(failure(kind), for_ever=True)
    with pytest.raises(StoreError):
        asyncio.run(open_with_retries(server.open))
    assert server.asked == 1
