"""libpq's variables supply missing parts of a URL; those that would be ignored are refused by name."""

from __future__ import annotations

import asyncio
import struct
from typing import Self

import pytest
from store_build import Build, SettableClock

from pgserver import Server
from postgres_support import SCHEMA, emptied
from tidegate.errors import ConfigError, StoreUnavailableError
from tidegate.store.postgres.address import parse_address
from tidegate.store.postgres.roles import role
from tidegate.store.postgres.store import PostgresStore


class Listener:
    """A server that reads a client's first message, asks for its password and closes the connection."""

    def __init__(self) -> None:
        self.asked_for_tls = False
        self.printed: dict[str, str] = {}
        self.password = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1")
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length, code = struct.unpack("!ii", await reader.readexactly(8))
        if code == 80877103:  # SSLRequest
            self.asked_for_tls = True
            writer.write(b"N")
            length, code = struct.unpack("!ii", await reader.readexactly(8))
        words = (await reader.readexactly(length - 8)).rstrip(b"\0").decode().split("\0")
        self.printed = dict(zip(words[::2], words[1::2], strict=True))
        writer.write(struct.pack("!cii", b"R", 8, 3))  # AuthenticationCleartextPassword
        _, length = struct.unpack("!ci", await reader.readexactly(5))
        self.password = (await reader.readexactly(length - 4)).rstrip(b"\0").decode()
        writer.close()


@pytest.mark.parametrize("url", ["postgresql:///shop", "postgresql:///", "postgresql://"])
async def test_missing_parts_of_a_url_come_from_the_variables(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    async with Listener() as listener:
        given = {"PGHOST": "127.0.0.1", "PGPORT": str(listener.port), "PGUSER": "ada", "PGPASSWORD": "pa ss"}
        for name, value in (given | {"PGSSLMODE": "disable", "PGDATABASE": "shop"}).items():
            monkeypatch.setenv(name, value)
        store = PostgresStore(url)
        with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1/shop"):
            await store.open()
        await store.close()
    assert (listener.printed["user"], listener.printed["database"], listener.password) == (
        "ada",
        "shop",
        "pa ss",
    )
    assert not listener.asked_for_tls


async def test_the_url_overrides_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Listener() as listener:
        for name in ("PGHOST", "PGUSER", "PGPASSWORD", "PGDATABASE"):
            monkeypatch.setenv(name, "another")
        monkeypatch.setenv("PGPORT", "1")
        monkeypatch.setenv("PGSSLMODE", "disable")
        store = PostgresStore(f"postgresql://ada:word@127.0.0.1:{listener.port}/shop?sslmode=prefer")
        with pytest.raises(StoreUnavailableError):
            await store.open()
        await store.close()
    assert (listener.printed["user"], listener.printed["database"], listener.password) == (
        "ada",
        "shop",
        "word",
    )
    assert listener.asked_for_tls


async def test_a_store_works_with_the_variables_alone(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied(postgres)
    given = {"PGHOST": postgres.host, "PGPORT": str(postgres.port), "PGUSER": role(SCHEMA, "worker")}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    store = PostgresStore("postgresql:///postgres")
    build = Build(store, SettableClock())
    task_id = await build.one()
    assert [task.fence.task_id for task in await build.claim(await build.worker())] == [task_id]
    await store.close()


async def test_a_variable_that_requires_tls_applies(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSSLMODE", "require")
    store = PostgresStore(postgres.url())
    with pytest.raises(StoreUnavailableError, match="SSL"):
        await store.open()
    await store.close()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PGSERVICE", "shop"),
        ("PGHOSTADDR", "10.0.0.1"),
        ("PGCHANNELBINDING", "require"),
        ("PGREQUIREAUTH", "scram-sha-256"),
        ("PGREQUIREPEER", "postgres"),
        ("PGREQUIRESSL", "1"),
        ("PGGSSENCMODE", "require"),
        ("PGSSLCERTMODE", "require"),
        ("PGSSLCRLDIR", "/crl"),
        ("PGPORT", "http"),
    ],
)
def test_a_variable_that_would_be_ignored_is_refused_by_name(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=variable) as caught:
        parse_address("postgresql://ada@db/shop", {variable: value})
    assert caught.value.fix


@pytest.mark.parametrize("url", ["postgresql:///?service=shop", "postgresql://db/shop?servicefile=/etc/pg"])
def test_a_service_in_the_url_is_refused_with_the_fix(url: str) -> None:
    with pytest.raises(ConfigError, match=r"service.* is not supported .*PGHOST"):
        parse_address(url, {})


def test_variables_without_effect_or_overridden_by_the_url_are_accepted() -> None:
    env = {
        "PGSERVICE": "", "PGCHANNELBINDING": "require", "PGGSSENCMODE": "prefer", "PGCONNECT_TIMEOUT": "3",
        "PGOPTIONS": "-c x=y", "PGPORT": "5432,5433", "PGSERVICEFILE": "/etc/pg",
    }  # fmt: skip
    address = parse_address("postgresql://db/shop?channel_binding=prefer", env)
    assert address.dsn == "postgresql://db/shop"
