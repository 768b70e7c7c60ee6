"""The scenarios, and one run of each by Tidegate's worker processes or by the reference."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import Popen

from benchmarks.economics.provider import MEAN_TOKENS, ProviderOutage, QuotaProvider, ReceivedCall
from benchmarks.economics.reference import IdealScheduler
from benchmarks.processes import fresh_directory, worker_command
from benchmarks.usage import tree, tree_cpu_seconds
from tidegate import Tidegate
from tidegate.internals import core_of
from tidegate.store.connect import open_store
from tidegate.store.rows import TaskFilter

WORKERS = 3
SLOTS = 8
"""Of each worker, unless they grow."""


@dataclass(frozen=True)
class Scenario:
    """What is asked of whom."""

    name: str
    quota: float = 40.0
    """Calls a second."""
    latency: float = 0.2
    """Seconds until a response."""
    places: int | None = None
    """How many calls the provider works on at once; None: any number."""
    counts_tokens: bool = False
    """Whether the quota is tokens, and the application declares tokens a minute."""
    grows: bool = False
    """Whether the workers have the usual setting, `concurrency="auto"`, instead of 8 slots each."""
    load: float = 0.6
    """Arrivals as a part of the quota."""
    seconds: float = 30.0
    """Of arrivals, from the first call."""
    outage: ProviderOutage | None = None
    poisoned: int = 0
    faulty: int = 0
    """Tasks at the start of which each call meets `fault`."""
    fault: int = 500
    """A status; 0: their calls are never answered."""
    backoff: float | None = None
    """Seconds between the attempts of a task; None: the usual ones."""
    kills: bool = False
    """One of the three worker processes is killed for good at half time."""
    drains: bool = True
    """False: it is looked at only while tasks arrive."""
    declared: float | None = 1.0
    """The limit that the application declares, as a part of the quota; None: it declares none."""
    window: float | None = None
    """Seconds of the provider's fixed windows; None: its quota refills evenly."""
    shows_limits: bool = False
    names_wait: bool = True
    slow_start: float = 9.0
    call_seconds: float = 12.0

    @property
    def tasks(self) -> int:
        return round(self.quota * self.load * self.seconds)


def scenarios(scale: float) -> list[Scenario]:
    """Return all scenarios, outages and their times scaled: 1 is a minute's outage and all usual settings."""
    away, quota, load = 60 * scale, 60.0, 0.6
    # What an outage may cost, those in flight and a probe a second, is to be a fiftieth of what is needed.
    arrivals = max(150 * scale, (WORKERS * SLOTS + away) / (quota * load) * 50)
    times = {
        "quota": quota,
        "load": load,
        "slow_start": 45 * scale,
        "call_seconds": 60 * scale,
        "seconds": arrivals,
    }
    outage = ProviderOutage(begins=30 * scale, seconds=away, ramp=60 * scale)
    plain = Scenario("", seconds=30.0)
    return [
        replace(plain, name="backlog 2x", load=2.0, drains=False),
        replace(plain, name="backlog 3x", load=3.0, drains=False),
        *(
            replace(plain, name=f"quota 0.6x{text}", quota=24.0, declared=1 / 0.6, load=1.2, names_wait=named)
            for text, named in (("", True), (", no wait named", False))
        ),
        replace(
            plain, name="nothing declared, headers", declared=None, load=2.0, shows_limits=True, drains=False
        ),
        replace(plain, name="fixed windows", window=10.0, load=2.0, seconds=40.0, drains=False),
        replace(plain, name="tokens bind", counts_tokens=True, load=1.2, seconds=40.0),
        replace(plain, name="answers 2.5 times later", latency=1.5, load=1.5, grows=True, drains=False),
        replace(
            plain,
            name="full server of your own",
            quota=1_000.0,
            latency=1.0,
            places=24,
            declared=None,
            load=0.1,
            seconds=90.0,
            grows=True,
            drains=False,
        ),
        replace(plain, name="backlog, one killed", load=1.5, kills=True, call_seconds=5.0),
        replace(plain, name="poison", load=0.9, seconds=20.0, poisoned=20),
        *(
            replace(
                plain,
                name=f"{count} poisoned by {fault or 'slowness'}",
                load=0.9,
                seconds=20.0,
                faulty=count,
                fault=fault,
                backoff=0.5,
                call_seconds=3.0,
            )
            for fault in (500, 0, 529)
            for count in (1, 2)
        ),
        replace(plain, name="outage (a) healthy at once", outage=outage, **times),
        replace(plain, name="outage (b) metastable, 40%", outage=replace(outage, floor=0.4), **times),
        replace(plain, name="outage (c) metastable, 20%", outage=replace(outage, floor=0.2), **times),
        replace(plain, name="outage (d) hanging", outage=replace(outage, hangs=True), **times),
    ]


@dataclass
class ScenarioResult:
    """What came of one run."""

    calls: list[ReceivedCall]
    collapses: int
    finished_at: float
    """When the last task was final, or the arrivals ended, in seconds from the first call."""
    succeeded: int
    dead: int
    lost: int
    cpu: float
    """Seconds, of everything on our side."""


async def ours(scenario: Scenario, database: str | None) -> ScenarioResult:
    """Run a scenario by three worker processes, on a SQLite file of its own or a schema of its own."""
    provider = _provider(scenario)
    with fresh_directory() as directory:
        async with provider:
            return await _by_workers(scenario, provider, directory, await _place(directory, database))


