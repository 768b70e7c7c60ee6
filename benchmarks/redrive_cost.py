"""What a redrive of 100,000 dead letters costs the tasks that run meanwhile. `benchmarks.operate` runs it.

One process claims and finishes small tasks as fast as it can. Another advances operations as maintenance
does, but pauses in every second window. Windows are short and alternate, so that other load on the machine
meets both alike.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from benchmarks.harness import log_progress
from tidegate.codec.tags import CODEC
from tidegate.deadletter.runner import OperationRunner
from tidegate.domain.ids import IdMaker
from tidegate.domain.outcome import Succeeded
from tidegate.domain.spec import Priority
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.operations import bulk
from tidegate.store.connect import open_store
from tidegate.store.operation_rows import OperationRow, OperationState
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimRequest, CrashPolicy, NewTask, TaskFilter
from tidegate.store.worker_rows import NewWorker
from tidegate.worker.maintenance.loop import OPERATION_STEP_SECONDS

LETTERS = 100_000
SLOTS = 8
QUEUE, FUNCTION, LETTER, UPSTREAM = "live", "app:live", "app:letter", "llm"
WINDOW_SECONDS = 1.0
PAIRS = 16
IDLE_SECONDS = 1.0
"""Time between two rounds of maintenance with nothing to do, as with the default settings."""
RANDOM_BITS = 0x2545F4914F6CDD1D

_SERIES = {
    "sqlite": "WITH RECURSIVE s (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i + 1 < {count})",
    "postgres": "WITH s (i) AS (SELECT generate_series(0, {count} - 1))",
}
_ID = {
    "sqlite": "unhex(printf('%012x7000800000000000%04x', {at} * 1000 + i, 9))",
    "postgres": "(lpad(to_hex({at}::bigint * 1000 + i), 12, '0') || '70008000000000000009')::uuid",
}
_ROWS = (
    (
        "INSERT INTO {schema}task (id, queue, function, upstream, priority, enqueued_at)",
        "SELECT {id}, 'live', 'app:letter', 'llm', 1, {at} + i * 0.4 FROM s",
    ),
    (
        "INSERT INTO {schema}payload (task_id, codec_tag, args)",
        "SELECT {id}, 'json/1', {args} FROM s",
    ),
    (
        """INSERT INTO {schema}dead (
            task_id, queue, function, tenant, reason, error_class, message, run, failed_at
        )""",
        "SELECT {id}, 'live', 'app:letter', '', 'network', 'E', 'no', 1, {at} + i * 0.4 FROM s",
    ),
)


def statements(kind: str, schema: str, count: int = LETTERS) -> list[str]:
    """Return the SQL that writes the letters."""
    at = int(time.time()) - 300_000
    args = "x'7b7d'" if kind == "sqlite" else "'{}'::bytea"
    values = {"id": _ID[kind].format(at=at), "at": at, "args": args}
    series = _SERIES[kind].format(count=count)
    found = []
    for insert, select in _ROWS:
        into, text = insert.format(schema=schema), select.format(**values)
        found.append(f"{into} {series} {text}" if kind == "sqlite" else f"{series} {into} {text}")
    return found


class LiveWork:
    """Enqueues, claims and finishes small tasks without a pause.

    Args:
        store: A client of its own.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._make_id = IdMaker(lambda: time.time_ns() // 1_000_000, lambda bits: RANDOM_BITS >> (64 - bits))
        self.finished = 0
        """Tasks that are not letters."""

    async def run(self) -> None:
        """Work until cancelled."""
        policies = {FUNCTION: CrashPolicy(), LETTER: CrashPolicy()}
        request = ClaimRequest("bench", SLOTS, (QUEUE,), policies)
        beat = 0.0
        while True:
            if time.monotonic() > beat:
                await self._store.extend_leases(["bench"], 600.0)
                beat = time.monotonic() + 5.0
            await self._store.enqueue([self._task() for _ in range(SLOTS)])
            tasks = (await self._store.claim(request)).tasks
            await self._store.finish([Succeeded(task.fence, b"null", CODEC) for task in tasks])
            self.finished += sum(task.function == FUNCTION for task in tasks)

    def _task(self) -> NewTask:
        return NewTask(self._make_id(), FUNCTION, QUEUE, Priority.NORMAL, b"{}", CODEC)


class Maintenance:
    """A process that does maintenance while it is on.

    Args:
        process: Runs `obey`.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def turn(self, *, on: bool) -> None:
        """Let it work, or pause after the current round."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"on\n" if on else b"off\n")


async def obey(url: str, work: Callable[[Store], Callable[[], Awaitable[float]]]) -> None:
    """Do rounds of maintenance of a store while the last line of stdin is `on`.

    Args:
        url: The store.
        work: Returns a function that does one round and returns the seconds until the next.
    """
    store, reader = open_store(url), asyncio.StreamReader()
    await store.open()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    run_round, is_on = work(store), asyncio.Event()

    async def run() -> None:
        while True:
            await is_on.wait()
            await asyncio.sleep(await run_round())

    job = asyncio.create_task(run())
    while line := await reader.readline():
        if line == b"on\n":
            is_on.set()
        else:
            is_on.clear()
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)
    await store.close()


