"""The core of a pool process: claims tasks, runs them, writes their outcomes.

The engine does not handle signals, start pool processes or renew leases. Time comes from the running loop;
ids and randomness are passed in. So the same engine runs in seeded simulations with virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import time
from collections.abc import Callable
from pathlib import Path

from tidegate.context import Progress, StopReason
from tidegate.domain.outcome import Fence, Outcome, Released, Succeeded
from tidegate.domain.spec import RunsIn, TaskSpec
from tidegate.errors import StoreError
from tidegate.limits.options import changes, differences
from tidegate.policy.order import LIFT_SECONDS
from tidegate.store.rows import ClaimedTask
from tidegate.worker import report
from tidegate.worker.application import Application, crash_terms, short_timeouts
from tidegate.worker.children.pool import ChildPool, ChildRules
from tidegate.worker.children.runner import ChildRunner
from tidegate.worker.children.vram import VramLimit, vram_reader
from tidegate.worker.engine.claimer import Claimer
from tidegate.worker.engine.current_task import CurrentTaskSlot
from tidegate.worker.engine.emitter import Emitter
from tidegate.worker.engine.executor import Executor
from tidegate.worker.engine.fallback_outcome import undecidable_outcome
from tidegate.worker.engine.finisher import Finisher
from tidegate.worker.engine.lease import Lease
from tidegate.worker.engine.other_code import OtherCode
from tidegate.worker.engine.outcome_decider import OutcomeDecider
from tidegate.worker.engine.run_hooks import run_start_hooks, run_stop_hooks
from tidegate.worker.engine.run_reports import RunReports
from tidegate.worker.engine.slots import SlotRoom, new_slots
from tidegate.worker.engine.step_recorder import StepRecorder
from tidegate.worker.engine.task_run import TaskRun
from tidegate.worker.process_snapshot import ProcessSnapshot
from tidegate.worker.settings import Pool, Timings, drain_grace

UNCONFIRMED_LIMIT = 2_000
"""No task is claimed while more outcomes than this wait to be written."""


class Engine:
    """Runs one pool's tasks in this process, from `start` to `stop`.

    Args:
        app: The application; its store must be open.
        pool: The pool to serve.
        worker_id: The worker whose row holds the lease.
        timings: Grace times and intervals.
        scratch_root: This worker's scratch directory; the caller removes it at the end.
        rng: For jitter.
        wall_clock: Seconds since the epoch, for HTTP dates only.
        child_application: `module:attribute` that child processes import; None: no child processes.
        snapshot: The process state that child processes start with; None: the state when they start.
        current_task: Shows the supervisor which task runs on the event loop.
        runs_hooks: Whether this engine declares limits and runs the start and stop hooks. True for exactly
            one engine of a process.
    """

    def __init__(
        self,
        *,
        app: Application,
        pool: Pool,
        worker_id: str,
        timings: Timings,
        scratch_root: Path,
        rng: random.Random | None = None,
        wall_clock: Callable[[], float] = time.time,
        child_application: str | None = None,
        snapshot: ProcessSnapshot | None = None,
        current_task: CurrentTaskSlot | None = None,
        runs_hooks: bool = True,
    ) -> None:
        rng = rng or random.Random()
        self._app = app
        self._store = app.store
        self._pool = pool
        self._worker_id = worker_id
        self._timings = timings
        self._scratch_root = scratch_root
        self._loop = asyncio.get_running_loop()
        self._lease = Lease(self._loop.time)
        self._idle = asyncio.Event()
        self._idle.set()
        self._events = app.events
        self._reports = RunReports(
            self._loop, events=app.events, worker_id=worker_id, pool=pool, upstreams=app.upstreams
        )
        self._grace_over = asyncio.Event()
        self._jobs: list[asyncio.Task[object]] = []
        self.retired = asyncio.Event()
        """Set when another process has retired this worker."""
        self.unhealthy = asyncio.Event()
        """Set when this process must be replaced: a coroutine did not stop, or a task asked for it."""
        self.replacement_reason = ""  # why a task asked to replace this process; empty if no task did
        decider = OutcomeDecider(
            clock=self._loop.time, wall_clock=wall_clock, rng=rng, classifiers=app.classifiers
        )
        self._children: ChildPool | None = None
        if child_application is not None:
            self._children = ChildPool(
                child_application,
                _child_rules(pool),
                on_available=self._on_child_available,
                snapshot=snapshot,
            )
        self._runs_hooks = runs_hooks
        self._snapshot: ProcessSnapshot | None = None
        """The process state that is restored whenever no task runs; None in an embedded worker."""
        self.executor = Executor(
            functions=app.functions,
            scratch_root=scratch_root,
            stop_grace=timings.stop_grace,
            on_function_starts=self._reports.function_starts,
            on_finished=self._on_finished,
            decider=decider,
            lease=self._lease,
            child_runner=self._child_runner_or_none(decider),
            current_task=current_task,
            on_unhealthy=self.unhealthy.set,
            other_code=OtherCode(app.store, worker_id, app.functions),
        )
        self.emitter = Emitter(self._store, rng, self._on_lost)
        self.steps = StepRecorder(self._store, rng, self._on_lost, app.links)
        self.finisher = Finisher(self._store, rng, self._on_lost, before_write=self.emitter.write)
        self.slots = new_slots(
            pool,
            app.functions,
            paced_upstreams=[row.name for row in app.declared() if row.limits.paces],
            running=lambda: self.executor.running.values(),
            on_change=lambda: self._claimer.notify_slot_freed(),
        )
        self._claimer = self._new_claimer(rng)

    def _new_claimer(self, rng: random.Random) -> Claimer:
        functions = self._app.functions.items()
        return Claimer(
            store=self._store,
            pool=self._pool,
            worker_id=self._worker_id,
            functions={name: crash_terms(function.spec) for name, function in functions},
            room=self._room,
            growing=lambda: self.slots.growing,
            not_started=lambda: self.executor.not_started,
            child_functions=self._child_functions(),
            child_capacity=lambda: (
                self._children.available if self._children is not None else self.slots.total
            ),
            may_start=self._lease.is_held,
            start_task=self._start_task,
            known_runs=lambda: self.executor.running.keys() | self.finisher.fences(),
            release=self._release,
            rng=rng,
        )

    async def start(self) -> None:
        """Declare the limits, run the start hooks, then start to claim."""
        if self._runs_hooks:
            await self._prepare()
        self._app.observe()  # after the start hooks, which may configure OpenTelemetry
        if self._children is not None:
            self._snapshot = ProcessSnapshot()
        for name, timeout, seconds in short_timeouts(self._app):
            report.timeout_too_short(name, timeout, seconds)
        self._spawn(self.finisher.run(), "finisher")
        self._spawn(self.emitter.run(), "emitter")
        self._spawn(self.steps.run(), "steps")
        self._spawn(self._watch_cancels(), "cancel watch")
        self._spawn(self.slots.run(), "slots")
        self._reports.worker_started()
        self._claiming = self._spawn(self._claim(), "claimer")

    async def _prepare(self) -> None:
        await self._declare_limits()
        keeps_context = self._children is not None
        self.executor.base_context = await run_start_hooks(self._app, keeps_context=keeps_context)

    async def stop(self, grace: float | None = None) -> None:
        """Drain, then close, also if the drain is cancelled; see `drain`."""
        try:
            await self.drain(grace)
        finally:
            await self.close()

    async def drain(self, grace: float | None = None) -> None:
        """Stop claiming, let running tasks end within `grace` seconds, release the rest, write all outcomes.

        Args:
            grace: None uses `drain_grace` of the timings, or if unset the longest timeout of the pool's
                functions, at most 25 s.
        """
        if grace is None:
            grace = drain_grace(self._timings, (f.spec.timeout for f in self._app.functions.values()))
        ends_at = self._loop.time() + grace
        await self._stop_claiming()
        waits = [asyncio.ensure_future(event.wait()) for event in (self._idle, self._grace_over)]
        left = max(0.0, ends_at - self._loop.time())
        await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        self._stop_all(StopReason.RELEASE)
        await self._idle.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timings.stop_grace):
                await self.finisher.wait_until_written()
                await self.steps.wait_until_written()

    def release_now(self) -> None:
        """End the grace time of a drain, current or future, and release running tasks now."""
        self._grace_over.set()

    async def close(self) -> None:
        """End every job and run the stop hooks."""
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        self._jobs.clear()
        self._reports.worker_stopped()
        self.executor.close()
        if self._children is not None:
            await self._children.close()
        if self._runs_hooks:
            await run_stop_hooks(self._app)

    def extend_lease(self, moment: float) -> None:
        """Set the moment at which the lease ends, by the loop's clock. No run starts after that moment."""
        self._lease.renew(moment)
        self._claimer.notify_slot_freed()

    def on_lease_lost(self) -> None:
        """Stop every function because the lease is lost; write no outcomes."""
        if not self.retired.is_set():
            report.lease_lost(self._worker_id)
            self.retired.set()
            self._stop_all(StopReason.LOST)

    # --- callbacks of the parts --------------------------------------------------------------------------

    def _start_task(self, claimed: ClaimedTask) -> None:
        try:
            task_run = self.executor.start(claimed)
        except Exception as fault:  # an option of its function is broken: the claim's other tasks go on
            outcome = undecidable_outcome(claimed.fence, self._spec(claimed.function), fault)
            self.finisher.finish(outcome)
            self._reports.run_unstartable(claimed, outcome)
            return
        self.slots.on_started(claimed.function)
        report.run_started(claimed)
        self._idle.clear()
        task_run.control.on_progress = functools.partial(self._on_progress, claimed.fence)
        task_run.control.on_emit = functools.partial(self._on_emit, claimed.fence)
        task_run.control.step_port = self.steps
        task_run.control.events = self._events
        task_run.control.store_offset = claimed.claimed_at - task_run.received_at

    def _on_progress(self, fence: Fence, progress: Progress) -> None:
        if fence in self.executor.running:  # otherwise its run was closed before its function ended
            self.finisher.record_progress(fence, progress)

    def _on_emit(self, fence: Fence, data: bytes) -> bool:
        return fence not in self.executor.running or self.emitter.emit(fence, data)

    def _on_finished(self, task_run: TaskRun, outcome: Outcome | None) -> None:
        self.slots.on_finished(task_run.claimed.function)
        self.emitter.forget(task_run.claimed.fence)
        if outcome is not None:
            self.finisher.finish(outcome)
        if isinstance(outcome, Succeeded) and task_run.control.steps is not None:
            task_run.control.steps.report_unmet()
        self._reports.run_finished(task_run, outcome, self._loop.time() - task_run.started_at)
        if task_run.control.replacement_reason:
            self._replace_process(task_run)
        if not self.executor.running:
            self._idle.set()
            self._restore_process(task_run.claimed.function)
        self._claimer.notify_slot_freed()

    def _replace_process(self, task_run: TaskRun) -> None:
        """Have this process replaced because a task asked for it; an embedded worker only logs a warning."""
        reason = task_run.control.replacement_reason
        can_be_replaced = self._children is not None
        report.replacement_wanted(task_run.claimed, reason, can_be_replaced=can_be_replaced)
        if can_be_replaced:
            self.replacement_reason = reason
            self.unhealthy.set()

    def _spec(self, function: str) -> TaskSpec:
        known = self._app.functions.get(function)
        return TaskSpec(function) if known is None else known.spec

    @property
    def problem(self) -> str:
        """Why some tasks cannot run here; empty if all can."""
        return "" if self._children is None else self._children.start_error

    def _restore_process(self, function: str) -> None:
        """Undo changes that tasks made to the process state, now that no task runs."""
        if self._snapshot is not None:
            restored, lost = self._snapshot.restore()
            report.process_state_changed(function, restored, lost)
            if lost:
                self.unhealthy.set()

    def _release(self, fence: Fence) -> None:
        self.finisher.finish(Released(fence, "its claim was never answered", rank_offset=-LIFT_SECONDS))

    def _on_lost(self, fence: Fence) -> None:
        task_run = self.executor.running.get(fence)
        if task_run is not None:
            self.executor.stop(task_run, StopReason.LOST)

    def _room(self) -> SlotRoom:
        if self.finisher.pending > UNCONFIRMED_LIMIT:
            return SlotRoom(0, 0)
        return self.slots.room(self.executor.busy)

    def _on_child_available(self) -> None:
        self._claimer.notify_slot_freed()

    def _child_functions(self) -> frozenset[str]:
        """Return the functions that run in child processes; none in an embedded worker."""
        if self._children is None:
            return frozenset()
        functions = self._app.functions
        return frozenset(name for name in functions if functions[name].spec.runs_in is RunsIn.PROCESS)

    def _child_runner_or_none(self, decider: OutcomeDecider) -> ChildRunner | None:
        if self._children is None:
            return None
        return ChildRunner(self._children, decider, self._lease, self._pool.fatal_errors)

    async def _declare_limits(self) -> None:
        """Store the declared limits. Log changes, and warn where limits that a person set override ours."""
        declared = self._app.declared()
        before = {(row.kind, row.name): row.limits for row in await self._store.list_gates()}
        for ours, stored in zip(declared, await self._store.declare_limits(declared), strict=True):
            if different := differences(ours.limits, stored.limits):
                report.limits_set_by_hand(ours.name, different)
            if changed := changes(before.get((ours.kind, ours.name), stored.limits), stored.limits):
                report.limits_changed(ours.name, changed)

    # --- loops -------------------------------------------------------------------------------------------

    async def _claim(self) -> None:
        if not await self._claimer.run():
            self.on_lease_lost()

    async def _watch_cancels(self) -> None:
        while True:
            await asyncio.sleep(self._timings.cancel_poll)
            if not self.executor.running:
                continue
            try:
                requests = await self._store.list_cancel_requests(self._worker_id)
            except Exception:  # noqa: S112 - the claimer and the finisher log store failures
                continue
            for request in requests:
                task_run = self.executor.running.get(request.fence)
                if task_run is not None and request.force:
                    self.executor.force(task_run)
                elif task_run is not None:
                    self.executor.stop(task_run, StopReason.CANCEL)

    def _stop_all(self, why: StopReason) -> None:
        for task_run in list(self.executor.running.values()):
            self.executor.stop(task_run, why)

    async def _stop_claiming(self) -> None:
        """Cancel the claimer, then release tasks that its unfinished claim took."""
        if self._claiming.done():
            return
        self._claiming.cancel()
        await asyncio.gather(self._claiming, return_exceptions=True)
        if self.retired.is_set():
            return
        known = self.executor.running.keys() | self.finisher.fences()
        with contextlib.suppress(StoreError, TimeoutError):  # the lease will run out instead
            async with asyncio.timeout(self._timings.stop_grace):
                for fence in await self._store.find_lost_claims(self._worker_id, known):
                    self._release(fence)

    def _spawn(self, work: object, name: str) -> asyncio.Task[object]:
        job: asyncio.Task[object] = asyncio.create_task(work, name=f"tidegate {name}")  # type: ignore[arg-type]
        self._jobs.append(job)
        return job


def _child_rules(pool: Pool) -> ChildRules:
    return ChildRules(
        max_runs=pool.child_runs,
        soft_bytes=pool.memory_soft_limit,
        hard_bytes=pool.memory_limit,
        gpus=pool.gpus,
        vram=VramLimit(pool.vram_limit, vram_reader()) if pool.vram_limit is not None else None,
    )
