"""While a transaction holds an old snapshot, claims do not scan everything claimed since."""

from __future__ import annotations

from collections.abc import Collection

import psycopg
from store_build import Build, succeeded

from tidegate.domain.spec import Priority
from tidegate.store.postgres.channels import COSTLY_ENTRIES, FULL_PEEK_SECONDS, Channel, KnownChannels
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.rows import ClaimRequest, CrashPolicy

QUEUES = ("bulk", "vip")
ASK = ClaimRequest("worker", 10, queues=QUEUES, functions={"app:work": CrashPolicy()})


class Clock:
    """Monotonic seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def channel(queue: str, first_rank: float | None) -> Channel:
    return Channel(queue, 1, "", "app:work", 0, first_rank, ())


def bounds(known: KnownChannels) -> dict[str, float] | None:
    """Return where the next scan begins in each queue; None if it scans everything."""
    queues, *_, ranks = known.known_columns(ASK)
    return None if queues is None or ranks is None else dict(zip(queues, ranks, strict=True))


def test_a_cheap_scan_sets_no_bounds() -> None:
    known = KnownChannels(Clock())
    known.remember(ASK, [channel("bulk", 5.0)], entries=COSTLY_ENTRIES - 1, everywhere=True)
    assert bounds(known) is None


def test_after_a_costly_scan_the_scans_of_the_next_second_start_at_its_first_task() -> None:
    clock = Clock()
    known = KnownChannels(clock)
    known.remember(ASK, [channel("bulk", 5.0)], entries=10 * COSTLY_ENTRIES, everywhere=True)
    assert bounds(known) == {"bulk": 5.0}
    known.remember(ASK, [channel("bulk", 7.0)], entries=3, everywhere=False)
    assert bounds(known) == {"bulk": 7.0}
    known.remember(ASK, [channel("bulk", None)], entries=3, everywhere=False)
    assert bounds(known) == {"bulk": 7.0}
    clock.now += FULL_PEEK_SECONDS
    assert bounds(known) is None


async def test_behind_an_old_snapshot_scans_stay_short_and_new_tasks_are_found_within_a_second(
    worker_url: str, store: PostgresStore, build: Build
) -> None:
    clock = Clock()
    store._channels = KnownChannels(clock)
    seen: list[int] = []
    found = store._channels.remember

    def noted(
        request: ClaimRequest, its_channels: Collection[Channel], entries: int, *, everywhere: bool
    ) -> None:
        seen.append(entries)
        found(request, its_channels, entries, everywhere=everywhere)

    store._channels.remember = noted  # type: ignore[method-assign]
    worker = await build.worker()
    with psycopg.connect(worker_url) as report:
        report.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        report.execute("SELECT 1 FROM tidegate.ready")
        for _ in range(6):
            await build.enqueue(500, queue="bulk")
            tasks = await build.claim(worker, 500, queues=QUEUES)
            await store.finish([succeeded(task.fence) for task in tasks])
        await build.enqueue(30, queue="bulk")
        clock.now += FULL_PEEK_SECONDS
        seen.clear()
        for _ in range(3):
            assert len(await build.claim(worker, 10, queues=QUEUES)) == 10
        everywhere, *later = seen
        assert everywhere > COSTLY_ENTRIES
        assert max(later) < 100
        urgent = await build.one(queue="vip", priority=Priority.INTERACTIVE)
        clock.now += FULL_PEEK_SECONDS
        tasks = await build.claim(worker, 10, queues=QUEUES)
        assert [task.fence.task_id for task in tasks] == [urgent]
