"""Runs the task function of a stored task once, here: with its arguments, and without its store or network.

The function runs in the worker's own executor, so the outcome is what a worker would decide. What the
function stores goes to a temporary store. The task's own store is not touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import random
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Set
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from tidegate.application.core import Core
from tidegate.codec.signature import Signature
from tidegate.context import Progress
from tidegate.domain.failure import Failure, LastFailure, Reason, Verdict
from tidegate.domain.moments import to_datetime
from tidegate.domain.outcome import Charge, Dead, Fence, Outcome, Retrying, Succeeded
from tidegate.domain.spec import RunsIn, TaskSpec
from tidegate.operations.recorded_answer import RecordedAnswer, recorded_answer
from tidegate.operations.recorded_task import RecordedTask
from tidegate.store.connect import open_store, refused_stores
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimedTask, HistoryRow, TaskFilter, TaskRow
from tidegate.testing.kit.network_guard import stays_blocked
from tidegate.testing.kit.scripted_transport import make_transport
from tidegate.testing.kit.scripted_upstream import ScriptedRequest, ScriptedUpstream, Step
from tidegate.threads.bridge import substitute_loop
from tidegate.worker.application import Runnable
from tidegate.worker.engine.executor import Executor
from tidegate.worker.engine.lease import Lease
from tidegate.worker.engine.outcome_decider import OutcomeDecider
from tidegate.worker.engine.run_hooks import run_start_hooks, run_stop_hooks
from tidegate.worker.engine.task_run import TaskRun

STOP_GRACE_SECONDS = 1.0
"""How long a function may continue after its time limit."""
_THREAD_NAME = "tidegate-function"
_PACKAGE = Path(__file__).parents[1]


@dataclass(slots=True)
class Observer:
    """Called while the function runs."""

    on_progress: Callable[[Progress], None] = lambda progress: None
    on_chunk: Callable[[bytes], None] = lambda chunk: None


@dataclass(frozen=True, slots=True)
class Replay:
    """The effects of one run of the function."""

    outcome: Outcome
    seconds: float
    progress: tuple[Progress, ...]
    chunks: tuple[bytes, ...]
    """Encoded."""
    calls: tuple[ScriptedRequest, ...]
    """Calls of upstreams, in order. None was sent."""
    enqueued: tuple[TaskRow, ...]
    """Tasks that the function enqueued, into the temporary store."""
    error: BaseException | None
    """What the function raised; None if it raised nothing."""
    stack: str
    """Where the function was when its time ended; empty if it ended by itself."""

    @property
    def failure(self) -> Failure | None:
        """Why the run failed; None if it did not."""
        return self.outcome.failure if isinstance(self.outcome, Retrying | Dead) else None

    @property
    def result(self) -> bytes | None:
        """The encoded result; None if the function did not return."""
        return self.outcome.result if isinstance(self.outcome, Succeeded) else None

    @property
    def why(self) -> str:
        """The reason for what the worker would have done, as text."""
        return "" if isinstance(self.outcome, Succeeded) else self.outcome.why


@dataclass(slots=True)
class _Observed:
    progress: list[Progress] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    error: BaseException | None = None
    stack: str = ""
    seconds: float = 0.0


async def replay(
    core: Core, task: RecordedTask, *, timeout_seconds: float | None = None, observer: Observer | None = None
) -> Replay:
    """Run the task's function once in this process, as its last run was.

    Args:
        core: The internals of the application that declares it.
        task: The task.
        timeout_seconds: The time limit of the run; None for the function's own.
        observer: Called while it runs.

    Raises:
        UnknownFunctionError: The application does not declare it.
    """
    function = _LocalFunction(core.function(task.row.function))
    observed = _Observed()
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-replay-") as name,
        _scripted(core, task) as requests,
    ):
        directory = Path(name)
        async with _temporary_store(core, directory) as store:
            run = _Run(core, function, directory, observed, observer or Observer())
            with refused_stores():
                outcome = await run.execute(_claimed(task, timeout_seconds))
            enqueued = await store.list_tasks(TaskFilter(), limit=1000)
    return Replay(
        outcome,
        observed.seconds,
        tuple(observed.progress),
        tuple(observed.chunks),
        tuple(requests),
        tuple(reversed(enqueued)),
        observed.error,
        observed.stack,
    )


class UnrecordedCallError(RuntimeError):
    """The history of the task has no answer for this call. Nothing was sent."""


class _Script(ScriptedUpstream):
    """Answers every call as the call that failed was answered, as far as the history of the task kept it."""

    def __init__(self, name: str, answer: RecordedAnswer | None, requests: list[ScriptedRequest]) -> None:
        super().__init__(name)
        self.requests = requests
        self._has_answer = answer is not None
        if answer is None:
            return
        if answer.error == "timeout":
            self.hangs(times=None)
        elif answer.error:
            self.unreachable(times=None)
        else:
            headers = {"x-request-id": answer.request_id} if answer.request_id else {}
            self.answers(answer.body, status=answer.status, headers=headers, times=None)

    def take(self, request: ScriptedRequest) -> Step:
        if self._has_answer:
            return super().take(request)
        self.requests.append(request)
        raise UnrecordedCallError(
            f"a replay calls nobody, and the history has no answer for {request}, a call of {self.name}"
        )


@contextlib.contextmanager
def _scripted(core: Core, task: RecordedTask) -> Iterator[list[ScriptedRequest]]:
    """Answer the calls of all upstreams by the history of the task; yield the list of these calls."""
    failed = task.last_failed_run
    answer = None if failed is None else recorded_answer(failed)
    requests: list[ScriptedRequest] = []
    before = {upstream: upstream.stand_in for upstream in core.upstreams.values()}
    for upstream in before:
        upstream.stand_in = functools.partial(make_transport, _Script(upstream.name, answer, requests))
    try:
        yield requests
    finally:
        for upstream, stand_in in before.items():
            upstream.stand_in = stand_in


@contextlib.asynccontextmanager
async def _temporary_store(core: Core, directory: Path) -> AsyncIterator[Store]:
    """Give the application another store for the block."""
    url = f"sqlite:///{directory}/replay.db"
    store = open_store(url)
    try:
        with core.replaced_store(store, url):
            yield await core.opened_store()
    finally:
        await store.close()


class _Run:
    """One run of a function, observed."""

    def __init__(
        self, core: Core, function: Runnable, directory: Path, observed: _Observed, observer: Observer
    ) -> None:
        self._core = core
        self._function = function
        self._directory = directory
        self._observed = observed
        self._observer = observer

    async def execute(self, claimed: ClaimedTask) -> Outcome:
        """Run the hooks of its process and the function."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Outcome] = loop.create_future()

        def on_finished(task_run: TaskRun, outcome: Outcome | None) -> None:
            assert outcome is not None  # the lease of a replay is never lost
            ended.set_result(outcome)

        executor = Executor(
            functions={claimed.function: self._function},
            scratch_root=self._directory / "scratch",
            stop_grace=STOP_GRACE_SECONDS,
            on_finished=on_finished,
            decider=_Decider(self._observed, self._core),
            lease=Lease(loop.time),
        )
        is_child = self._core.function(claimed.function).spec.runs_in is RunsIn.PROCESS
        executor.base_context = await (
            _run_child_hooks(self._core) if is_child else run_start_hooks(self._core, keeps_context=True)
        )
        began_at = loop.time()
        calls = _SyncCalls(loop)
        executor.base_context.run(substitute_loop.set, calls)
        executor.base_context.run(stays_blocked.set, True)
        try:
            task_run = executor.start(claimed)
            task_run.control.on_progress = self._on_progress
            task_run.control.on_emit = self._on_chunk
            return await ended
        finally:
            self._observed.seconds = loop.time() - began_at
            calls.is_open = False
            executor.close()
            if not is_child:
                await run_stop_hooks(self._core)

    def _on_progress(self, progress: Progress) -> None:
        self._observed.progress.append(progress)
        self._observer.on_progress(progress)

    def _on_chunk(self, chunk: bytes) -> bool:
        if chunk:
            self._observed.chunks.append(chunk)
            self._observer.on_chunk(chunk)
        return True


