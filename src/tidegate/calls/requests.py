"""Builds the permit request of a call from the current run."""

from __future__ import annotations

from weakref import WeakSet

from tidegate.calls.permits import PermitRequest
from tidegate.calls.settings import CallSettings, CallTimes
from tidegate.context import Context, current_context
from tidegate.domain.outcome import Fence
from tidegate.providers.requests import Sizes

_runs_that_called: WeakSet[Context] = WeakSet()
"""The runs that have already called their upstream."""


def permit_request_for(sizes: Sizes, settings: CallSettings, *, host: str = "") -> PermitRequest:
    """Return the permit request of a call that the current run makes.

    Args:
        sizes: What the request names.
        settings: The settings of the upstream's calls.
        host: The host of the request; empty if unknown.

    Raises:
        TaskStopped: The run has ended.
    """
    run = current_run()
    seconds = remaining_times(settings.times).seconds
    if run is None:
        return PermitRequest(
            sizes.model,
            sizes.input_tokens,
            sizes.output_tokens,
            provider=settings.provider_name,
            operation=sizes.operation,
            counting=settings.counting(host),
            seconds=seconds,
        )
    return PermitRequest(
        sizes.model,
        sizes.input_tokens,
        sizes.output_tokens,
        max_wait_seconds=run.remaining(),
        fence=Fence(run.task_id, run.run),
        priority=run.priority,
        tenant=run.tenant,
        function=run.function,
        provider=settings.provider_name,
        operation=sizes.operation,
        is_charged_at_claim=_is_charged(run, settings.upstream),
        is_own_upstream=run.upstream == settings.upstream,
        is_probe=run.is_probe and run.upstream == settings.upstream,
        on_last_attempt=_would_spend_last_attempt(run),
        counting=settings.counting(host),
        seconds=seconds,
    )


def current_run() -> Context | None:
    """Return the run that makes the current call; None outside a task.

    Raises:
        TaskStopped: The run has ended, and code that it left running makes the call.
    """
    run = current_context()
    if run is not None:
        run.raise_if_ended()
    return run


def _is_charged(run: Context, upstream: str) -> bool:
    """Return whether the claim already charged this call: the run's first call of its own upstream."""
    if run.upstream != upstream or run in _runs_that_called:
        return False
    _runs_that_called.add(run)
    return True


def _would_spend_last_attempt(run: Context) -> bool:
    """Return whether a failed call would end the task while a refused call would not.

    The result is False for a probe, and after a call that may have been processed, because the attempt is
    then spent anyway.
    """
    is_last = run.attempt >= run.max_attempts
    return is_last and not run.is_probe and not run.calls.summary("").may_be_processed


def remaining_times(times: CallTimes) -> CallTimes:
    """Return the time limits, each capped at the time the current run has left."""
    run = current_context()
    return times if run is None else times.within(run.remaining())