def advance(store: Store) -> Callable[[], Awaitable[float]]:
    """Return what maintenance does with operations."""
    runner = OperationRunner(store)

    async def run_round() -> float:
        return OPERATION_STEP_SECONDS if await runner.run_once() else IDLE_SECONDS

    return run_round


async def rate(live: LiveWork) -> float:
    """Return how many tasks a second finish in the next window."""
    before, began = live.finished, time.perf_counter()
    await asyncio.sleep(WINDOW_SECONDS)
    return (live.finished - before) / (time.perf_counter() - began)


@asynccontextmanager
async def working(
    store: Store, url: str, module: str = "benchmarks.redrive_cost"
) -> AsyncIterator[tuple[LiveWork, Maintenance]]:
    """Live work, and maintenance in another process, which runs a module."""
    await store.save_manifest("bench", {"functions": {FUNCTION: {}, LETTER: {}}})
    await store.declare_limits(
        [
            LimitDeclaration(GateKind.SYSTEM, "", Limits(retries_per_minute=600_000.0)),
            LimitDeclaration(GateKind.UPSTREAM, UPSTREAM, Limits()),
        ]
    )
    await store.add_worker(
        NewWorker("bench", "bench", "p", "h", 1, (QUEUE,), SLOTS, 600.0, application="bench")
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, url, stdin=asyncio.subprocess.PIPE
    )
    live = LiveWork(store)
    work = asyncio.create_task(live.run())
    try:
        yield live, Maintenance(process)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def lost_shares(live: LiveWork, maintenance: Maintenance) -> tuple[float, float, float]:
    """Return the quartiles of the share of its rate that live work loses while maintenance is on."""
    lost = []
    for number in range(PAIRS):
        rates = {}
        for on in (True, False) if number % 2 else (False, True):
            maintenance.turn(on=on)
            rates[on] = await rate(live)
        lost.append(1 - rates[True] / rates[False])
    low, middle, high = statistics.quantiles(lost, n=4)
    return low, middle, high


async def cost(
    store: Store, live: LiveWork, maintenance: Maintenance, reached: Callable[[OperationRow], bool]
) -> float:
    """Return the share of the rate that live work loses to a redrive, from when `reached` holds."""
    row = await bulk.start_redrive(store, TaskFilter(function=LETTER), by="bench")
    maintenance.turn(on=True)
    while not reached(row):
        await asyncio.sleep(0.05)
        row = await bulk.get_operation(store, row.id)
    low, middle, high = await lost_shares(live, maintenance)
    row = await bulk.abort(store, row.id, by="bench")
    maintenance.turn(on=True)
    log_progress(f"    {middle:.1%} lost ({low:.1%} to {high:.1%}); {row.chosen} chosen, {row.sent} sent")
    return middle


async def measure_costs(store: Store, url: str) -> dict[str, float]:
    """Return the share of the rate that live work loses to each phase of a redrive."""
    async with working(store, url) as (live, maintenance):
        choosing = await cost(store, live, maintenance, lambda row: row.state is OperationState.CHOOSING)
        sending = await cost(store, live, maintenance, lambda row: row.sent > 0)
        await store.park_gate(UPSTREAM, seconds=None, why="bench")
        parked = await cost(store, live, maintenance, lambda row: "gate" in row.note)
        return {"redrive, choosing": choosing, "redrive, sending": sending, "redrive, gate parked": parked}


if __name__ == "__main__":
    asyncio.run(obey(sys.argv[1], advance))