class _SyncCalls:
    """Serves the sync calls of the function until it ends, or is left behind in its thread.

    Later calls of the function are refused: the application has its own store again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.is_open = True

    def caller_waits(self, waiting: Future[Any]) -> None:
        """Do nothing: this loop's time does not jump."""


async def _run_child_hooks(core: Core) -> contextvars.Context:
    """Run what a child process runs before its first task, and return the context for the function."""
    for hook in core.child_start_hooks:
        returned = hook()
        if inspect.isawaitable(returned):
            await returned
    return contextvars.copy_context()


class _LocalFunction:
    """A task function that runs in this process, never in a child process."""

    def __init__(self, function: Runnable) -> None:
        runs_in = RunsIn.LOOP if function.is_async else RunsIn.THREAD
        self.spec: TaskSpec = replace(function.spec, runs_in=runs_in)
        self.function = function.function
        self.is_async = function.is_async
        self.signature: Signature = function.signature


def _claimed(task: RecordedTask, timeout_seconds: float | None) -> ClaimedTask:
    """Return the claim of the task's last run, as far as the store still knows it."""
    row, now = task.row, time.time()
    failed = task.failed_runs
    is_last_charged = bool(failed) and failed[-1].charge == Charge.ATTEMPT
    return ClaimedTask(
        fence=Fence(row.id, max(1, row.run)),
        function=row.function,
        queue=row.queue,
        priority=row.priority,
        upstream=row.upstream,
        tenant=row.tenant,
        args=task.args,
        codec_tag=task.codec_tag,
        counters=replace(row.counters, attempts=max(0, row.counters.attempts - is_last_charged)),
        enqueued_at=row.enqueued_at,
        ready_at=now,
        claimed_at=now,
        spent_seconds=0.0,
        timeout_seconds=timeout_seconds,
        max_attempts=row.max_attempts,
        labels=row.labels,
        last_failure=_failure_of(failed[-2]) if len(failed) > 1 else None,
    )


