"""The demo itself: start everything, enqueue, let things go wrong on time, wait until all tasks are final."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.domain.states import State
from tidegate.domain.text import counted
from tidegate.errors import StoreError, TidegateError
from tidegate.store.connect import open_store
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskFilter
from tidegate.testing.checker import Limits, Note, Record, Submitted, Told, digest_of, read_notes, read_record
from tidegate.testing.demo.api import APPLICATION, Api
from tidegate.testing.demo.example import LEDGER_VARIABLE, Job, load_example, make_jobs
from tidegate.testing.demo.figures import Figures, read_figures
from tidegate.testing.demo.plan import Plan
from tidegate.testing.demo.processes import DemoProcess, Provider
from tidegate.testing.demo.view import View
from tidegate.testing.provider.ledger import Call, Ledger

_LOOK_SECONDS = 0.25

_SETTINGS = """\
[worker]
lease = {lease}
beat = {beat}
reap = {beat}
promote = 0.25
stop_grace = 1

[pools.summaries]
queues = ["summaries"]
concurrency = {slots}
poll_interval = 0.25
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything there is to judge the demo by."""

    jobs: dict[str, Job]
    """What was enqueued, by task."""
    told: Told
    notes: tuple[Note, ...]
    record: Record
    limits: dict[str, Limits]
    calls: tuple[Call, ...]
    killed_running: frozenset[str]
    """Tasks that ran when the worker was killed."""
    was_killed: bool
    duration_seconds: float
    directory: Path


@dataclass(slots=True)
class _Enqueued:
    jobs: dict[str, Job] = field(default_factory=dict)
    submitted: tuple[Submitted, ...] = ()


class Story:
    """One run of the demo.

    Args:
        plan: What happens when.
        directory: An existing directory for everything it writes.
        view: Where it tells what happens.
    """

    def __init__(self, plan: Plan, directory: Path, view: View) -> None:
        self._plan = plan
        self._directory = directory
        self._view = view
        self._began_at = time.monotonic()
        self._url = f"sqlite:///{directory}/queue.db"
        self._notes_path = directory / "bodies.ndjson"
        calls_path = directory / "provider.db"
        self._calls = Ledger(calls_path)
        self._provider = Provider(directory, latency=plan.latency, ledger_path=calls_path)
        self._workers: list[DemoProcess] = []
        self._app: Any = load_example().app
        self._app.url, self._app.store = self._url, open_store(self._url)
        self._enqueued = _Enqueued()
        self._figures = Figures(0.0, 0)
        self._killed_running: frozenset[str] | None = None
        self._killing = False
        self._ended_after = 0.0
        self._looked = asyncio.Event()

    async def run(self) -> Outcome:
        """Run it to its end; every process it started has ended when this returns or raises.

        Raises:
            TidegateError: A process did not start, or the store failed for good.
        """
        (self._directory / "tidegate.toml").write_text(
            _SETTINGS.format(lease=self._plan.lease, beat=self._plan.lease / 4, slots=self._plan.slots)
        )
        try:
            async with self._provider, self._api(await self._app.opened_store()) as api:
                self._tell(f"provider: {self._provider.url}, {self._plan.latency:.1f} s an answer")
                await self._enqueue()
                self._view.announce(await api.invitation())
                await self._start_worker()
                await self._play()
                self._ended_after = self._elapsed()
                for worker in self._workers:
                    await worker.stop()
            return await self._outcome()
        finally:
            for worker in self._workers:
                await worker.stop()
            await self._app.aclose()
            self._calls.close()

    # --- the acts ----------------------------------------------------------------------------------------

    async def _enqueue(self) -> None:
        jobs = make_jobs(self._plan.tasks)
        summarise = self._app.function("summarise")
        prepared = [summarise.prepare(job.path, job.audience, job.words) for job in jobs]
        ids = await self._app.enqueue_many(prepared)
        self._enqueued = _Enqueued(
            dict(zip(ids, jobs, strict=True)),
            tuple(
                Submitted(task_id, digest_of(task.new_task.args))
                for task_id, task in zip(ids, prepared, strict=True)
            ),
        )
        refused = sum(job.refused for job in jobs)
        self._tell(f"enqueued {len(ids)} texts to summarise; {refused} of them violate the provider's policy")

    async def _start_worker(self) -> None:
        number = len(self._workers) + 1
        worker = DemoProcess(
            f"worker-{number}",
            ["-m", "tidegate.cli", "worker", APPLICATION, "--name", f"demo-{number}"],
            self._directory,
            self._application_env(),
        )
        self._workers.append(worker)
        await worker.start()
        self._tell(
            f"worker {number} started: tidegate worker …  (pid {worker.pid}, {self._plan.slots} slots)"
        )

    def _api(self, store: Store) -> Api:
        return Api(
            self._directory,
            self._application_env(),
            store=store,
            good_seconds=self._plan.give_up_after,
        )

    def _application_env(self) -> dict[str, str]:
        return {
            "TIDEGATE_DATABASE_URL": self._url,
            "TIDEGATE_SCRATCH": str(self._directory / "scratch"),
            "PROVIDER_URL": self._provider.url,
            LEDGER_VARIABLE: str(self._notes_path),
        }

    async def _play(self) -> None:
        """Let things go wrong on time, and look on until all is done or the time is over."""
        chaos = asyncio.create_task(self._chaos(), name="demo: chaos")
        ends_at = self._began_at + self._plan.give_up_after
        try:
            while time.monotonic() < ends_at:
                await self._look()
                if self._figures.unfinished == 0:
                    self._tell("every task is final")
                    return
                if chaos.done():
                    chaos.result()  # raises what went wrong with it
                if self._workers[-1].has_ended and not self._killing:
                    raise TidegateError("the worker ended by itself", fix=f"see {self._workers[-1].log_path}")
                await asyncio.sleep(_LOOK_SECONDS)
            self._tell(
                f"given up after {self._plan.give_up_after:g} s: {self._figures.unfinished} unfinished"
            )
        finally:
            chaos.cancel()
            await asyncio.gather(chaos, return_exceptions=True)

    async def _look(self) -> None:
        with contextlib.suppress(StoreError):  # busy: the next look is soon
            self._figures = await read_figures(
                self._app.store, self._calls, elapsed=self._elapsed(), submitted=len(self._enqueued.jobs)
            )
            self._view.show(self._figures)
            self._looked.set()

    # --- what goes wrong ---------------------------------------------------------------------------------

    async def _chaos(self) -> None:
        plan = self._plan
        await self._until(self._is_running(1))
        began_at = time.monotonic()

        async def at(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
            await asyncio.sleep(began_at + seconds - time.monotonic())
            await act()

        await at(plan.throttle_at, self._throttle)
        await at(plan.throttle_at + plan.throttle_seconds, self._unthrottle)
        await at(plan.kill_at, self._kill)
        await at(plan.outage_at, self._outage)

    async def _throttle(self) -> None:
        await self._provider.limit(self._plan.throttled_per_second)
        self._tell(f"429: the provider lets only {self._plan.throttled_per_second:g} calls a second through")

    async def _unthrottle(self) -> None:
        await self._until(self._is_throttled)
        await self._provider.limit(None)
        self._tell("429 over: the provider's limit is lifted")

    async def _kill(self) -> None:
        """Kill supervisor and pool processes at once, note what ran, start another worker."""
        await self._until(self._is_running(self._plan.slots // 2))
        pids = [row.pid for row in await self._app.store.workers() if row.retired_at is None]
        worker = self._workers[-1]
        self._killing = True
        worker.kill(pids)
        await worker.ended()
        running = await self._app.store.list_tasks(TaskFilter(states=(State.RUNNING,)), limit=500)
        self._killed_running = frozenset(row.id for row in running)
        self._tell(
            f"kill -9: supervisor {worker.pid} and pool process {', '.join(map(str, pids))}, "
            f"with {counted(len(running), 'task')} running"
        )
        await self._start_worker()
        self._killing = False
        await self._until(self._are_taken_up)
        self._tell(f"the lease of worker {len(self._workers) - 1} ran out: its tasks are taken up again")

    async def _outage(self) -> None:
        await self._provider.go_away(self._plan.outage_seconds)
        self._tell(f"outage: nobody listens at the provider's port for {self._plan.outage_seconds:.1f} s")
        await asyncio.sleep(self._plan.outage_seconds)
        self._tell("outage over")

    async def _until(self, truth: Callable[[], Awaitable[bool]]) -> None:
        """Return once it is true, asking after each look."""
        while not await truth():
            self._looked.clear()
            await self._looked.wait()

    def _is_running(self, tasks: int) -> Callable[[], Awaitable[bool]]:
        async def truth() -> bool:
            return self._figures.running >= tasks

        return truth

    async def _is_throttled(self) -> bool:
        return self._figures.throttled > 0

    async def _are_taken_up(self) -> bool:
        rows = await self._app.store.read(sorted(self._killed_running or ()))
        return all(row.counters.losses > 0 for row in rows.values())

    # --- afterwards --------------------------------------------------------------------------------------

    async def _outcome(self) -> Outcome:
        return Outcome(
            jobs=self._enqueued.jobs,
            told=Told(self._enqueued.submitted),
            notes=tuple(read_notes(self._notes_path)),
            record=await read_record(self._app.store),
            limits={name: Limits.of(function.spec) for name, function in self._app.functions.items()},
            calls=tuple(self._calls.calls()),
            killed_running=self._killed_running or frozenset(),
            was_killed=self._killed_running is not None,
            duration_seconds=self._ended_after,
            directory=self._directory,
        )

    def _elapsed(self) -> float:
        return time.monotonic() - self._began_at

    def _tell(self, text: str) -> None:
        self._view.tell(self._elapsed(), text)