def _provider(scenario: Scenario) -> QuotaProvider:
    # Spread over the first second of arrivals, among tasks that are well.
    faulty = frozenset(5 * (number + 1) for number in range(scenario.faulty))
    return QuotaProvider(
        scenario.quota,
        latency=scenario.latency,
        places=scenario.places,
        counts_tokens=scenario.counts_tokens,
        outage=scenario.outage,
        poisoned=scenario.poisoned,
        faulty=faulty,
        fault=scenario.fault,
        window=scenario.window,
        shows_limits=scenario.shows_limits,
        names_wait=scenario.names_wait,
    )


async def _place(directory: Path, database: str | None) -> str:
    """Return the URL of a new store."""
    if database is None:
        return f"sqlite:///{directory}/queue.db"
    url = f"{database}{'&' if '?' in database else '?'}schema=economics_{uuid.uuid4().hex[:8]}"
    store = open_store(url)
    await store.migrate()
    await store.close()
    return url


async def _by_workers(
    scenario: Scenario, provider: QuotaProvider, directory: Path, url: str
) -> ScenarioResult:
    settings: dict[str, object] = {
        "TIDEGATE_DATABASE_URL": url,
        "ECONOMICS_URL": provider.url,
        "ECONOMICS_DECLARED": ""
        if scenario.declared is None or scenario.counts_tokens
        else round(scenario.quota * scenario.declared * 60),
        "ECONOMICS_TOKENS": round(scenario.quota * 60 * MEAN_TOKENS) if scenario.counts_tokens else "",
        "ECONOMICS_SLOTS": "auto" if scenario.grows else SLOTS,
        "ECONOMICS_SLOW_START": scenario.slow_start,
        "ECONOMICS_CALL_SECONDS": scenario.call_seconds,
        "ECONOMICS_BACKOFF": scenario.backoff or "",
    }
    os.environ.update({name: str(value) for name, value in settings.items()})
    app = Tidegate(str(settings["TIDEGATE_DATABASE_URL"]))

    @app.task(name="call")
    async def call(number: int) -> None: ...

    prepared = [
        replace(call.prepare(number).new_task, upstream="provider") for number in range(1, scenario.tasks + 1)
    ]
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(
                worker_command(directory, application="benchmarks.economics.app:app", **settings)
            )
            for _ in range(WORKERS)
        ]
        store = await core_of(app).opened_store()
        while len(await store.list_workers()) < WORKERS:
            if any(worker.poll() is not None for worker in workers):
                raise RuntimeError("a worker ended before it began")
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        before = [tree_cpu_seconds(worker.pid) for worker in workers]

        async def enqueue(numbers: range) -> None:
            await store.enqueue([prepared[number] for number in numbers])

        killing = asyncio.create_task(_kill(workers[0], provider, scenario))
        await _arrive(scenario, enqueue, provider)
        rows = await store.get_queue_stats()
        while scenario.drains and any(s.ready + s.blocked + s.running + s.retrying for s in rows):
            await asyncio.sleep(0.05)
            rows = await store.get_queue_stats()
        finished_at = provider.now()
        killing.cancel()
        left = workers[1:] if scenario.kills else workers
        cpu = sum(tree_cpu_seconds(worker.pid) for worker in left) - sum(before[len(workers) - len(left) :])
        dead = await store.count_dead_letters(TaskFilter())
        states = await store.read_tasks([task.id for task in prepared])
        succeeded = sum(row.state == "succeeded" for row in states.values())
        lost = scenario.tasks - succeeded - dead if scenario.drains else 0
        await app.aclose()
        return ScenarioResult(
            list(provider.calls), len(provider.collapses), finished_at, succeeded, dead, lost, cpu
        )


async def reference(scenario: Scenario) -> ScenarioResult:
    """Run a scenario by the scheduler in memory."""
    healthy = replace(scenario, faulty=0)  # at its best nothing of theirs would cost the others anything
    async with _provider(healthy) as provider:
        ideal = IdealScheduler(
            provider.url,
            quota=scenario.quota,
            slots=WORKERS * SLOTS
            if not scenario.grows
            else scenario.places or round(2 * scenario.quota * scenario.latency),
            slow_start=scenario.slow_start,
            call_seconds=scenario.call_seconds,
        )
        running = asyncio.create_task(ideal.run())
        before = time.process_time()

        async def enqueue(numbers: range) -> None:
            for number in numbers:
                ideal.add(number + 1)

        await _arrive(scenario, enqueue, provider)
        while scenario.drains and len(ideal.done) + len(ideal.refused) < scenario.tasks:
            await asyncio.sleep(0.02)
        finished_at = provider.now()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        cpu = time.process_time() - before
        return ScenarioResult(
            list(provider.calls),
            len(provider.collapses),
            finished_at,
            len(ideal.done),
            len(ideal.refused),
            0,
            cpu,
        )


async def _arrive(
    scenario: Scenario, enqueue: Callable[[range], Awaitable[None]], provider: QuotaProvider
) -> None:
    """Enqueue evenly over the scenario's time, in steps of a fifth of a second."""
    began, sent = time.monotonic(), 0
    while sent < scenario.tasks:
        due = min(scenario.tasks, 1 + int((time.monotonic() - began) * scenario.quota * scenario.load))
        if due > sent:
            await enqueue(range(sent, due))
            sent = due
        await asyncio.sleep(0.2)
    while provider.now() < scenario.seconds:
        await asyncio.sleep(0.05)


async def _kill(worker: Popen[bytes], provider: QuotaProvider, scenario: Scenario) -> None:
    """Kill one worker with all its processes at half time, as a lost machine would go."""
    if not scenario.kills:
        return
    while provider.now() < scenario.seconds / 2:
        await asyncio.sleep(0.05)
    for pid in reversed(tree(worker.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
