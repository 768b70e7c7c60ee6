"""A provider job of a run: its identity, when to poll it, and what its polls report to the store."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from tidegate.codec import CODEC, Shape
from tidegate.domain.failure import CAPACITY_REASONS, Verdict
from tidegate.domain.provider_job import UNFINISHED, JobState
from tidegate.domain.readers import wait_option
from tidegate.domain.step import StepState
from tidegate.domain.text import counted, format_duration
from tidegate.errors import ArgumentsError, ProviderJobFailedError, ProviderJobTimeoutError, UsageError
from tidegate.policy.classify import classify
from tidegate.steps.execution import StepExecution, StepLost, fingerprint_of_arguments
from tidegate.steps.options import StepOptions
from tidegate.steps.pending import Pending, progress_text
from tidegate.steps.provider_job_functions import (
    checked_id,
    error_text,
    jittered,
    reconciling,
    result_shape,
    returns_text,
    unrecorded_answer,
)
from tidegate.steps.provider_job_options import ProviderJobOptions
from tidegate.steps.run_steps import RunSteps
from tidegate.store.provider_job_rows import (
    JobAnswer,
    JobBegin,
    JobEvent,
    JobItem,
    JobItems,
    JobReport,
    JobStatus,
)

POLL_SECONDS = 300.0
"""The longest that a poll may take on the event loop. Polls must be short, because each holds a slot."""
CANCEL_TRIES = 3
"""How often a run calls `cancel`, with a pause between, if the provider cannot be reached."""
CANCEL_PAUSE_SECONDS = 1.0
ITEM_BYTES = 262_144
"""The most bytes of one item of a batch. A larger item must be kept elsewhere, and the item names the
place."""
_ITEMS_AT_ONCE = 200
_LEAST_SECONDS = 1.0
"""The shortest pause that `Pending(after=…)` can ask for, unless `every` is shorter."""
_GROWTH, _FAILED_GROWTH = 1.5, 2.0
_LARGEST_POWER = 60


class ProviderJob:
    """One provider job of a run: what is known of it, and what to report.

    Args:
        steps: The steps of the run.
        name: The job's name.
        submit: Starts the job.
        args: What `submit` gets, after the items.
        poll: Asks for the job.
        options: The options of the job.
        items: The items of a batch; None if the job is not a batch.
        provider: The provider's name, for people.
    """

    def __init__(
        self,
        steps: RunSteps,
        name: str,
        submit: Callable[..., Any],
        args: tuple[Any, ...],
        poll: Callable[[str], Any],
        options: ProviderJobOptions,
        *,
        items: Mapping[str, Any] | None,
        provider: str,
    ) -> None:
        self.name = name
        self.options = options
        self.job_id = ""
        self.poll_at = 0.0
        """When the next poll is due, by the clock of the run."""
        self._steps = steps
        self._submit = submit
        self._args = args
        self._poll = poll
        self._shape = result_shape(poll, is_batch=items is not None)
        self._items = items
        self._finished: dict[str, Any] = {}
        """The results of the items that have finished."""
        self._provider = provider
        self._answer = JobAnswer(JobStatus.KNOWN)
        self._late_at = math.inf
        self._given: Pending | None = None
        """What the latest poll of this run returned, if the job was not done."""
        self._is_in_doubt = False
        identity = (
            b"key\0" + options.key.encode()
            if options.key is not None
            else fingerprint_of_arguments(name, (*args, *sorted(items or ())))
        )
        self.key = steps.identify(f"remote {name}", identity, has_key=options.key is not None)

    # --- what is recorded --------------------------------------------------------------------------------

    def begin(self) -> JobBegin:
        """Return the record that the run waits for this job."""
        can_cancel = self.options.cancel is not None
        return JobBegin(self._steps.fence, self.key, self.name, self._provider, can_cancel)

    def take(self, answer: JobAnswer, now: float) -> None:
        """Use what is recorded of the job.

        Args:
            answer: The store's answer.
            now: The time by the clock of the run.

        Raises:
            StepLost: The run is no longer the task's current one.
        """
        if answer.status is JobStatus.FENCED:
            raise StepLost
        self._answer = answer
        self.job_id = answer.job_id
        self.poll_at = now + answer.poll_in_seconds
        timeout = self.options.timeout_seconds
        self._late_at = math.inf if timeout is None else now - answer.age_seconds + timeout

    def take_unrecorded(self, report: JobReport, now: float) -> None:
        """Take over a report of a plain call, whose jobs are not recorded."""
        age = now - (self._late_at - (self.options.timeout_seconds or 0.0))
        self.take(unrecorded_answer(self._answer, report, 0.0 if math.isinf(age) else age), now)

    def items_after(self, after: str) -> JobItems | None:
        """Return the request for finished items after this one; None if the job has no items."""
        return None if self._items is None else JobItems(self._steps.fence, self.key, after)

    def take_items(self, items: list[JobItem]) -> None:
        """Take finished items that are recorded."""
        for item, data, _ in items:
            self._finished.setdefault(item, self._decoded(data))

    @property
    def has_ended(self) -> bool:
        """Whether the job has a result, or will get none."""
        return self._answer.state not in UNFINISHED

    def value(self) -> Any:
        """Return the result of a job that has ended, in the form that every later run gets.

        Raises:
            ProviderJobTimeoutError: It took too long.
            ProviderJobFailedError: It has no result.
        """
        answer = self._answer
        if answer.state is JobState.TIMED_OUT:
            raise ProviderJobTimeoutError(
                answer.error,
                fix="give it a longer timeout=, then redrive the task",
                step=self.name,
                job_id=answer.job_id,
            )
        if answer.state is not JobState.DONE:
            raise ProviderJobFailedError(
                answer.error or f"provider job {answer.job_id} was cancelled",
                fix="redrive the task to submit it once more",
                step=self.name,
                job_id=answer.job_id,
            )
        if self._items is not None:
            return {item: self._finished[item] for item in self._items if item in self._finished}
        return self._decoded(answer.data or b"null")

    def release(self) -> None:
        """Let the next equal job of the run go on with this one, unless it has ended or has a key."""
        if not self.has_ended and self.options.key is None:
            self._steps.release(self.key)

    # --- the submission ----------------------------------------------------------------------------------

    def submission(self) -> tuple[StepExecution, Callable[[], Any], StepOptions]:
        """Return the step that submits the job, its function and its options."""
        options = self._step_options(self._answer.generation)
        function = functools.partial(self._submit, *self._rest(), *self._args)
        return self._execution(self._answer.generation), function, options

    def meet_submissions(self) -> None:
        """Note that the run has come to the steps of all earlier submissions. The steps must be loaded."""
        for generation in range(1, self._answer.generation + (1 if self.job_id else 0)):
            self._steps.recorded(self._execution(generation).key, self.name)

    def submitted(self, job_id: object) -> JobReport:
        """Return the report that the provider has the job.

        Raises:
            ArgumentsError: `submit` did not return an id.
        """
        self.job_id = checked_id(job_id, self.name, "submit")
        return self._report(JobEvent.SUBMITTED, delay_seconds=self._delay())

    def find_submission(self) -> str | Awaitable[str | None] | None:
        """Return the job's id, if it is recorded or the provider finds it. The steps must be loaded."""
        execution = self._execution(self._answer.generation)
        row = None if self.job_id else self._steps.recorded(execution.key, self.name)
        if row is not None and row.data is not None:
            return str(Shape().decode(row.data, path="the id of the job"))
        self._is_in_doubt = row is not None and row.state is StepState.OPEN
        if self.job_id or self.options.find is None:
            return self.job_id
        return self.options.find(execution.current.idempotency_key)

    def doubt(self) -> str:
        """Return why a job without an id cannot be cancelled; empty if it was not submitted."""
        is_unknown = self._is_in_doubt and self.options.find is None
        return "its submission has no recorded answer: see tidegate doubts ls" if is_unknown else ""

    def nothing_to_submit(self) -> JobReport | None:
        """Return the report that all items of a batch have finished already; None if some are left."""
        if self._items is None or self._left():
            return None
        return self._report(JobEvent.DONE)

    def _execution(self, generation: int) -> StepExecution:
        return StepExecution(self._steps, self.name, returns_text, (), self._step_options(generation))

    def _step_options(self, generation: int) -> StepOptions:
        options = self.options
        return StepOptions(
            key=f"{self.key}#{generation}",
            on_doubt=options.on_doubt,
            reconcile=None if options.find is None else reconciling(options.find, self.name),
            on_change=None,
            timeout_seconds=None,
            retries=0,
        )

    def _left(self) -> list[str]:
        return [item for item in self._items or () if item not in self._finished]

    def _rest(self) -> tuple[Any, ...]:
        if self._items is None:
            return ()
        return ({item: self._items[item] for item in self._left()},)

    # --- polls -------------------------------------------------------------------------------------------

    def polling(self) -> Callable[[], Any]:
        """Return what polls the job."""
        return functools.partial(self._poll, self.job_id)

    def next_at(self) -> float:
        """Return the moment of the next poll: not later than the timeout, unless the last poll failed."""
        return self.poll_at if self._answer.failed_polls else min(self.poll_at, self._late_at)

    def is_late(self, now: float) -> bool:
        """Whether the job has taken too long."""
        return now >= self._late_at

    def reports_of(self, found: Any) -> list[JobReport]:
        """Return the reports of what a poll returned.

        Raises:
            ArgumentsError: The result cannot be stored.
        """
        if isinstance(found, Pending):
            return self._reports_of_pending(found)
        if self._items is None:
            data = self._encoded(found, f"the result of provider job {self.name!r}")
            return [self._report(JobEvent.DONE, data=data, codec=CODEC)]
        if not isinstance(found, Mapping):
            raise ArgumentsError(
                f"poll of provider job {self.name!r} returned a {type(found).__name__}",
                fix="return Pending(…), or the results of the finished items by their names",
            )
        reports = self._reports_of_items(found)
        left = self._left()
        if not left:
            return [*reports, self._report(JobEvent.DONE)]
        error = (
            f"{len(left)} of {counted(len(self._items), 'item')} without a result after job {self.job_id}, "
            f"for example {left[0]}"
        )
        if self._answer.generation % self.options.max_submits:
            return [*reports, self._report(JobEvent.UNFINISHED, error=error)]
        return [*reports, self._report(JobEvent.FAILED, error=error)]

    def report_of_error(self, error: Exception) -> tuple[JobReport, bool]:
        """Return the report of a poll that raised, and whether the error is raised in the task."""
        message = error_text(error)
        if isinstance(error, ProviderJobFailedError):
            return self._report(JobEvent.FAILED, error=error.message), True
        failure = classify(error, now=time.time()).failure
        may_pass = failure.verdict is Verdict.TRANSIENT or failure.reason in CAPACITY_REASONS
        failed = self._answer.failed_polls
        grown = self.options.every_seconds * _FAILED_GROWTH ** min(failed, _LARGEST_POWER)
        delay = max(failure.wait_seconds or 0.0, min(self.options.max_every_seconds, grown))
        report = self._report(JobEvent.POLL_FAILED, error=message, delay_seconds=jittered(delay))
        return report, not may_pass or failed + 1 >= self.options.max_poll_failures

    def cancelling(self) -> Callable[[], Any] | None:
        """Return what cancels the job; None if nothing does."""
        cancel = self.options.cancel
        return None if cancel is None else functools.partial(cancel, self.job_id)

    def timed_out(self, cancel_error: str = "") -> JobReport:
        """Return the report that the job took too long."""
        limit = format_duration(self.options.timeout_seconds or 0.0)
        error = f"provider job {self.job_id} was not done within {limit}"
        if self.options.cancel is not None:
            error += f", and its cancel failed: {cancel_error}" if cancel_error else ", and was cancelled"
        return self._report(JobEvent.TIMED_OUT, error=error)

    def cancelled(self, cancel_error: str = "") -> JobReport:
        """Return the report that the provider was asked to cancel the job."""
        event = JobEvent.CANCEL_FAILED if cancel_error else JobEvent.CANCELLED
        return self._report(event, error=cancel_error)

    def why(self, next_poll_at: float) -> str:
        """Return what the task waits for, for people.

        Args:
            next_poll_at: When the next poll is due, by the clock of the store.
        """
        at = f" at {self._provider}" if self._provider else ""
        polled = f"polled {counted(self._answer.polls, 'time')}{progress_text(self._given)}"
        moment = datetime.fromtimestamp(next_poll_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"waits for provider job {self.job_id}{at}, {polled}, next at {moment}"

    def _reports_of_pending(self, pending: Pending) -> list[JobReport]:
        self._given = pending
        reports = self._reports_of_items(pending.items)
        if self._items is not None and not self._left():
            return [*reports, self._report(JobEvent.DONE)]
        delay = self._delay()
        if pending.after is not None:
            delay = max(wait_option("after", pending.after), min(self.options.every_seconds, _LEAST_SECONDS))
        return [
            *reports,
            self._report(
                JobEvent.PENDING,
                delay_seconds=delay,
                done=None if pending.done is None else float(pending.done),
                total=None if pending.total is None else float(pending.total),
                note=pending.note,
            ),
        ]

    def _reports_of_items(self, found: Mapping[str, Any]) -> list[JobReport]:
        """Return the reports of finished items, some at a time. Unknown items are left out."""
        if found and self._items is None:
            raise UsageError("Pending(items=…) was returned to ctx.remote", fix="use ctx.remote_batch")
        new = []
        for item in self._left():
            if item in found:
                data = self._encoded(found[item], f"the result of item {item!r}", limit=ITEM_BYTES)
                new.append(JobItem(item, data, CODEC))
                self._finished[item] = self._decoded(data)
        return [
            self._report(JobEvent.ITEMS, items=tuple(new[at : at + _ITEMS_AT_ONCE]))
            for at in range(0, len(new), _ITEMS_AT_ONCE)
        ]

    def _delay(self) -> float:
        """Return the seconds until the next poll: more from poll to poll, up to the cap."""
        grown = self.options.every_seconds * _GROWTH ** min(self._answer.polls, _LARGEST_POWER)
        return jittered(min(self.options.max_every_seconds, grown))

    def _report(self, event: JobEvent, **facts: Any) -> JobReport:
        return JobReport(self._steps.fence, self.key, self._answer.generation, event, self.job_id, **facts)

    def _encoded(self, value: Any, path: str, **limits: int) -> bytes:
        try:
            return self._shape.encode(value, path=path, **limits)
        except ArgumentsError:
            return Shape().encode(value, path=path, **limits)

    def _decoded(self, data: bytes) -> Any:
        path = f"the result of provider job {self.name!r}"
        try:
            return self._shape.decode(data, path=path)
        except ArgumentsError:
            return Shape().decode(data, path=path)
