"""Steps while another transaction changes the same rows at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import asyncpg
from store_build import Build

from pgserver import Server
from tidegate.domain.outcome import Fence
from tidegate.domain.step import StepState
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.step_rows import BeginStatus, BegunStep, EndedStep, EndStatus, StepBegin, StepEnd

T = TypeVar("T")
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidegate' AND wait_event_type = 'Lock'"
)
BEGIN = """
    INSERT INTO tidegate.step (task_id, key, name, state, run, attempt, on_doubt, tries, begun_at, upstream)
    VALUES ($1, 'k', 's', 'open', 1, 1, 'repeat', 1, 0, '')
"""


async def while_another_commits(server: Server, statements: list[str], fence: Fence, do: Awaitable[T]) -> T:
    """Run statements on the task in an open transaction, start `do`, and commit once it waits."""
    other = await asyncpg.connect(server.url())
    try:
        transaction = other.transaction()
        await transaction.start()
        for statement in statements:
            await other.execute(statement, fence.task_id)
        doing = asyncio.ensure_future(do)
        async with asyncio.timeout(20):
            while not await other.fetchval(WAITING):
                assert not doing.done(), doing
                await asyncio.sleep(0.01)
        await transaction.commit()
        return await doing
    finally:
        await other.close()


def begin(store: PostgresStore, *fences: Fence) -> Awaitable[list[BegunStep]]:
    return store.begin_steps([StepBegin(fence, "k", 1, "s") for fence in fences])


async def test_a_begin_that_meets_itself_is_a_resend(
    store: PostgresStore, build: Build, postgres: Server
) -> None:
    first, second = [task.fence for task in await build.running(2)]
    answers = await while_another_commits(postgres, [BEGIN], first, begin(store, first, second))
    assert answers == [BegunStep(BeginStatus.BEGUN)] * 2
    (row,) = await store.read_steps(first.task_id)
    assert (row.begun_at, await store.list_doubts(state=None)) == (0.0, [])


async def test_a_begin_that_meets_the_end_of_its_run_is_fenced(
    store: PostgresStore, build: Build, postgres: Server
) -> None:
    fence = (await build.run()).fence
    end = "DELETE FROM tidegate.running WHERE task_id = $1"
    answers = await while_another_commits(postgres, [end], fence, begin(store, fence))
    assert answers == [BegunStep(BeginStatus.FENCED)]
    assert await store.read_steps(fence.task_id) == []


async def test_a_cancel_request_does_not_wait_for_a_begin(
    store: PostgresStore, build: Build, postgres: Server
) -> None:
    fence = (await build.run()).fence
    other = await asyncpg.connect(postgres.url())
    transaction = other.transaction()
    await transaction.start()
    await other.execute("SELECT 1 FROM tidegate.running WHERE task_id = $1 FOR NO KEY UPDATE", fence.task_id)
    async with asyncio.timeout(10):
        assert (await begin(store, fence))[0].status is BeginStatus.BEGUN
    await other.close()


FIND = [
    """
    INSERT INTO tidegate.doubt (
        task_id, key, run, attempt, state, on_doubt, cause, upstream, request_id, sent_at, found_at
    )
    SELECT task_id, key, run, attempt, 'open', on_doubt, 'ended', '', '', 0, 0 FROM tidegate.step WHERE task_id = $1
    """,
    "UPDATE tidegate.step SET doubted = 1 WHERE task_id = $1",
]


async def test_a_late_result_answers_a_doubt_that_is_found_at_the_same_moment(
    store: PostgresStore, build: Build, postgres: Server
) -> None:
    fence = (await build.run()).fence
    await begin(store, fence)
    end = store.end_steps([StepEnd(fence, "k", 1, EndStatus.DONE, b"1", "json")])
    assert await while_another_commits(postgres, FIND, fence, end) == [EndedStep(EndStatus.DONE)]
    (entry,) = await store.list_doubts(state=None)
    assert (entry.state.value, entry.cause) == ("answered", "ended")


async def test_a_result_that_meets_the_result_of_another_run_is_paid_twice(
    store: PostgresStore, build: Build, postgres: Server
) -> None:
    fence = (await build.run()).fence
    await begin(store, fence)
    done = "UPDATE tidegate.step SET state = 'done', run = 2, data = 'x', codec = 'json' WHERE task_id = $1"
    end = store.end_steps([StepEnd(fence, "k", 1, EndStatus.DONE, b"1", "json")])
    assert await while_another_commits(postgres, [done], fence, end) == [
        EndedStep(EndStatus.ALREADY, b"x", "json")
    ]
    (row,) = await store.read_steps(fence.task_id)
    assert (row.state, row.run, row.data) == (StepState.DONE, 2, b"x")
    (entry,) = await store.list_doubts(state=None)
    assert (entry.run, entry.state.value) == (1, "paid_twice")
