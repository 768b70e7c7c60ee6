"""What a provider job does with the functions of the application: ids, errors and results."""

from __future__ import annotations

import random
import time
import types
import typing
from collections.abc import Awaitable, Callable
from typing import Any

from tidegate.codec import Shape
from tidegate.domain.failure import Verdict
from tidegate.domain.provider_job import JobState
from tidegate.domain.text import redacted_text
from tidegate.errors import ArgumentsError
from tidegate.policy.classify import classify
from tidegate.steps.execution import unwrapped
from tidegate.steps.options import StepDone
from tidegate.steps.pending import Pending
from tidegate.steps.provider_job_options import Find
from tidegate.store.provider_job_rows import JobAnswer, JobEvent, JobReport

_ERROR_LENGTH = 500
_JITTER = 0.1


def checked_id(job_id: object, name: str, option: str) -> str:
    """Return the id of a job.

    Raises:
        ArgumentsError: The value cannot be an id.
    """
    if isinstance(job_id, str) and job_id:
        return job_id
    raise ArgumentsError(
        f"{option} of provider job {name!r} returned a {type(job_id).__name__}",
        fix="return the id that the provider gave the job, as text",
    )


def may_try_again(error: Exception) -> bool:
    """Whether a cancel that raised this error may succeed if it is tried again."""
    return classify(error, now=time.time()).failure.verdict is Verdict.TRANSIENT


def error_text(error: Exception) -> str:
    """Return an error of the provider for the record, without secrets."""
    return redacted_text(f"{type(error).__name__}: {error}", _ERROR_LENGTH)


def returns_text() -> str:
    """Stand in for `submit`, whose annotations may say less: the result of its step is text. Never called."""
    return ""


def reconciling(find: Find, name: str) -> Callable[[str], Any]:
    """Return a function that finds out what became of a submission, as `ctx.step` expects it."""

    def reconcile(idempotency_key: str) -> StepDone | Awaitable[StepDone | None] | None:
        found = find(idempotency_key)
        if isinstance(found, Awaitable):
            return _awaited(found, name)
        return None if found is None else StepDone(checked_id(found, name, "find"))

    return reconcile


async def _awaited(finding: Awaitable[str | None], name: str) -> StepDone | None:
    found = await finding
    return None if found is None else StepDone(checked_id(found, name, "find"))


def jittered(seconds: float) -> float:
    """Return a pause, a little longer or shorter, so that many jobs are not polled at one moment."""
    return seconds * random.uniform(1.0 - _JITTER, 1.0 + _JITTER)


def result_shape(poll: Any, *, is_batch: bool) -> Shape:
    """Return the form of a job's result by the annotation of `poll`; the free form if it is unusable."""
    try:
        declared = typing.get_type_hints(unwrapped(poll), include_extras=True).get("return", Any)
        parts = typing.get_args(declared) if _is_union(declared) else (declared,)
        results = [part for part in parts if typing.get_origin(part) is not Pending and part is not Pending]
        if is_batch:
            [mapping] = results
            return Shape(typing.get_args(mapping)[1])
        return Shape(typing.Union[tuple(results)])  # noqa: UP007 - the parts are known at run time only
    except Exception:  # annotations are user code
        return Shape()


def _is_union(declared: Any) -> bool:
    return typing.get_origin(declared) in (typing.Union, types.UnionType)


def unrecorded_answer(answer: JobAnswer, report: JobReport, age_seconds: float) -> JobAnswer:
    """Return what a store would answer to a report. For plain calls, whose jobs are not recorded.

    Args:
        answer: The previous answer.
        report: The report.
        age_seconds: The time since the job was submitted.
    """
    event = report.event
    polls = answer.polls + (event in (JobEvent.PENDING, JobEvent.POLL_FAILED))
    answer = answer._replace(
        job_id=report.job_id,
        polls=polls,
        failed_polls=answer.failed_polls + 1 if event is JobEvent.POLL_FAILED else 0,
        age_seconds=age_seconds,
        poll_in_seconds=report.delay_seconds,
        error=report.error,
        data=report.data,
        codec=report.codec,
    )
    if event is JobEvent.UNFINISHED:
        return answer._replace(state=JobState.SUBMITTING, generation=answer.generation + 1, job_id="")
    if event is JobEvent.SUBMITTED:
        return answer._replace(state=JobState.RUNNING, age_seconds=0.0)
    is_over = event not in (JobEvent.PENDING, JobEvent.POLL_FAILED, JobEvent.ITEMS)
    return answer._replace(state=JobState(event.value)) if is_over else answer
