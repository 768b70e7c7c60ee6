"""The request for a permit that a call makes on behalf of the present run."""

from __future__ import annotations

from weakref import WeakSet

from tidegate.calls.permits import PermitRequest
from tidegate.calls.settings import CallSettings, CallTimes
from tidegate.calls.transport.requests import _has_much_to_lose
from tidegate.context import Context, current_context
from tidegate.domain.outcome import Fence
from tidegate.providers.requests import Sizes

_runs_that_called: WeakSet[Context] = WeakSet()
"""Runs that have made a call of their upstream."""


def permit_request_for(sizes: Sizes, settings: CallSettings) -> PermitRequest:
    """Return what to ask a permit for, on behalf of the present run.

    Raises:
        TaskStopped: The run has ended.
    """
    run = current_run()
    seconds = remaining_times(settings.times).seconds
    if run is None:
        return PermitRequest(sizes.model, sizes.input_tokens, sizes.output_tokens, seconds=seconds)
    return PermitRequest(
        sizes.model,
        sizes.input_tokens,
        sizes.output_tokens,
        max_wait_seconds=run.remaining(),
        fence=Fence(run.task_id, run.run),
        priority=run.priority,
        tenant=run.tenant,
        function=run.function,
        is_charged_at_claim=_is_charged(run, settings.upstream),
        is_own_upstream=run.upstream == settings.upstream,
        is_probe=run.is_probe and run.upstream == settings.upstream,
        on_last_attempt=_has_much_to_lose(run),
        seconds=seconds,
    )


def current_run() -> Context | None:
    """Return the run that makes the present call; None outside a task.

    Raises:
        TaskStopped: The run has ended: the call is made by code that it left behind.
    """
    run = current_context()
    if run is not None:
        run.raise_if_ended()
    return run


def _is_charged(run: Context, upstream: str) -> bool:
    """Return whether this is the run's first call of the upstream that its claim was charged for."""
    if run.upstream != upstream or run in _runs_that_called:
        return False
    _runs_that_called.add(run)
    return True


def remaining_times(times: CallTimes) -> CallTimes:
    """Return the time limits, none longer than the present run has left."""
    run = current_context()
    return times if run is None else times.within(run.remaining())
