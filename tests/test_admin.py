"""`app.admin`: what the command line and the HTTP API can do, from Python."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support import make_app
from tidegate import (
    ActionStatus,
    CancelStatus,
    DrainKind,
    GateState,
    LetterState,
    NotAcceptedError,
    OperationKind,
    OperationNotFoundError,
    OperationState,
    OptionError,
    ParkedBy,
    Permanent,
    Priority,
    Reason,
    ResultTimeoutError,
    State,
    TaskNotFoundError,
    Tidegate,
    UnknownFunctionError,
    UnknownUpstreamError,
    UsageError,
    WrongStateError,
)
from tidegate.deadletter.runner import OperationRunner
from tidegate.internals import core_of

GROUPS = ("tasks", "queues", "functions", "dead_letters", "failures", "operations", "upstreams", "workers")


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Tidegate]:
    application = make_app(tmp_path)

    @application.task(name="ok", queue="quick")
    async def ok() -> None: ...

    @application.task(name="fails", max_attempts=1)
    async def fails(number: int) -> None:
        raise Permanent(f"no {number}", reason="quota")

    await core_of(application).opened_store()
    yield application
    await application.aclose()


async def dead_tasks(app: Tidegate, count: int, **options: Any) -> list[str]:
    """Return the ids of so many dead tasks."""
    calls = [(number,) for number in range(count)]
    handles = await app.function("fails").using(**options).enqueue_many(calls)
    async with app.worker():
        await asyncio.gather(*(handle.result("20s") for handle in handles), return_exceptions=True)
    return [handle.id for handle in handles]


# --- tasks -----------------------------------------------------------------------------------------------


async def test_tasks_are_listed_newest_first_by_filter_and_page(app: Tidegate) -> None:
    ok = app.function("ok")
    ids = [handle.id for handle in await ok.enqueue_many([()] * 3)]
    other = await ok.using(queue="other", tenant="t", labels={"a": "b"}, delay=600).enqueue()
    tasks = app.admin.tasks
    assert [task.task_id for task in await tasks.list()] == [other.id, *reversed(ids)]
    assert [task.task_id for task in await tasks.list(limit=2)] == [other.id, ids[2]]
    assert [task.task_id for task in await tasks.list(after=ids[2])] == [ids[1], ids[0]]
    for filters in (
        {"queue": "other"},
        {"state": "scheduled"},
        {"state": [State.SCHEDULED, "dead"]},
        {"tenant": "t"},
        {"labels": {"a": "b"}},
    ):
        assert [task.task_id for task in await tasks.list(**filters)] == [other.id]  # type: ignore[arg-type]
    assert await tasks.list(function="fails") == []


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"state": "done"}, "state="),
        ({"colour": "red"}, "there is no option 'colour'"),
        ({"limit": 0}, "limit="),
    ],
)
async def test_a_filter_that_cannot_work_is_refused(
    app: Tidegate, filters: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        await app.admin.tasks.list(**filters)


async def test_several_tasks_are_cancelled_run_now_and_reprioritised_by_id(app: Tidegate) -> None:
    ok, tasks = app.function("ok"), app.admin.tasks
    later = [handle.id for handle in await ok.using(delay=600).enqueue_many([(), ()])]
    ready = (await ok.enqueue()).id
    unknown = "00000000-0000-7000-8000-000000000000"
    assert await tasks.reprioritise([*later, unknown], "bulk") == {
        **dict.fromkeys(later, ActionStatus.DONE),
        unknown: ActionStatus.UNKNOWN,
    }
    assert (await app.status(later[0])).priority is Priority.BULK
    assert await tasks.run_now([later[0], ready]) == dict.fromkeys([later[0], ready], ActionStatus.DONE)
    assert (await app.status(later[0])).state is State.READY
    assert await tasks.cancel(later[1][:-1], why="no need") == {later[1]: CancelStatus.CANCELLED}
    assert (await app.history(later[1]))[-1].why == "no need"
    assert await tasks.run_now(later[1]) == {later[1]: ActionStatus.REFUSED}
    with pytest.raises(OptionError, match="priority="):
        await tasks.reprioritise(later, "urgent")


async def test_a_retry_redrives_dead_tasks_and_makes_waiting_ones_ready(app: Tidegate) -> None:
    (dead,) = await dead_tasks(app, 1)
    later = (await app.function("ok").using(delay=600).enqueue()).id
    ready = (await app.function("ok").enqueue()).id
    assert await app.admin.tasks.retry([dead, later, ready]) == {
        dead: ActionStatus.DONE,
        later: ActionStatus.DONE,
        ready: ActionStatus.REFUSED,
    }
    assert (await app.status(dead)).redrives == 1


async def test_what_a_task_waits_for_is_explained(app: Tidegate) -> None:
    later = await app.function("ok").using(delay=600).enqueue()
    reported = await app.admin.tasks.explain(later.id)
    assert (reported.task_id, reported.state) == (later.id, State.SCHEDULED)
    assert reported.reasons[0].startswith("schedule: due in")
    with pytest.raises(TaskNotFoundError) as caught:
        await app.admin.tasks.explain("00000000-0000-7000-8000-000000000000")
    assert caught.value.task_id == "00000000-0000-7000-8000-000000000000"


async def test_an_id_that_is_no_text_is_refused(app: Tidegate) -> None:
    with pytest.raises(UsageError, match="no task id"):
        await app.admin.tasks.cancel([7])  # type: ignore[list-item]


# --- queues and workers ----------------------------------------------------------------------------------


async def test_queues_are_counted_with_what_they_wait_for_and_when_they_drain(app: Tidegate) -> None:
    begin = datetime.now(UTC)
    await app.function("ok").enqueue_many([()] * 2)
    await app.function("ok").using(delay=600).enqueue()
    (queue,) = await app.admin.queues.list()
    assert (queue.queue, queue.ready, queue.blocked, queue.scheduled) == ("quick", 0, 2, 1)
    assert [(wait.by, wait.tasks) for wait in queue.waits] == [("workers", 2)]
    assert (queue.drain.kind, queue.drain.constraint) == (DrainKind.BLOCKED, "workers")
    assert queue.drain.left_out[1] == "1 task scheduled"
    async with app.worker():
        (from_sync_code,) = await asyncio.to_thread(app.admin.workers.list_sync)
        (worker,) = await app.admin.workers.list()
        assert from_sync_code.worker_id == worker.worker_id
        assert worker.is_live
        assert worker.slots == 10
        assert begin - timedelta(seconds=1) <= worker.started_at <= worker.heartbeat_at < worker.expires_at


async def test_a_queue_and_a_function_are_paused_and_resumed_and_a_queue_is_drained(app: Tidegate) -> None:
    ok = app.function("ok")
    handle = await ok.enqueue()
    assert await app.admin.queues.pause("quick", why="bad prompt", by="ada")
    assert not await app.admin.queues.pause("quick")
    assert await app.admin.functions.pause("ok")
    (queue,) = await app.admin.queues.list()
    assert queue.pause is not None
    assert (queue.blocked, queue.pause.paused_by, queue.pause.why) == (1, "ada", "bad prompt")
    (paused,) = await app.admin.functions.paused()
    assert (paused.kind, paused.name) == ("function", "ok")
    with pytest.raises(UnknownFunctionError):
        await app.admin.functions.pause("okay")
    with pytest.raises(WrongStateError, match="is paused"):
        await app.admin.queues.drain("quick")
    async with app.worker():
        assert await app.admin.queues.resume("quick")
        with pytest.raises(ResultTimeoutError):
            await app.admin.queues.drain("quick", timeout="200ms")  # its function is still paused
        assert await app.admin.functions.resume("ok")
        drained = await app.admin.queues.drain("quick", timeout="20s")
        assert (drained.ready, drained.running) == (0, 0)
        await handle.result("1s")


# --- dead letters ----------------------------------------------------------------------------------------


async def test_dead_letters_are_listed_and_counted_by_filter(app: Tidegate) -> None:
    ids = await dead_tasks(app, 3, tenant="t")
    letters = app.admin.dead_letters
    found = await letters.list(reason=Reason.QUOTA, tenant="t")
    assert sorted(letter.task_id for letter in found) == sorted(ids)
    assert {(letter.function, letter.tenant, letter.reason, letter.run) for letter in found} == {
        ("fails", "t", "quota", 1)
    }
    assert len(await letters.list(limit=2)) == 2
    assert await letters.count() == 3
    assert await letters.count(before="1h") == 0
    assert await letters.count(before=datetime.now(UTC) + timedelta(minutes=1)) == 3
    assert await letters.count(error_class="ValueError") == 0
    with pytest.raises(OptionError, match="time zone"):
        await letters.count(before=datetime(2026, 1, 1))


async def test_counters_are_read_by_period(app: Tidegate) -> None:
    await dead_tasks(app, 2)
    await app.function("ok").enqueue()
    rows = await app.admin.statistics(step="day", since="1h")
    found = {row.function: row for row in rows}
    assert (found["fails"].dead, found["fails"].started, found["ok"].enqueued) == (2, 2, 1)
    assert found["fails"].run_p95 is not None
    assert found["ok"].run_p95 is None
    assert await app.admin.statistics(queue="none") == []
    with pytest.raises(OptionError, match="periods"):
        await app.admin.statistics(step="minute", since="30d")


async def test_deaths_are_counted_and_grouped_after_a_redrive_too(app: Tidegate) -> None:
    ids = await dead_tasks(app, 3)
    letters = app.admin.dead_letters
    await letters.redrive(ids[:1])
    (count,) = await letters.statistics(step="day", reason="quota")
    assert (count.function, count.deaths, count.at.tzinfo) == ("fails", 3, UTC)
    (group,) = await letters.groups(since=timedelta(hours=1))
    assert (group.deaths, group.shape, group.reasons) == (3, "no <number>", ("quota",))
    assert group.frame == "tests/test_admin.py:fails"
    assert await letters.groups(until="1h") == []
    with pytest.raises(OptionError, match="step"):
        await letters.statistics(step="week")  # type: ignore[arg-type]


async def test_dead_letters_are_redriven_by_id_and_answered_per_id(app: Tidegate) -> None:
    first, second = await dead_tasks(app, 2)
    ready = (await app.function("ok").enqueue()).id
    letters = app.admin.dead_letters
    planned = await letters.redrive([first, ready], dry_run=True)
    assert (planned.matched, planned.done, planned.refused, planned.is_dry_run) == (1, 0, 1, True)
    assert (await app.status(first)).state is State.DEAD
    report = await letters.redrive([first, ready])
    assert report.answers == {first: ActionStatus.DONE, ready: ActionStatus.REFUSED}
    assert (report.done, report.refused, report.is_dry_run) == (1, 1, False)
    assert (await app.status(second)).state is State.DEAD


async def test_a_redrive_by_filter_is_an_operation_that_is_followed_aborted_and_undone(app: Tidegate) -> None:
    await dead_tasks(app, 3)
    letters, operations = app.admin.dead_letters, app.admin.operations
    planned = await letters.redrive(reason="quota", dry_run=True)
    assert (planned.matched, planned.canary, planned.in_doubt) == (3, 3, 0)
    assert (await letters.redrive(reason="crash")).matched == 0

    report = await letters.redrive(reason="quota", by="ada")

    assert (report.matched, report.done, report.answers) == (3, 0, {})
    store = await core_of(app).opened_store()
    runner = OperationRunner(store)
    while await runner.run_once():
        pass
    found = await operations.get(report.operation_id)
    assert (found.state, found.started_by, found.filter.split()[0]) == (
        OperationState.CANARY,
        "ada",
        "reason=quota",
    )
    assert (found.chosen, found.sent) == (3, 0)
    assert "no live worker" in found.note
    assert {letter.state for letter in await operations.letters(found.id)} == {LetterState.CHOSEN}
    assert (await operations.list())[0] == found
    assert (await asyncio.to_thread(operations.abort_sync, found.id)).state is OperationState.ABORTED
    with pytest.raises(NotAcceptedError, match="is aborted"):
        await operations.abort(found.id)
    with pytest.raises(OperationNotFoundError):
        await operations.get("0191ffff")
    assert await letters.count() == 3


async def test_dead_letters_are_purged_by_filter_and_the_purge_is_recorded(app: Tidegate) -> None:
    await dead_tasks(app, 4)
    letters = app.admin.dead_letters
    assert (await asyncio.to_thread(letters.purge_sync, everything=True, dry_run=True)).matched == 4
    report = await letters.purge(everything=True)
    assert report.done == 4
    assert (await app.admin.operations.get(report.operation_id)).kind is OperationKind.PURGE
    assert await letters.count() == 0


async def test_an_undo_from_python_restores_dead_letters(app: Tidegate) -> None:
    ids = await dead_tasks(app, 2)
    report = await app.admin.dead_letters.redrive(ids, to_queue="other", keep_attempts=True)
    row = await app.status(ids[0])
    assert (row.state, row.queue, row.attempts) == (State.READY, "other", 1)

    undone = await app.admin.operations.undo(report.operation_id)

    assert (undone.state, undone.undone) == (OperationState.UNDONE, 2)
    row = await app.status(ids[0])
    assert (row.state, row.queue, row.redrives) == (State.DEAD, "default", 0)


@pytest.mark.parametrize("act", ["redrive", "purge"])
@pytest.mark.parametrize(
    "choice",
    [{}, {"queue": None}, {"task_ids": [], "queue": "q"}, {"everything": True, "queue": "q"}],
    ids=["nothing", "an empty filter", "ids and a filter", "all and a filter"],
)
async def test_an_unclear_choice_of_dead_letters_is_refused(
    app: Tidegate, act: str, choice: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="not clear which dead letters"):
        await getattr(app.admin.dead_letters, act)(**choice)


# --- upstreams -------------------------------------------------------------------------------------------


async def test_an_upstream_is_parked_opened_probed_and_limited(app: Tidegate) -> None:
    app.upstream("openai", requests_per_minute=60)
    upstreams = app.admin.upstreams
    store = await core_of(app).opened_store()
    await store.declare_limits(core_of(app).declared())
    assert [found.name for found in await upstreams.list()] == ["openai"]
    begin = datetime.now(UTC)
    await upstreams.park("openai", "10m", why="invoice")
    parked = await upstreams.get("openai")
    assert (parked.gate, parked.parked_by) == (GateState.PARKED, ParkedBy.PERSON)
    assert parked.until_at is not None
    assert parked.until_at - begin == pytest.approx(timedelta(minutes=10), abs=timedelta(seconds=5))
    assert "invoice" in parked.description
    await upstreams.probe("openai")
    await upstreams.open("openai")
    assert (await upstreams.get("openai")).gate is GateState.FLOWING
    await upstreams.set_limits("openai", requests_per_minute=30, max_in_flight=2, slow_start="10s")
    limited = await upstreams.get("openai")
    assert (limited.limits["requests_per_minute"], limited.limits["slow_start"]) == (30, 10)
    assert set(limited.limits_set_by_person) == {"requests_per_minute", "max_in_flight", "slow_start"}
    await upstreams.set_limits("openai", max_in_flight=None, follow_code=["requests_per_minute"])
    limited = await asyncio.to_thread(upstreams.get_sync, "openai")
    assert limited.limits["requests_per_minute"] == 60
    assert "max_in_flight" not in limited.limits
    assert [budget.upstream for budget in await upstreams.retry_budgets()] == [None, "openai"]


async def test_an_unknown_upstream_is_named_by_the_error(app: Tidegate) -> None:
    upstreams = app.admin.upstreams
    for call in (
        lambda: upstreams.get("nobody"),
        lambda: upstreams.park("nobody"),
        lambda: upstreams.open("nobody"),
        lambda: upstreams.probe("nobody"),
        lambda: upstreams.set_limits("nobody", max_in_flight=1),
    ):
        with pytest.raises(UnknownUpstreamError) as caught:
            await call()
        assert caught.value.upstream == "nobody"


async def test_a_limit_that_cannot_work_is_refused(app: Tidegate) -> None:
    app.upstream("openai")
    await (await core_of(app).opened_store()).declare_limits(core_of(app).declared())
    with pytest.raises(OptionError, match="there is no limit"):
        await app.admin.upstreams.set_limits("openai", pages=3)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="duration="):
        await app.admin.upstreams.park("openai", 0)


async def test_one_dead_letter_is_read_by_a_short_id_as_the_list_shows_it(app: Tidegate) -> None:
    (dead,) = await dead_tasks(app, 1, tenant="t")
    letters = app.admin.dead_letters
    assert [await letters.get(dead[:-1])] == await letters.list()
    assert [await asyncio.to_thread(letters.get_sync, dead)] == await letters.list()


# --- sync twins ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", GROUPS)
async def test_each_method_has_a_twin_for_sync_code_with_the_same_parameters(
    app: Tidegate, group: str
) -> None:
    methods = {
        name: method
        for name, method in inspect.getmembers(getattr(app.admin, group), inspect.ismethod)
        if not name.startswith("_")
    }
    for name, method in methods.items():
        if not name.endswith("_sync"):
            twin = methods[f"{name}_sync"]
            assert inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
            assert inspect.signature(twin).parameters == inspect.signature(method).parameters
    assert len(methods) % 2 == 0


async def test_dead_letters_are_exported_and_found_by_their_fingerprint(app: Tidegate) -> None:
    ids = await dead_tasks(app, 3)
    letters = app.admin.dead_letters
    exported = [letter async for letter in letters.export()]
    assert sorted(letter.task_id for letter in exported) == sorted(ids)
    (group,) = await letters.groups()
    assert {letter.fingerprint for letter in exported} == {group.fingerprint}
    assert await letters.count(fingerprint=group.fingerprint[:8], since="1h") == 3
    assert await letters.count(fingerprint=group.fingerprint, before="1h") == 0
    assert [letter async for letter in letters.export(queue="none")] == []
    (surge,) = await letters.surges(by="fingerprint")
    assert (surge.key, surge.surge.count.now) == (group.fingerprint, 3)


def test_dead_letters_are_exported_from_sync_code(tmp_path: Path) -> None:
    application = make_app(tmp_path)
    assert list(application.admin.dead_letters.export_sync()) == []
    assert application.admin.dead_letters.surges_sync() == []
    application.close()


async def test_groups_have_states_and_unknown_failures_are_reviewed(app: Tidegate) -> None:
    @app.task(name="odd", max_attempts=1)
    async def odd() -> None:
        raise KeyError("tags")

    handle = await odd.enqueue()
    async with app.worker():
        await asyncio.gather(handle.result("20s"), return_exceptions=True)
    letters, failures = app.admin.dead_letters, app.admin.failures
    (group,) = await letters.groups()
    assert (group.state, group.marked_at) == ("open", None)
    await letters.resolve(group.fingerprint[:8], note="mended", by="ada")
    (group,) = await letters.groups(state="resolved")
    assert (group.state, group.note, group.marked_by) == ("resolved", "mended", "ada")
    await letters.mute(group.fingerprint, duration="1h")
    assert [each.state for each in await letters.groups()] == ["muted"]
    assert await letters.reopen(group.fingerprint)
    assert await letters.groups(state="muted") == []
    with pytest.raises(OptionError):
        await letters.groups(state="gone")

    (found,) = await failures.unknown()
    assert (found.fingerprint, found.tasks, found.rule) == (group.fingerprint, 1, "retry=[discard(KeyError)]")
    await failures.mark_reviewed(found.fingerprint, note="known")
    assert await failures.unknown() == []
    (found,) = await failures.unknown(with_reviewed=True)
    assert found.note == "known"
    with pytest.raises(OptionError):
        await failures.unknown(queue="default")
