"""Run the demo: start the processes, enqueue, inject the faults, wait until all tasks are final."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.application.core import Core
from tidegate.domain.states import State
from tidegate.domain.text import counted
from tidegate.errors import StoreError, TidegateError
from tidegate.internals import core_of
from tidegate.store.connect import open_store
from tidegate.store.protocol import Store
from tidegate.store.rows import HistoryRow, TaskFilter, TaskRow
from tidegate.testing.demo.counts import DemoCounts, read_counts
from tidegate.testing.demo.example import SummaryJob, load_example, make_jobs
from tidegate.testing.demo.plan import DemoPlan
from tidegate.testing.demo.processes import DemoProcess, ProviderProcess
from tidegate.testing.demo.view import DemoView
from tidegate.testing.demo.web_api import APPLICATION, DemoApi
from tidegate.testing.provider.ledger import Ledger, ProviderCall

_POLL_SECONDS = 0.25

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
class DemoOutcome:
    """Everything that the report is made from."""

    jobs: dict[str, SummaryJob]
    """The enqueued jobs, by task id."""
    rows: Mapping[str, TaskRow]
    """The tasks as the store records them."""
    histories: Mapping[str, Sequence[HistoryRow]]
    calls: tuple[ProviderCall, ...]
    """What the provider received. The `Idempotency-Key` of each call is the id of its task."""
    killed_running: frozenset[str]
    """Tasks that were running when the worker was killed."""
    was_killed: bool
    duration_seconds: float
    directory: Path


class DemoRun:
    """One run of the demo.

    Args:
        plan: When each fault happens.
        directory: An existing directory for all files of the demo.
        view: Shows the progress.
    """

    def __init__(self, plan: DemoPlan, directory: Path, view: DemoView) -> None:
        self._plan = plan
        self._directory = directory
        self._view = view
        self._began_at = time.monotonic()
        self._url = f"sqlite:///{directory}/queue.db"
        calls_path = directory / "provider.db"
        self._calls = Ledger(calls_path)
        self._provider = ProviderProcess(directory, latency=plan.latency, ledger_path=calls_path)
        self._workers: list[DemoProcess] = []
        self._app: Any = load_example().app
        self._core: Core = core_of(self._app)
        self._core.url, self._core.store = self._url, open_store(self._url)
        self._jobs: dict[str, SummaryJob] = {}
        self._counts = DemoCounts(0.0, 0)
        self._killed_running: frozenset[str] | None = None
        self._killing = False
        self._ended_after = 0.0
        self._polled = asyncio.Event()

    async def run(self) -> DemoOutcome:
        """Run the demo to its end. All its processes have ended when this returns or raises.

        Raises:
            TidegateError: A process did not start, or the store failed for good.
        """
        (self._directory / "tidegate.toml").write_text(
            _SETTINGS.format(lease=self._plan.lease, beat=self._plan.lease / 4, slots=self._plan.slots)
        )
        try:
            async with self._provider, self._api(await self._core.opened_store()) as api:
                self._show_event(f"provider: {self._provider.url}, {self._plan.latency:.1f} s per response")
                await self._enqueue()
                self._view.show_text(await api.wait_for_address())
                await self._start_worker()
                await self._run_until_finished()
                self._ended_after = self._elapsed()
                for worker in self._workers:
                    await worker.stop()
            return await self._outcome()
        finally:
            for worker in self._workers:
                await worker.stop()
            await self._app.aclose()
            self._calls.close()

    # --- starting ----------------------------------------------------------------------------------------

    async def _enqueue(self) -> None:
        jobs = make_jobs(self._plan.tasks)
        summarise = self._app.function("summarise")
        prepared = [summarise.prepare(job.path, job.audience, job.parts) for job in jobs]
        ids = await self._app.enqueue_many(prepared)
        self._jobs = dict(zip(ids, jobs, strict=True))
        refused = sum(job.refused for job in jobs)
        self._show_event(
            f"enqueued {len(ids)} texts to summarise; {refused} of them violate the provider's policy"
        )

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
        self._show_event(
            f"worker {number} started: tidegate worker …  (pid {worker.pid}, {self._plan.slots} slots)"
        )

    def _api(self, store: Store) -> DemoApi:
        return DemoApi(
            self._directory,
            self._application_env(),
            store=store,
            token_seconds=self._plan.give_up_after,
        )

    def _application_env(self) -> dict[str, str]:
        return {
            "TIDEGATE_DATABASE_URL": self._url,
            "TIDEGATE_SCRATCH": str(self._directory / "scratch"),
            "PROVIDER_URL": self._provider.url,
        }

    async def _run_until_finished(self) -> None:
        """Inject the faults on time; poll until every task is final or the time is up."""
        faults = asyncio.create_task(self._inject_faults(), name="demo: chaos")
        ends_at = self._began_at + self._plan.give_up_after
        try:
            while time.monotonic() < ends_at:
                await self._poll()
                if self._counts.unfinished == 0:
                    self._show_event("every task is final")
                    return
                if faults.done():
                    faults.result()  # raises the error of the faults, if any
                if self._workers[-1].has_ended and not self._killing:
                    raise TidegateError("the worker ended by itself", fix=f"see {self._workers[-1].log_path}")
                await asyncio.sleep(_POLL_SECONDS)
            self._show_event(
                f"gave up after {self._plan.give_up_after:g} s: {self._counts.unfinished} unfinished"
            )
        finally:
            faults.cancel()
            await asyncio.gather(faults, return_exceptions=True)

    async def _poll(self) -> None:
        with contextlib.suppress(StoreError):  # the store is busy: the next poll is soon
            self._counts = await read_counts(
                self._core.store, self._calls, elapsed=self._elapsed(), submitted=len(self._jobs)
            )
            self._view.show(self._counts)
            self._polled.set()

    # --- faults ---------------------------------------------------------------------------------

    async def _inject_faults(self) -> None:
        plan = self._plan
        await self._wait_until(self._is_running(1))
        began_at = time.monotonic()

        async def at(seconds: float, action: Callable[[], Awaitable[None]]) -> None:
            await asyncio.sleep(began_at + seconds - time.monotonic())
            await action()

        await at(plan.throttle_at, self._start_throttling)
        await at(plan.throttle_at + plan.throttle_seconds, self._stop_throttling)
        await at(plan.kill_at, self._kill_worker)
        await at(plan.outage_at, self._start_outage)

    async def _start_throttling(self) -> None:
        await self._provider.limit(self._plan.throttled_per_second)
        self._show_event(
            f"429: the provider now allows only {self._plan.throttled_per_second:g} calls per second"
        )

    async def _stop_throttling(self) -> None:
        await self._wait_until(self._is_throttled)
        await self._provider.limit(None)
        self._show_event("429 over: the provider has no limit again")

    async def _kill_worker(self) -> None:
        """Kill the supervisor and the pool processes at once, record what ran, start another worker."""
        await self._wait_until(self._is_running(self._plan.slots // 2))
        pids = [row.pid for row in await self._core.store.list_workers() if row.retired_at is None]
        worker = self._workers[-1]
        self._killing = True
        worker.kill(pids)
        await worker.ended()
        running = await self._core.store.list_tasks(TaskFilter(states=(State.RUNNING,)), limit=500)
        self._killed_running = frozenset(row.id for row in running)
        self._show_event(
            f"kill -9: supervisor {worker.pid} and pool process {', '.join(map(str, pids))}, "
            f"with {counted(len(running), 'task')} running"
        )
        await self._start_worker()
        self._killing = False
        await self._wait_until(self._are_reclaimed)
        self._show_event(f"the lease of worker {len(self._workers) - 1} ran out: its tasks are requeued")

    async def _start_outage(self) -> None:
        await self._provider.refuse_connections(self._plan.outage_seconds)
        self._show_event(
            f"outage: nothing listens on the provider's port for {self._plan.outage_seconds:.1f} s"
        )
        await asyncio.sleep(self._plan.outage_seconds)
        self._show_event("outage over")

    async def _wait_until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Return once the condition is true; check it after each poll."""
        while not await condition():
            self._polled.clear()
            await self._polled.wait()

    def _is_running(self, tasks: int) -> Callable[[], Awaitable[bool]]:
        async def condition() -> bool:
            return self._counts.running >= tasks

        return condition

    async def _is_throttled(self) -> bool:
        return self._counts.throttled > 0

    async def _are_reclaimed(self) -> bool:
        rows = await self._core.store.read_tasks(sorted(self._killed_running or ()))
        return all(row.counters.losses > 0 for row in rows.values())

    # --- the outcome --------------------------------------------------------------------------------------

    async def _outcome(self) -> DemoOutcome:
        store = self._core.store
        rows = await store.read_tasks(list(self._jobs))
        return DemoOutcome(
            jobs=self._jobs,
            rows=rows,
            histories={task_id: await store.get_history(task_id) for task_id in rows},
            calls=tuple(self._calls.calls()),
            killed_running=self._killed_running or frozenset(),
            was_killed=self._killed_running is not None,
            duration_seconds=self._ended_after,
            directory=self._directory,
        )

    def _elapsed(self) -> float:
        return time.monotonic() - self._began_at

    def _show_event(self, text: str) -> None:
        self._view.show_event(self._elapsed(), text)