def _failure_of(run: HistoryRow) -> LastFailure:
    return LastFailure(
        Reason(run.reason),
        Verdict(run.verdict),
        run.message,
        run.run or 0,
        to_datetime(run.at if run.ended_at is None else run.ended_at),
    )


class _Decider(OutcomeDecider):
    """Decides as a worker does, and keeps what the function raised."""

    def __init__(self, observed: _Observed, core: Core) -> None:
        super().__init__(
            clock=asyncio.get_running_loop().time,
            wall_clock=time.time,
            rng=random.Random(),
            classifiers=core.classifiers,
        )
        self._observed = observed
        self._threads_before = frozenset(threading.enumerate())

    def on_exception(self, task_run: TaskRun, error: BaseException) -> Outcome | None:
        self._observed.error = error
        if task_run.control.stop is not None and not self._observed.stack:
            self._observed.stack = "".join(traceback.format_tb(own_traceback(error)))
        return super().on_exception(task_run, error)

    def on_stop(self, task_run: TaskRun) -> Outcome | None:
        if task_run.thread is not None and task_run.control.stop is not None and not self._observed.stack:
            self._observed.stack = _stack_of_function(self._threads_before)
        return super().on_stop(task_run)


def _stack_of_function(threads_before: Set[threading.Thread]) -> str:
    """Return where the function's thread is now, as text, without the frames that started it.

    Args:
        threads_before: Threads of this process that are older than the replay.
    """
    frames = sys._current_frames()  # noqa: SLF001 - the documented way to see another thread
    for thread in set(threading.enumerate()) - threads_before:
        if thread.name.startswith(_THREAD_NAME) and thread.ident in frames:
            stack = traceback.extract_stack(frames[thread.ident])
            started = next((at for at, frame in enumerate(stack) if _is_ours(frame.filename)), -1)
            return "".join(traceback.format_list(stack[started + 1 :]))
    return ""


def _is_ours(filename: str) -> bool:
    return Path(filename).is_relative_to(_PACKAGE)


def own_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error from the first frame that is not ours; the whole one if all are."""
    frame = error.__traceback__
    while frame is not None and _is_ours(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    return frame or error.__traceback__
