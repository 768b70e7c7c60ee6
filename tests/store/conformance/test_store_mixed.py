"""Concurrent operations on the same tasks and keys: counts are consistent and no task is stuck."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from store_back_ends import Clients, opened
from store_build import Build, SettableClock, dead, retrying, succeeded

from tidegate.domain.outcome import Charge, Dead, FinishStatus, Outcome, Released, Retrying, Succeeded
from tidegate.domain.spec import Priority
from tidegate.domain.states import FINAL, State
from tidegate.errors import KeyConflictError
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimedTask, TaskFilter

ROUNDS = 40
KEYS = 30


async def test_concurrent_operations_keep_counts_consistent(
    store: Store, clients: Clients, clock: SettableClock
) -> None:
    async with opened(clients) as second, opened(clients) as third:
        world = World([Build(one, clock) for one in (store, second, third)], clock)
        await asyncio.gather(*(work() for work in world.loops()))
        await world.drain()
        await world.judge()


class World:
    """Producers, workers and a reaper, and clients that cancel, redrive and reprioritise."""

    def __init__(self, builds: list[Build], clock: SettableClock) -> None:
        self.builds = builds
        self.clock = clock
        self.rng = random.Random(31)
        self.created: list[str] = []
        self.finals: Counter[str] = Counter()
        self.purged: set[str] = set()

    def loops(self):
        return [
            *[lambda n=n: self.produce(self.builds[n]) for n in (0, 1, 2)],
            *[lambda n=n: self.work(self.builds[n]) for n in (0, 1, 2)],
            lambda: self.cancel(self.builds[1]),
            lambda: self.redrive(self.builds[2]),
            lambda: self.rerank(self.builds[0]),
            lambda: self.reap(self.builds[1]),
        ]

    def some(self, count: int) -> list[str]:
        return self.rng.sample(self.created, min(count, len(self.created)))

    async def produce(self, build: Build) -> None:
        for _ in range(ROUNDS):
            new = [
                build.new(
                    id=self.builds[0].id(),
                    key=f"k{self.rng.randrange(KEYS)}" if self.rng.random() < 0.3 else None,
                    unique=f"u{self.rng.randrange(KEYS)}" if self.rng.random() < 0.3 else None,
                    delay_seconds=self.rng.choice([0.0, 0.0, 1.0]),
                    priority=self.rng.choice(list(Priority)),
                )
                for _ in range(self.rng.randint(1, 8))
            ]
            try:
                answers = await build.store.enqueue(new)
            except KeyConflictError:
                raise AssertionError("all fingerprints are the same") from None
            self.created += [answer.task_id for answer in answers if answer.created]

    async def work(self, build: Build) -> None:
        worker = await build.worker(id=f"w-{self.rng.random()}", lease=5.0)
        for _ in range(ROUNDS):
            self.clock.advance(0.1)
            await build.store.promote()
            claim = await build.store.claim(build.request(worker, self.rng.randint(1, 10)))
            if not claim.is_alive:
                worker = await build.worker(id=f"w-{self.rng.random()}", lease=5.0)
                continue
            await asyncio.sleep(0)
            await self.finish(build, claim.tasks)

    async def finish(self, build: Build, tasks: tuple[ClaimedTask, ...]) -> None:
        outcomes = [self.outcome(task) for task in tasks]
        for outcome, answer in zip(outcomes, await build.store.finish(outcomes), strict=True):
            assert answer in (FinishStatus.DONE, FinishStatus.FENCED)
            if answer is FinishStatus.DONE:
                self.finals[type(outcome).__name__] += 1

    def outcome(self, task: ClaimedTask) -> Outcome:
        chance = self.rng.random()
        if chance < 0.6:
            return succeeded(task.fence)
        if chance < 0.75:
            return retrying(task.fence, delay=self.rng.random())
        return dead(task.fence) if chance < 0.9 else Released(task.fence, "shutdown")

    async def cancel(self, build: Build) -> None:
        while not self.created:
            await asyncio.sleep(0)
        for _ in range(ROUNDS):
            await build.store.cancel(self.some(3))
            await asyncio.sleep(0)

    async def redrive(self, build: Build) -> None:
        for _ in range(ROUNDS):
            letters = [
                letter.task_id for letter in await build.store.list_dead_letters(TaskFilter(), limit=5)
            ]
            await build.store.redrive(letters[:3])
            purged = await build.store.purge(letters[4:])
            self.purged |= {task_id for task_id, answer in purged.items() if answer == "done"}

    async def rerank(self, build: Build) -> None:
        for _ in range(ROUNDS):
            await build.store.reprioritise(self.some(5), self.rng.choice(list(Priority)))
            await build.store.run_now(self.some(2))
            await asyncio.sleep(0)

    async def reap(self, build: Build) -> None:
        for n in range(ROUNDS):
            workers = await build.store.list_workers()
            if workers and n % 4 == 0:
                worker = self.rng.choice(workers)
                await build.store.retire_worker(worker.id, why="test", is_loss=True, only_if_expired=False)
            orphans = await build.store.list_orphans()
            await build.store.finish(
                [retrying(orphan.fence, delay=0.0, charge=Charge.LOSS) for orphan in orphans]
            )

    async def drain(self) -> None:
        """Run every live task until it is final."""
        build = self.builds[0]
        worker = await build.worker(id="last")
        for row in await build.store.list_workers():
            if row.id != worker:
                await build.store.retire_worker(row.id, why="over", is_loss=False, only_if_expired=False)
        orphans = await build.store.list_orphans()
        await build.store.finish([retrying(orphan.fence, delay=0.0) for orphan in orphans])
        while True:
            self.clock.advance(10)
            moved = await build.store.promote()
            tasks = await build.claim(worker)
            await build.store.finish([succeeded(task.fence) for task in tasks])
            if not moved and not tasks:
                return

    async def judge(self) -> None:
        store = self.builds[0].store
        rows = await store.read_tasks(self.created)
        assert len(set(self.created)) == len(self.created)
        assert set(rows) == set(self.created) - self.purged
        assert {row.state for row in rows.values()} <= FINAL
        by_state = Counter(row.state for row in rows.values())
        [stats] = await store.get_queue_stats()
        assert (stats.ready, stats.running, stats.scheduled, stats.retrying) == (0, 0, 0, 0)
        assert stats.dead == by_state[State.DEAD]
        assert await store.list_orphans() == []
        assert await store.check_integrity() == []
        # Without work in every loop the test would show nothing.
        assert by_state[State.CANCELLED] > 0
        assert min(self.finals[kind.__name__] for kind in (Succeeded, Retrying, Dead, Released)) > 0
        assert min(self.finals.values()) > 0
