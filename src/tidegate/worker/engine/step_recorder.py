"""Records the steps of running tasks in the store. Steps that come during a write share the next write."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from tidegate.domain.approval import ApprovalState
from tidegate.domain.links import LinkSettings
from tidegate.domain.outcome import Fence
from tidegate.errors import StoreUnavailableError
from tidegate.store.approval_rows import AskedApproval, NewApproval
from tidegate.store.event_rows import EventWait, WaitAnswer, WaitStatus
from tidegate.store.protocol import Store
from tidegate.store.provider_job_rows import JobAnswer, JobBegin, JobItem, JobItems, JobReport, JobStatus
from tidegate.store.step_rows import BeginStatus, BegunStep, EndedStep, StepBegin, StepEnd, StepRow
from tidegate.worker import report
from tidegate.worker.backoff_delay import BackoffDelay
from tidegate.worker.engine.finisher import CONTENT_ERRORS

BATCH_STEPS = 500
BATCH_BYTES = 4 * 2**20
"""At most this much in one write, so that no other writer waits long."""
INLINE_BYTES = 16_384
"""Results up to this size are read at once when a task runs again; larger ones when their step is met."""
INLINE_TOTAL_BYTES = 64 * 2**20
"""If these results take more in total, each is read when its step is met: a task may have 100,000 steps."""

T = TypeVar("T")
Q = TypeVar("Q", StepBegin, StepEnd)
A = TypeVar("A", BegunStep, EndedStep)
Pending = list[tuple[Q, "Future[A]"]]


class StepRecorder:
    """The `StepPort` of all runs of a pool process. The methods of this class may be called from any thread.

    Args:
        store: Where steps are recorded.
        rng: For the pauses while the store is unreachable.
        on_lost: Called with each run that this worker no longer owns, so that its function is stopped.
        links: Makes the links of approvals; None if links are not configured.
    """

    def __init__(
        self,
        store: Store,
        rng: random.Random,
        on_lost: Callable[[Fence], None],
        links: LinkSettings | None = None,
    ) -> None:
        self._store = store
        self._rng = rng
        self._on_lost = on_lost
        self._links = links
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._begins: Pending[StepBegin, BegunStep] = []
        self._ends: Pending[StepEnd, EndedStep] = []
        self._woken = asyncio.Event()
        self._cached: dict[tuple[Fence, str], Future[BegunStep]] = {}
        """The steps with a cache whose begin has no answer yet. An end must not overtake it."""
        self._calls: set[asyncio.Task[None]] = set()
        self._unanswered: set[Future[Any]] = set()
        self._is_closed = False

    def begin(self, begin: StepBegin) -> Future[BegunStep]:
        """Record that a run is about to do a step."""
        if begin.cache is None:
            return self._take(self._begins, begin)
        step = (begin.fence, begin.key)
        begun = self._ask(f"beginning step {begin.name}", lambda: self._begin_cached(begin))
        with self._lock:
            self._cached[step] = begun
        begun.add_done_callback(lambda _: self._cached.pop(step, None))
        return begun

    def end(self, end: StepEnd) -> Future[EndedStep]:
        """Record how a step ended. The record is written even if its run has ended meanwhile."""
        if end.cache is not None:
            return self._ask("ending a cached step", lambda: self._store.end_cached_step(end))
        begun = self._cached.get((end.fence, end.key))
        if begun is None or begun.done():
            return self._take(self._ends, end)
        return self._ask("ending a cached step", lambda: self._end_after(begun, end))

    def read(self, task_id: str) -> Future[list[StepRow]]:
        """Read the recorded steps of a task, without large results."""
        return self._ask(
            f"reading the steps of task {task_id}",
            lambda: self._store.read_steps(
                task_id, max_bytes=INLINE_BYTES, max_total_bytes=INLINE_TOTAL_BYTES
            ),
        )

    def wait_for_event(self, wait: EventWait) -> Future[WaitAnswer]:
        """Begin a wait for an event, or return what became of it."""
        return self._ask(f"waiting for event {wait.name}", lambda: self._wait_for_event(wait))

    def begin_job(self, begin: JobBegin) -> Future[JobAnswer]:
        """Record that a run waits for a provider job, or return what is recorded of it."""
        return self._ask(
            f"beginning provider job {begin.name}",
            lambda: self._if_current(begin.fence, self._store.begin_provider_job(begin)),
        )

    def report_job(self, report: JobReport) -> Future[JobAnswer]:
        """Record what a run has learned about a provider job."""
        return self._ask(
            f"recording provider job {report.job_id}",
            lambda: self._if_current(report.fence, self._store.record_provider_job(report)),
        )

    def read_job_items(self, wanted: JobItems) -> Future[list[JobItem]]:
        """Return some finished items of a provider job; none after the last."""
        return self._ask("reading items of a provider job", lambda: self._store.read_job_items(wanted))

    def ask_approval(self, asked: NewApproval) -> Future[AskedApproval]:
        """Ask a person, or return what became of the question."""
        return self._ask(f"asking for approval {asked.key}", lambda: self._ask_approval(asked))

    async def run(self) -> None:
        """Write until cancelled. Then each request without an answer fails, and its step stays open."""
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                await self._write()
        finally:
            self._give_up()

    async def wait_until_written(self) -> None:
        """Return when everything taken so far has its answer."""
        if unanswered := [asyncio.wrap_future(future) for future in tuple(self._unanswered)]:
            await asyncio.wait(unanswered)

    def _take(self, pending: Pending[Q, A], request: Q) -> Future[A]:
        future: Future[A] = Future()
        if not self._expect_answer(future):
            return future
        with self._lock:
            is_first = not self._begins and not self._ends
            pending.append((request, future))
        if is_first:
            self._loop.call_soon_threadsafe(self._woken.set)
        return future

    def _expect_answer(self, future: Future[Any]) -> bool:
        """Note that a request waits for its answer; fail it if nothing is recorded any more."""
        with self._lock:
            if not self._is_closed:
                self._unanswered.add(future)
                future.add_done_callback(self._unanswered.discard)
                return True
        future.set_exception(_closed())
        return False

    def _give_up(self) -> None:
        """Fail every request without an answer, and all that come later."""
        with self._lock:
            self._is_closed = True
            unanswered = tuple(self._unanswered)
        for read in self._calls:
            read.cancel()
        for future in unanswered:
            _answer(future, _closed())

    def _ask(self, what: str, call: Callable[[], Awaitable[T]]) -> Future[T]:
        """Make a call of the store that may be repeated, until the store has answered."""
        future: Future[T] = Future()
        if self._expect_answer(future):
            self._loop.call_soon_threadsafe(self._start_call, what, call, future)
        return future

    def _start_call(self, what: str, call: Callable[[], Awaitable[T]], future: Future[T]) -> None:
        calling = self._loop.create_task(self._call(what, call, future), name="tidegate steps")
        self._calls.add(calling)
        calling.add_done_callback(self._calls.discard)

    async def _write(self) -> None:
        """Write what was taken until nothing is left. The recorder tries until the store has answered."""
        while self._begins or self._ends:
            with self._lock:
                begins = _first(self._begins, lambda begin: 0)
                left = {(begin.fence, begin.key) for begin, _ in self._begins}
                held = [each for each in self._ends if (each[0].fence, each[0].key) in left] if left else []
                if held:  # the end of a step must not be written before its begin
                    self._ends = [each for each in self._ends if (each[0].fence, each[0].key) not in left]
                ends = _first(self._ends, lambda end: len(end.data))
                self._ends = held + self._ends
            begins = [each for each in begins if not each[1].done()]  # the others' functions were cut off
            begun = {(begin.fence, begin.key) for begin, _ in begins}
            if any((end.fence, end.key) in begun for end, _ in ends):
                await self._write_begins(begins)
                await self._write_ends(ends)
            else:
                await asyncio.gather(self._write_begins(begins), self._write_ends(ends))

    async def _write_begins(self, pending: Pending[StepBegin, BegunStep]) -> None:
        if not pending:
            return
        requests = [begin for begin, _ in pending]
        answers = await self._insist("beginning", requests, self._store.begin_steps)
        for (begin, future), answer in zip(pending, answers, strict=True):
            _answer(future, answer)
            if isinstance(answer, BegunStep) and answer.status is BeginStatus.FENCED:
                self._on_lost(begin.fence)

    async def _write_ends(self, pending: Pending[StepEnd, EndedStep]) -> None:
        if not pending:
            return
        answers = await self._insist("ending", [end for end, _ in pending], self._store.end_steps)
        for (_, future), answer in zip(pending, answers, strict=True):
            _answer(future, answer)

    async def _insist(
        self, what: str, requests: Sequence[Q], write: Callable[[Sequence[Q]], Awaitable[list[A]]]
    ) -> list[A | BaseException]:
        """Write until the store has answered. If it refuses the content, each step is written alone."""
        pause = BackoffDelay(self._rng)
        while True:
            try:
                return list(await write(requests))
            except CONTENT_ERRORS as refused:
                if len(requests) == 1:
                    return [refused]
                answers: list[A | BaseException] = []
                for request in requests:
                    answers += await self._insist(what, [request], write)
                return answers
            except Exception as error:
                seconds = pause.next()
                report.will_retry(f"{what} {len(requests)} steps", error, seconds)
                await asyncio.sleep(seconds)

    async def _call(self, what: str, call: Callable[[], Awaitable[T]], future: Future[T]) -> None:
        pause = BackoffDelay(self._rng)
        while not future.done():
            try:
                _answer(future, await call())
            except CONTENT_ERRORS as refused:
                _answer(future, refused)
            except Exception as error:
                seconds = pause.next()
                report.will_retry(what, error, seconds)
                await asyncio.sleep(seconds)

    async def _begin_cached(self, begin: StepBegin) -> BegunStep:
        begun = await self._store.begin_cached_step(begin)
        if begun.status is BeginStatus.FENCED:
            self._on_lost(begin.fence)
        return begun

    async def _end_after(self, begun: Future[BegunStep], end: StepEnd) -> EndedStep:
        await asyncio.wait([asyncio.wrap_future(begun)])
        (ended,) = await self._store.end_steps([end])
        return ended

    async def _wait_for_event(self, wait: EventWait) -> WaitAnswer:
        answer = await self._store.wait_for_event(wait)
        if answer.status is WaitStatus.FENCED:
            self._on_lost(wait.fence)
        return answer

    async def _if_current(self, fence: Fence, call: Awaitable[JobAnswer]) -> JobAnswer:
        answer = await call
        if answer.status is JobStatus.FENCED:
            self._on_lost(fence)
        return answer

    async def _ask_approval(self, asked: NewApproval) -> AskedApproval:
        answer = await self._store.ask_approval(asked)
        if answer.state is None:
            self._on_lost(asked.fence)
        if answer.state is not ApprovalState.OPEN or self._links is None:
            return answer
        link = self._links.approval_link(
            asked.fence.task_id, asked.key, asked_at=answer.asked_at, deadline_at=answer.deadline_at
        )
        return answer._replace(link=link)


def _answer(future: Future[Any], answer: object) -> None:
    with contextlib.suppress(InvalidStateError):  # nobody waits for it any more
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _closed() -> StoreUnavailableError:
    return StoreUnavailableError(
        "the worker is closed, so the step cannot be recorded",
        fix="let the task run again",
        place="the worker",
        may_pass=True,
    )


def _first(pending: Pending[Q, A], size: Callable[[Q], int]) -> Pending[Q, A]:
    """Take what fits into one write from the front."""
    count = total = 0
    for request, _ in pending[:BATCH_STEPS]:
        total += size(request)
        if count and total > BATCH_BYTES:
            break
        count += 1
    taken = pending[:count]
    del pending[:count]
    return taken
