"""Requests to workers: store them, and wait until the workers have applied them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidegate.domain.readers import shown
from tidegate.errors import NotAcceptedError
from tidegate.operations.pauses import record
from tidegate.store.controls import ALL_WORKERS, STARTED, ControlKind, wanted_settings
from tidegate.store.live_workers import is_live
from tidegate.store.protocol import Store
from tidegate.store.worker_rows import EMBEDDED_WORKER_NAME, WorkerRow

WAIT_SECONDS = 10.0
"""How long a command waits by default until the workers have applied a change."""
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Change:
    """A stored change, and the workers that should apply it."""

    kind: ControlKind
    name: str
    version: int
    reporters: Mapping[str, str]
    """A description of each worker that should report, by the name under which it reports."""


async def quiet(store: Store, name: str, *, by: str, why: str = "") -> Change:
    """Let a worker, or one of its processes, claim no more tasks.

    The worker finishes running tasks and stays up.

    If `name` is a worker's name, the worker stays quiet until it is resumed, even after a restart. If it is
    the id of a process, that process is quiet until it ends.

    Args:
        store: Holds the requests.
        name: The worker's name, or the id of one process.
        by: Who makes the request.
        why: The reason.

    Raises:
        NotAcceptedError: No live worker has this name or id.
    """
    targets = await _workers(store, name)
    return await _change(store, ControlKind.QUIET, name, 1, targets, by=by, why=why, action="worker quieted")


async def resume(store: Store, name: str, *, by: str, why: str = "") -> Change:
    """Let a worker or process claim again; a worker's name resumes its processes too.

    Raises:
        NotAcceptedError: No live worker has this name or id, and no worker of this name is quiet.
    """
    rows = [row for row in await store.list_controls() if row.kind is ControlKind.QUIET and row.value == 1]
    targets = await _workers(store, name, or_none=name in {row.name for row in rows})
    ids = {worker.id for worker in targets}
    for row in rows:
        if row.name in ids and row.name != name:
            await store.set_control(ControlKind.QUIET, row.name, 0, by=by, why=why)
    return await _change(store, ControlKind.QUIET, name, 0, targets, by=by, why=why, action="worker resumed")


async def set_concurrency(
    store: Store, pool: str, concurrency: int | None, *, by: str, why: str = ""
) -> Change:
    """Change how many tasks each process of a pool runs at once; None restores the number in the code.

    Raises:
        NotAcceptedError: No live worker has such a pool.
    """
    live = await _live(store)
    targets = [worker for worker in live if worker.pool == pool and worker.name != EMBEDDED_WORKER_NAME]
    if not targets:
        known = sorted({worker.pool for worker in live}) or ["none"]
        raise NotAcceptedError(
            f"no live worker has a pool named {shown(pool)}", fix=f"pools: {', '.join(known)}"
        )
    kind = ControlKind.CONCURRENCY
    return await _change(store, kind, pool, concurrency, targets, by=by, why=why, action="concurrency set")


async def reload(store: Store, name: str | None = None, *, by: str, why: str = "") -> Change:
    """Restart every process of a worker, or of all workers, with the current code on its machine.

    Raises:
        NotAcceptedError: No live worker has this name, or no worker is live.
    """
    targets = await _live(store) if name is None else await _workers(store, name)
    workers = [worker for worker in targets if worker.name != EMBEDDED_WORKER_NAME]
    if not workers:
        raise NotAcceptedError("no worker is live", fix="start one: tidegate worker MODULE:APP")
    reporters = {f"{each.name}@{each.host}": f"worker {each.name} on {each.host}" for each in workers}
    who = name or ALL_WORKERS
    version = await store.set_control(ControlKind.RELOAD, who, None, by=by, why=why)
    await record(store, by, "worker reload", who, f"version {version}", why)
    return Change(ControlKind.RELOAD, who, version, reporters)


async def wait_for_reports(store: Store, change: Change, seconds: float) -> dict[str, str | None]:
    """Wait until all workers have applied a change; return each reply by the worker's description.

    Args:
        store: Where the workers report.
        change: The change.
        seconds: How long to wait. After that, None stands for each missing reply. A process that has ended
            meanwhile does not count.
    """
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds
    while True:
        answers = await _answers(store, change)
        if all(answer is not None for answer in answers.values()) or loop.time() >= ends_at:
            return answers
        await asyncio.sleep(_LOOK_SECONDS)


async def _answers(store: Store, change: Change) -> dict[str, str | None]:
    reports = {
        report.reporter: report.answer
        for report in await store.list_control_reports(change.kind, change.name)
        if report.version >= change.version and report.answer != STARTED
    }
    here: Collection[str] = change.reporters
    if change.kind is not ControlKind.RELOAD:
        here = {worker.id for worker in await _live(store)}
    return {
        words: reports.get(reporter)
        for reporter, words in change.reporters.items()
        if reporter in here or reporter in reports
    }


async def _change(
    store: Store,
    kind: ControlKind,
    name: str,
    value: int | None,
    targets: Collection[WorkerRow],
    *,
    by: str,
    why: str,
    action: str,
) -> Change:
    version = await store.set_control(kind, name, value, by=by, why=why)
    await record(store, by, action, name, "code" if value is None else str(value), why)
    return Change(kind, name, version, {each.id: _describe(each) for each in targets})


def _describe(worker: WorkerRow) -> str:
    return f"worker {worker.name}, pool {worker.pool}, process {worker.host}:{worker.pid}"


async def _live(store: Store) -> list[WorkerRow]:
    now = await store.now()
    return [worker for worker in await store.list_workers() if is_live(worker, now)]


async def _workers(store: Store, name: str, *, or_none: bool = False) -> list[WorkerRow]:
    """Return the live processes of a worker, or the process with this id; embedded workers are left out."""
    live = [worker for worker in await _live(store) if worker.name != EMBEDDED_WORKER_NAME]
    found = [worker for worker in live if name in (worker.name, worker.id)]
    if not found and not or_none:
        known = ", ".join(sorted({worker.name for worker in live})) or "none"
        raise NotAcceptedError(f"no live worker is named {shown(name)}", fix=f"workers: {known}")
    return found


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """One pool, summed over all live workers."""

    name: str
    processes: int
    quiet: int
    """How many of the processes are quiet."""
    running: int
    slots: int
    concurrency: int | None
    """How many tasks a person lets each process run at once; None: as in the code."""
    set_by: str = ""

    def describe(self) -> str:
        """Return the concurrency as text."""
        return "as in the code" if self.concurrency is None else f"{self.concurrency}, set by {self.set_by}"


async def read_pools(store: Store) -> list[PoolStatus]:
    """Return the pools of the live workers, by name."""
    rows = await store.list_controls()
    by_name: dict[str, list[WorkerRow]] = {}
    for worker in await _live(store):
        by_name.setdefault(worker.pool, []).append(worker)
    found = []
    for name, workers in sorted(by_name.items()):
        wanted = [wanted_settings(rows, worker=w.name, worker_id=w.id, pool=name) for w in workers]
        number = next((r for r in rows if r.kind is ControlKind.CONCURRENCY and r.name == name), None)
        found.append(
            PoolStatus(
                name,
                processes=len(workers),
                quiet=sum(each.is_quiet for each in wanted),
                running=sum(worker.running for worker in workers),
                slots=sum(worker.slots for worker in workers),
                concurrency=None if number is None else number.value,
                set_by="" if number is None else number.changed_by,
            )
        )
    return found
