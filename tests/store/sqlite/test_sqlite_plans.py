"""The plans of hot statements with many rows: they use the index, sort nothing and touch no other rows."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from sqlite_support import plan
from store_build import START, Build, SettableClock

from tidegate.store.sqlite import query
from tidegate.store.sqlite.job import Mode
from tidegate.store.sqlite.statements import load
from tidegate.store.sqlite.store import SqliteStore
from tidegate.store.task_tables import TASK_TABLES, TaskTable, statement_for

READY = 100_000
SCHEDULED = 100_000
SOME = (query.array((bytes(16), b"\x01" * 16)),)

FILL = f"""
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {READY})
INSERT INTO ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
SELECT
    unhex(format('%032x', n)), 'q' || (n % 3), n % 3, 'u' || (n % 2), 'f' || (n % 4), '', {START} + n, {START}, 0
FROM numbers;
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {SCHEDULED})
INSERT INTO waiting (task_id, state, due_at, queue, priority, upstream, function, tenant, rank, run)
SELECT
    unhex(format('%032x', {READY} + n)), 'scheduled', {START} + 86400 + n, 'q', 1, '', 'f', '', 0, 0
FROM numbers;
"""


@pytest.fixture(scope="module", params=["", "ANALYZE"], ids=["no statistics", "statistics"])
async def full(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SqliteStore]:
    """A store with 100,000 ready and 100,000 scheduled rows, with or without table statistics."""
    path: Path = tmp_path_factory.mktemp("plans") / "queue.db"
    store = SqliteStore(path, clock=SettableClock())
    await store.open()
    await store._runner.run(lambda db: db.execute(FILL + request.param).fetchall(), Mode.WRITE)
    yield store
    await store.close()


async def test_the_claim_reads_a_channel_from_its_index_alone(full: SqliteStore) -> None:
    steps = await plan(full, load("claim")["peek"], ("q1", 1, "u1", "f1", 100))
    assert steps == [
        "SEARCH ready USING COVERING INDEX ready_channel (queue=? AND priority=? AND upstream=? AND function=?)"
    ]


async def test_the_claim_finds_the_next_channel_from_the_index_alone(full: SqliteStore) -> None:
    [step] = await plan(full, load("claim")["next_channel"], ("q1", 1, "u1", "f1"))
    assert step.startswith("SEARCH ready USING COVERING INDEX ready_channel (")


async def test_stepping_over_channels_does_not_scan_them(full: SqliteStore) -> None:
    """Each of the twelve channels has thousands of tasks; stepping over one takes a few instructions."""
    sql = load("claim")["next_channel"]

    def walk(db: apsw.Connection) -> list[int]:
        at: tuple[Any, ...] = ("", -1, "", "")
        costs = []
        while found := db.execute(sql, at).fetchall():
            costs.append(instructions(db, sql, at))
            [at] = found
        return costs

    costs = await full._runner.run(walk, Mode.READ)
    assert len(costs) == 12
    assert max(costs) < 100


async def test_the_promotion_reads_only_due_tasks(full: SqliteStore) -> None:
    [step] = await plan(full, load("promote")["due"], (START, 500))
    assert step == "SEARCH waiting USING INDEX waiting_due (<expr><?)"


@pytest.mark.parametrize(
    ("operation", "statement", "more"),
    [
        ("claim", "load", ()),
        ("claim", "start", ("w", 0.0, 3, 1.0, 2.0)),
        ("claim", "remove", ()),
        ("claim", "resume", (0.0,)),
        ("finish", "current", ()),
        ("finish", "succeed", (0.0,)),
        ("finish", "count_succeeded", (0.0, 1)),
        ("finish", "unique_names", ()),
        ("finish", "end_all", ()),
        ("promote", "ready", (0.0,)),
        ("promote", "leave", ()),
        ("read_tasks", "read", ()),
        ("release_batches", "ready", ()),
        ("release_batches", "remove", ()),
        ("delete_final_tasks", "archive", (1.0,)),
        ("delete_final_tasks", "dead", (1.0,)),
    ],
)
async def test_batches_by_id_search_and_never_scan(
    full: SqliteStore, operation: str, statement: str, more: tuple[object, ...]
) -> None:
    steps = await plan(full, load(operation)[statement], (*SOME, *more))
    scans = [step for step in steps if step.startswith("SCAN") and "VIRTUAL TABLE" not in step]
    assert scans == []


@pytest.mark.parametrize("table", TASK_TABLES, ids=lambda table: table.name)
async def test_statements_for_each_table_of_task_data_search_and_never_scan(
    full: SqliteStore, table: TaskTable
) -> None:
    marked = {"with_unmarked_part", "mark_part"}
    for name, statement in load("task_tables").items():
        if table.is_marked or name not in marked:
            steps = await plan(full, statement_for(table, statement), SOME)
            assert [s for s in steps if s.startswith("SCAN") and "VIRTUAL TABLE" not in s] == [], name


@pytest.mark.parametrize(
    ("operation", "statement", "bindings"),
    [
        ("claim", "retired", ("w",)),
        ("finish", "end", (b"", 1)),
        ("finish", "spend", (b"", 0.0, 1, 0, 0, 0, 0, None, None, None)),
        ("finish", "use", (b"", 1, 1, 0, 0, 1, 0)),
        ("finish", "was_success", (b"", 1)),
        ("finish", "was_attempt", (b"", 1)),
        ("save_progress", "save", (b"", 1, 0.0, 1.0, None, "")),
        ("actions", "where", (b"",)),
        ("keys", "holder", ("key", "", "k")),
        ("extend_leases", "beat", ("w", 0.0, 1.0)),
        ("list_cancel_requests", "requested", ("w",)),
        ("find_lost_claims", "wait", ("w",)),
        ("find_lost_claims", "held", ("w",)),
        ("retire_worker", "lock", ("w",)),
        ("promote", "is_due", (0.0,)),
        ("promote", "is_early", ("u", 1.0, 2.0)),
        ("get_result", "result", (b"",)),
        ("get_history", "attempts", (b"",)),
        ("list_final_tasks", "archive", (0.0, b"", 1.0, 1.0, 10)),
        ("list_final_tasks", "dead", (0.0, b"", 1.0, 1.0, 10)),
        ("delete_expired", "has_expired_keys", (0.0,)),
        ("get_queue_stats", "done", (1, 2)),
        ("commit_batch", "keyed", ("s", 0, 10)),
        ("commit_batch", "losers", ("s",)),
        ("enqueue_part", "last_position", ("s",)),
    ],
)
async def test_single_row_statements_search_and_never_scan(
    full: SqliteStore, operation: str, statement: str, bindings: tuple[object, ...]
) -> None:
    steps = await plan(full, load(operation)[statement], bindings)
    short = ("CONSTANT ROW", "SCAN tally", "SCAN (subquery")  # maintenance folds the tally each minute
    scans = [step for step in steps if step.startswith("SCAN") and not any(each in step for each in short)]
    assert scans == []


async def test_orphans_are_found_from_the_few_retired_workers(full: SqliteStore) -> None:
    steps = await plan(full, load("list_orphans")["orphans"], (10,))
    assert steps[:2] == ["SCAN w", "SEARCH r USING INDEX running_worker (worker_id=?)"]


async def test_counts_of_finished_tasks_read_no_finished_task(full: SqliteStore) -> None:
    for name, sql in load("get_queue_stats").items():
        assert "archive" not in sql, name


async def test_ready_tasks_are_counted_in_the_order_of_their_index_without_sorting(full: SqliteStore) -> None:
    steps = await plan(full, load("get_queue_stats")["ready"], ())
    assert steps == ["SCAN ready USING INDEX ready_channel"]


async def test_a_list_of_one_state_reads_its_own_table_in_order(full: SqliteStore) -> None:
    for table, sql in load("list_tasks").items():
        bindings = ("ready", None, None, None, None, None, None, None, b"\xff" * 17, 10)
        steps = await plan(full, sql, bindings)
        assert "USE TEMP B-TREE FOR ORDER BY" not in steps or table == "enqueue_batch_task"
        assert any(step.startswith("SEARCH x USING") for step in steps), table
        index = {"cancelled": "archive_cancelled", "waiting": "waiting_state"}.get(table, "")
        assert index in steps[0]


async def test_waiting_rows_do_not_slow_a_claim_or_a_finish(full: SqliteStore) -> None:
    """A generous bound: a scan of the 200,000 rows would take far longer."""
    build = Build(full, SettableClock())
    worker = await build.worker()
    await build.enqueue(50, queue="fresh")
    began = time.monotonic()
    for _ in range(50):
        [task] = await build.claim(worker, 1, queues=("fresh",))
        assert uuid.UUID(task.fence.task_id)
    assert time.monotonic() - began < 5.0


def instructions(db: apsw.Connection, sql: str, bindings: tuple[Any, ...]) -> int:
    """Return how many virtual machine instructions SQLite needs for a prepared statement."""
    counted = 0

    def tick() -> bool:
        nonlocal counted
        counted += 1
        return False

    db.set_progress_handler(tick, 1)
    try:
        db.execute(sql, bindings).fetchall()
    finally:
        db.set_progress_handler(None)
    return counted


async def test_runs_in_flight_are_counted_from_the_indexes_of_their_upstream_alone(full: SqliteStore) -> None:
    steps = await plan(full, load("gates")["in_flight"], ("u1", START))
    searches = [step for step in steps if "SEARCH" in step or "SCAN running" in step or "SCAN permit" in step]
    assert searches == [
        "SEARCH running USING COVERING INDEX running_upstream (upstream=?)",
        "SEARCH p USING INDEX permit_upstream (upstream=? AND expires_at>?)",
        "SEARCH r USING PRIMARY KEY (task_id=?)",
    ]


async def test_a_page_of_dead_letters_is_read_from_where_it_begins_in_the_index_alone(
    full: SqliteStore,
) -> None:
    steps = await plan(full, load("list_dead_letters")["page"], (*[None] * 9, 1.0, b"", 10))
    assert "SEARCH d USING COVERING INDEX dead_failed (failed_at>? AND failed_at<?)" in steps
