"""Read all tasks of a store through the protocol that both stores implement."""

from __future__ import annotations

from checker.function_recorder import digest_of
from checker.observations import StoreSnapshot
from tidegate.domain.states import State
from tidegate.store.protocol import Store
from tidegate.store.rows import HistoryRow, TaskFilter, TaskRow

_PAGE = 500


async def read_snapshot(store: Store) -> StoreSnapshot:
    """Read all tasks with their histories, arguments and results.

    This is not one atomic snapshot: call it while nothing changes, or compare only final tasks.

    Raises:
        StoreError: The store cannot be reached.
    """
    rows = await _rows(store)
    histories: dict[str, tuple[HistoryRow, ...]] = {}
    payloads: dict[str, str] = {}
    results: dict[str, str] = {}
    for task_id, row in rows.items():
        histories[task_id] = tuple(await store.get_history(task_id))
        args, _ = await store.get_payload(task_id)
        payloads[task_id] = digest_of(args)
        if row.state is State.SUCCEEDED:
            stored = await store.get_result(task_id)
            results[task_id] = digest_of(stored.data) if stored is not None else ""
    return StoreSnapshot(rows, histories, payloads, results, tuple(await store.get_queue_stats()))


async def _rows(store: Store) -> dict[str, TaskRow]:
    rows: dict[str, TaskRow] = {}
    after: str | None = None
    while page := await store.list_tasks(TaskFilter(), after=after, limit=_PAGE):
        rows |= {row.id: row for row in page}
        after = page[-1].id
    return rows
