"""Forgetting: a canary that a task or tenant left in every place is then in no table, file or archive."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from store_build import Build, SettableClock, dead, retrying, succeeded

from tidegate.domain.failure import CallFailure, Failure, Reason, Verdict
from tidegate.domain.outcome import Fence
from tidegate.domain.retention import QueueRetention, Retention
from tidegate.domain.states import State
from tidegate.domain.step import DoubtAnswer, OnDoubt
from tidegate.errors import NotAcceptedError, TaskNotFoundError, UsageError
from tidegate.limits.settings import GateKind, LimitDeclaration
from tidegate.operations.forget import forget
from tidegate.store.access import NewAuditEntry
from tidegate.store.archive import archive_of
from tidegate.store.failure_rows import MarkKind
from tidegate.store.history_rows import HistoryRange
from tidegate.store.rows import ProgressUpdate
from tidegate.store.step_rows import BeginStatus, CacheTerms, EndStatus, StepBegin, StepEnd
from tidegate.store.streams import NewChunk
from tidegate.worker.maintenance.retention import RetentionSweep

pytestmark = pytest.mark.anyio

CANARY = "canarywqzx"
FAILED = Failure(
    Verdict.TRANSIENT,
    Reason.NETWORK,
    message=f"the {CANARY} refused",
    error_class="builtins.OSError",
    traceback=f'Traceback (most recent call last):\n  File "app.py", line 1, in f\nOSError: {CANARY}',
    evidence=CANARY,
    request_id=CANARY,
)


async def canary_tasks(build: Build, tenant: str = "") -> list[str]:
    """Return a succeeded and a dead task that left the canary wherever a task can hold text."""
    ids = []
    for end in (State.SUCCEEDED, State.DEAD):
        task = await build.run(
            queue=f"q-{end}",
            tenant=tenant,
            args=f'{{"prompt":"{CANARY}"}}'.encode(),
            key=f"{CANARY}-{end}",
            unique=f"{CANARY}-{end}",
            labels={"customer": CANARY},
        )
        await build.store.save_progress([ProgressUpdate(task.fence, 1, 2, CANARY)])
        await build.store.append_chunks([NewChunk(task.fence, 1, f'"{CANARY}"'.encode())])
        await leave_steps(build, task.fence, tenant)
        await build.done(retrying(task.fence, failure=FAILED, why=CANARY))
        await build.store.run_now([task.fence.task_id])
        (task,) = await build.claim(await build.worker(), queues=(f"q-{end}",))
        ended = (
            succeeded(task.fence, f'"{CANARY}"'.encode())
            if end is State.SUCCEEDED
            else dead(task.fence, failure=FAILED, why=CANARY)
        )
        await build.done(ended)
        ids.append(task.fence.task_id)
        entry = NewAuditEntry(
            build.id(), "ada", "admin", tenant or None, "retry", ids[-1], "done", f"for {CANARY}"
        )
        await build.store.add_audit_entries([entry])
        await build.store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, f"up-{end}")])
        shown = CallFailure(Reason.NETWORK, message=f"reset by {CANARY}", task_id=ids[-1])
        await build.store.report_failure(f"up-{end}", shown)
    await build.store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "older")])
    await build.store.report_failure("older", CallFailure(Reason.NETWORK, message=FAILED.message))
    await build.store.compact_history()
    now = await build.store.now()
    for group in await build.store.list_failure_groups(HistoryRange(now - 3_600.0, now + 60.0)):
        await build.store.mark_failure(group.fingerprint, MarkKind.MUTED, by="ada", note=f"{CANARY} again")
    return ids


async def leave_steps(build: Build, fence: Fence, tenant: str) -> None:
    """Leave the canary in a step, in its result, in the cache, and in what a person said of
    a doubt."""
    begins = [StepBegin(fence, f"{CANARY}-{key}", 1, CANARY, OnDoubt.ASK, CANARY) for key in "ab"]
    await build.store.begin_steps(begins)
    done = StepEnd(fence, f"{CANARY}-a", 1, EndStatus.DONE, f'"{CANARY}"'.encode(), "json")
    doubt = StepEnd(
        fence, f"{CANARY}-b", 1, EndStatus.IN_DOUBT, cause=CANARY, upstream=CANARY, request_id=CANARY
    )
    await build.store.end_steps([done, doubt])
    cache = CacheTerms(CANARY, tenant, is_shared=False, seconds=3_600.0)
    cached = StepBegin(fence, f"{CANARY}-c", 1, CANARY, cache=cache)
    assert (await build.store.begin_cached_step(cached)).status in (BeginStatus.BEGUN, BeginStatus.DONE)
    await build.store.end_cached_step(
        StepEnd(fence, f"{CANARY}-c", 1, EndStatus.DONE, f'"{CANARY}"'.encode(), "json", cache=cache)
    )
    (entry,) = await build.store.list_doubts(task_id=fence.task_id)
    await build.store.resolve_doubts([entry.id], DoubtAnswer.REPEAT, by=CANARY, note=CANARY)


async def places_of(build: Build, text: str) -> list[str]:
    """Return the tables in which a text is found, by looking at every column of every table."""
    store: Any = build.store
    if hasattr(store, "path"):
        import apsw

        db = apsw.Connection(str(store.path), flags=apsw.SQLITE_OPEN_READONLY)
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = []
        for table in tables:
            needle = text.encode()
            for row in db.execute(f"SELECT * FROM {table}"):
                if any(
                    needle in (v.encode() if isinstance(v, str) else v)
                    for v in row
                    if isinstance(v, str | bytes)
                ):
                    found.append(table)
                    break
        db.close()
        return found

    async def look(db: Any) -> list[str]:
        tables = await db.column(
            "SELECT relname FROM pg_class WHERE relnamespace = 'tidegate'::regnamespace AND relkind = 'r'"
        )
        found = []
        for table in tables:
            statement = (
                f"SELECT EXISTS (SELECT 1 FROM /*schema*/{table} AS t WHERE position($1 IN t::text) > 0"
                " OR position(encode(convert_to($1, 'UTF8'), 'hex') IN t::text) > 0)"
            )
            if await db.value(statement, text):
                found.append(table)
        return found

    found: list[str] = await store._read(look)
    return found


async def test_the_bytes_of_a_forgotten_task_are_in_no_table(build: Build) -> None:
    ids = await canary_tasks(build)
    other = await build.in_state(State.SUCCEEDED)
    assert {
        "task",
        "payload",
        "result",
        "attempt",
        "chunk",
        "progress",
        "key",
        "audit",
        "failure_group",
        "failure_mark",
        "gate",
        "dead",
        "step",
        "doubt",
    } <= {*await places_of(build, CANARY)}

    for task_id in ids:
        report = await forget(build.store, task_id=task_id, by="ada")
        assert report.tasks == 1

    assert await places_of(build, CANARY) == []
    assert await build.states([*ids, other]) == {other: State.SUCCEEDED}
    entries = await build.store.list_audit_entries(limit=9)
    assert [(entry.action, entry.target) for entry in entries if entry.action == "forget"] == [
        ("forget", task_id) for task_id in reversed(ids)
    ]
    await build.sound()


async def test_a_forgotten_tenant_is_in_no_table_and_others_are_unchanged(build: Build) -> None:
    await canary_tasks(build, tenant=CANARY)
    other = await build.in_state(State.SUCCEEDED, tenant="other")

    planned = await forget(build.store, tenant=CANARY, dry_run=True)
    assert (planned.tasks, planned.unfinished, planned.is_dry_run) == (2, 0, True)
    assert await places_of(build, CANARY) != []
    report = await forget(build.store, tenant=CANARY)

    assert report.tasks == 2
    assert report.other_rows > 0
    assert await places_of(build, CANARY) == []
    assert (await build.row(other)).tenant == "other"
    again = await forget(build.store, tenant=CANARY)
    assert (again.tasks, again.other_rows) == (0, 0)
    await build.sound()


async def test_the_archive_is_rewritten_without_the_forgotten(
    build: Build, clock: SettableClock, tmp_path: Path
) -> None:
    await canary_tasks(build, tenant=CANARY)
    other = await build.in_state(State.SUCCEEDED, queue="soon")
    retention = Retention(archive=str(tmp_path), results="1d", queues={"soon": QueueRetention(finished="1d")})
    archive = archive_of(retention)
    assert archive is not None
    clock.advance(2 * 86_400)
    sweep = RetentionSweep(build.store, retention, clock=time.monotonic)
    while await sweep.run_once() is not None:
        pass
    assert any(CANARY in str(row) for row in archive.rows())

    report = await forget(build.store, tenant=CANARY, archive=archive)

    assert report.archived_rows == 1, "the result that had left the store"
    assert {row.task_id for row in archive.rows()} == {other}
    assert CANARY.encode() not in b"".join(bytes_of(tmp_path))


def bytes_of(folder: Path) -> list[bytes]:
    """Return the content of all files of a folder, without compression."""
    import gzip

    return [
        gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    ]


async def test_what_is_left_of_a_deleted_task_can_be_forgotten_by_its_full_id(
    build: Build, clock: SettableClock
) -> None:
    (done, _) = await canary_tasks(build)
    clock.advance(86_400)
    sweep = RetentionSweep(build.store, Retention(finished="1h", dead="1h"), clock=time.monotonic)
    while await sweep.run_once() is not None:
        pass
    assert "key" in await places_of(build, CANARY)

    assert (await forget(build.store, task_id=done.upper())).tasks == 0

    assert await places_of(build, f"{CANARY}-succeeded") == []
    for no_full_id in ("00000000", "z" * 8 + "-zzzz-zzzz-zzzz-" + "z" * 12):
        with pytest.raises(TaskNotFoundError):
            await forget(build.store, task_id=no_full_id)


@pytest.mark.parametrize("state", [State.SCHEDULED, State.READY, State.RUNNING, State.RETRYING])
async def test_tasks_that_are_not_final_are_refused_and_nothing_is_forgotten(
    build: Build, state: State
) -> None:
    task_id = await build.in_state(state, tenant="acme")
    done = await build.in_state(State.SUCCEEDED, tenant="acme")

    with pytest.raises(NotAcceptedError, match="1 task is not final; nothing was forgotten"):
        await forget(build.store, tenant="acme")
    with pytest.raises(NotAcceptedError):
        await forget(build.store, task_id=task_id)

    assert set(await build.states([task_id, done])) == {task_id, done}
    assert await build.store.forget_tasks([task_id]) == []


async def test_tasks_that_wait_are_cancelled_first_if_asked(build: Build) -> None:
    ids = [await build.in_state(state, tenant="acme") for state in (State.SCHEDULED, State.READY)]
    assert (await forget(build.store, tenant="acme", cancel=True)).tasks == 2
    assert await build.states(ids) == {}


async def test_it_must_be_clear_what_to_forget(build: Build) -> None:
    for choice in ({}, {"task_id": "0", "tenant": "acme"}):
        with pytest.raises(UsageError, match="not clear"):
            await forget(build.store, **choice)  # type: ignore[arg-type]
