"""Old and new code side by side on one store, as during a rolling restart."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from worker_support import Service, came, service

from support import EVERYDAY_ON_SQLITE, until
from tidegate import State
from tidegate.codec.tags import CODEC
from tidegate.domain.ids import IdMaker
from tidegate.domain.spec import Priority
from tidegate.store.connect import open_store
from tidegate.store.protocol import Store
from tidegate.store.rows import NewTask, TaskRow

pytestmark = pytest.mark.anyio
make_id = IdMaker(lambda: time.time_ns() // 1_000_000, random.Random(7).getrandbits)
OLD = b'{"a":[],"k":{"name":"Ada"}}'
NEW = b'{"a":[],"k":{"name":"Ada","loudness":3}}'


@pytest.fixture
async def store(tmp_path: Path, store_url: str) -> AsyncIterator[Store]:
    opened = open_store(store_url)
    await opened.open()
    yield opened
    await opened.close()


def worker(directory: Path, url: str, version: str = "", **env: str) -> Service:
    words = ("worker", "deployed:app", "--name", version or "installed")
    named = {"VERSION": version} if version else {}
    return service(directory, *words, TIDEGATE_DATABASE_URL=url, **named, **env)  # type: ignore[return-value]


async def enqueued(store: Store, function: str, args: bytes) -> str:
    task = NewTask(make_id(), function, "default", Priority.NORMAL, args, CODEC)
    (stored,) = await store.enqueue([task])
    return stored.task_id


async def row_of(store: Store, task_id: str) -> TaskRow:
    return (await store.read_tasks([task_id]))[task_id]


async def became(store: Store, task_id: str, *states: State) -> TaskRow:
    async def look() -> TaskRow | None:
        row = await row_of(store, task_id)
        return row if row.state in states else None

    return await until(look, what=f"{task_id} is {states}", within=120)


async def lives(store: Store, *names: str) -> None:
    async def look() -> bool:
        return {row.name for row in await store.list_workers() if row.code} >= set(names)

    await until(look, what=f"{names} have loaded their code", within=40)


async def enqueued_until(
    store: Store, args: Callable[[int], bytes], is_seen: Callable[[], bool]
) -> list[str]:
    """Enqueue tasks of `greet`, 50 at a time, until this is seen: any worker may claim a task."""
    ids: list[str] = []
    async with asyncio.timeout(40):
        while not is_seen():
            tasks = [
                NewTask(make_id(), "greet", "default", Priority.NORMAL, args(len(ids) + n), CODEC)
                for n in range(50)
            ]
            ids += [stored.task_id for stored in await store.enqueue(tasks)]
            await became(store, ids[-1], State.SUCCEEDED, State.RETRYING, State.DEAD)
    return ids


async def test_new_arguments_wait_uncharged_in_old_code_until_new_code_takes_them(
    store: Store, tmp_path: Path, store_url: str
) -> None:
    with worker(tmp_path, store_url, "old") as old, worker(tmp_path, store_url, "new"):
        await lives(store, "old", "new")
        ids = await enqueued_until(
            store, lambda n: NEW.replace(b"3", str(n).encode()), lambda: "runs another version" in old.log()
        )
        rows = [await became(store, task_id, State.SUCCEEDED, State.DEAD) for task_id in ids]
        assert {row.state for row in rows} == {State.SUCCEEDED}
        assert {row.counters.attempts for row in rows} == {0}


@EVERYDAY_ON_SQLITE
async def test_old_arguments_wait_in_new_code_until_old_code_takes_them(
    store: Store, tmp_path: Path, store_url: str
) -> None:
    with worker(tmp_path, store_url, "new") as new, worker(tmp_path, store_url, "old"):
        await lives(store, "old", "new")
        ids = await enqueued_until(
            store, lambda n: OLD.replace(b"Ada", f"A{n}".encode()), lambda: "given back: greet" in new.log()
        )
        rows = [await became(store, task_id, State.SUCCEEDED, State.DEAD) for task_id in ids]
        assert {row.state for row in rows} == {State.SUCCEEDED}


@EVERYDAY_ON_SQLITE
async def test_a_function_that_old_code_does_not_know_waits_for_new_code(
    store: Store, tmp_path: Path, store_url: str
) -> None:
    with worker(tmp_path, store_url, "old"):
        await lives(store, "old")
        known, unknown = (
            await enqueued(store, "greet", OLD),
            await enqueued(store, "added", b'{"a":[],"k":{}}'),
        )
        await became(store, known, State.SUCCEEDED)
        waiting = await row_of(store, unknown)
        assert (waiting.state, waiting.run) == (State.READY, 0)
        with worker(tmp_path, store_url, "new"):
            assert (await became(store, unknown, State.SUCCEEDED, State.DEAD)).state is State.SUCCEEDED


@EVERYDAY_ON_SQLITE
async def test_without_other_code_wrong_arguments_are_dead_at_once(
    store: Store, tmp_path: Path, store_url: str
) -> None:
    with worker(tmp_path, store_url, "old"):
        await lives(store, "old")
        row = await became(store, await enqueued(store, "greet", NEW), State.SUCCEEDED, State.DEAD)
        assert (row.state, row.reason, row.run) == (State.DEAD, "invalid_request", 1)


@EVERYDAY_ON_SQLITE
async def test_a_child_process_that_loads_newer_code_than_its_worker_kills_no_task(
    store: Store, tmp_path: Path, store_url: str
) -> None:
    with worker(tmp_path, store_url, OUT=str(tmp_path)) as running:
        await lives(store, "installed")
        (tmp_path / "version").write_text("new")  # deployed, and not reloaded yet
        task_id = await enqueued(store, "in_child", OLD)
        await came(lambda: "reload the worker" in running.log(), "it warns", within=40)
        (tmp_path / "version").write_text("old")  # rolled back
        row = await row_of(store, task_id)
        assert (row.state is State.DEAD, row.counters.attempts) == (False, 0)
