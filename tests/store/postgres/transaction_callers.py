"""The ways in which users enqueue in their own transaction: each driver, session and pool."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tidegate import Tidegate

ORDER = "INSERT INTO own.orders (number) VALUES (1)"


class RolledBack(Exception):
    """Ends a block without a commit."""


def over(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


@dataclass(frozen=True)
class Products:
    """Tasks to enqueue in a transaction: one by `using`, more by `enqueue_many`."""

    app: Tidegate
    work: Any
    number: int = 1

    async def within(self, conn: Any) -> list[str]:
        if self.number == 1:
            return [(await self.work.using(conn=conn).enqueue(1)).id]
        return await self.app.enqueue_many(self.prepared(), conn=conn)

    def within_sync(self, conn: Any) -> list[str]:
        if self.number == 1:
            return [self.work.using(conn=conn).enqueue_sync(1).id]
        return self.app.enqueue_many_sync(self.prepared(), conn=conn)

    def prepared(self) -> Iterator[Any]:
        labelled = self.work.using(labels={"kind": "größer"}, tenant="t", key="k", timeout=7)
        yield labelled.prepare(1)
        yield from (self.work.prepare(number) for number in range(2, self.number + 1))


async def by_asyncpg(url: str, successes: Products, commit: bool) -> list[str]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(ORDER)
    ids = await successes.within(connection)
    await (transaction.commit() if commit else transaction.rollback())
    await connection.close()
    return ids


async def by_asyncpg_pool(url: str, successes: Products, commit: bool) -> list[str]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        try:
            async with connection.transaction():
                await connection.execute(ORDER)
                ids = await successes.within(connection)
                if not commit:
                    raise RolledBack
        except RolledBack:
            pass
    return ids


async def by_async_psycopg(url: str, successes: Products, commit: bool) -> list[str]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(ORDER)
        ids = await successes.within(connection)
        await (connection.commit() if commit else connection.rollback())
    return ids


def by_psycopg(url: str, successes: Products, commit: bool) -> list[str]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        connection.execute(ORDER)
        ids = successes.within_sync(connection)
        (connection.commit if commit else connection.rollback)()
    return ids


def by_psycopg_autocommit_block(url: str, successes: Products, commit: bool) -> list[str]:
    connection = psycopg.connect(url, autocommit=True)
    with connection, connection.transaction(force_rollback=not commit):
        connection.execute(ORDER)
        return successes.within_sync(connection)


def by_psycopg_pipeline(url: str, successes: Products, commit: bool) -> list[str]:
    with psycopg.connect(url) as connection, connection.pipeline():
        connection.execute(ORDER)
        ids = successes.within_sync(connection)
        (connection.commit if commit else connection.rollback)()
    return ids


def by_session(url: str, successes: Products, commit: bool) -> list[str]:
    engine = sa.create_engine(over(url, "psycopg"))
    with Session(engine) as session:
        session.execute(sa.text(ORDER))
        ids = successes.within_sync(session)
        (session.commit if commit else session.rollback)()
    engine.dispose()
    return ids


def by_sqlalchemy_connection(url: str, successes: Products, commit: bool) -> list[str]:
    engine = sa.create_engine(over(url, "psycopg"))
    with engine.connect() as connection:
        connection.execute(sa.text(ORDER))
        ids = successes.within_sync(connection)
        (connection.commit if commit else connection.rollback)()
    engine.dispose()
    return ids


async def by_async_session(url: str, successes: Products, commit: bool, driver: str = "asyncpg") -> list[str]:
    engine = create_async_engine(over(url, driver))
    async with AsyncSession(engine) as session:
        await session.execute(sa.text(ORDER))
        ids = await successes.within(session)
        await (session.commit() if commit else session.rollback())
    await engine.dispose()
    return ids


async def by_async_session_over_psycopg(url: str, successes: Products, commit: bool) -> list[str]:
    return await by_async_session(url, successes, commit, "psycopg")


async def by_async_sqlalchemy_connection(url: str, successes: Products, commit: bool) -> list[str]:
    engine = create_async_engine(over(url, "asyncpg"))
    async with engine.connect() as connection:
        await connection.execute(sa.text(ORDER))
        ids = await successes.within(connection)
        await (connection.commit() if commit else connection.rollback())
    await engine.dispose()
    return ids


async def by_sync_code_under_an_async_session(url: str, successes: Products, commit: bool) -> list[str]:
    engine = create_async_engine(over(url, "asyncpg"))
    async with AsyncSession(engine) as session:
        await session.execute(sa.text(ORDER))
        ids = await session.run_sync(successes.within_sync)
        await (session.commit() if commit else session.rollback())
    await engine.dispose()
    return ids


CALLERS = {
    name: value for name, value in dict(globals()).items() if name.startswith("by_") and callable(value)
}


async def called(caller: Any, url: str, successes: Products, commit: bool) -> list[str]:
    if inspect.iscoroutinefunction(caller):
        return await caller(url, successes, commit)
    return await asyncio.to_thread(caller, url, successes, commit)


def orders(url: str) -> int:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT count(*) FROM own.orders").fetchone()[0]
