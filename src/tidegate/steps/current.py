"""The step that the running code is part of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tidegate.domain.usage import Usage, UsageTotals


class CurrentStep:
    """One execution of a step. The transports note in it how its calls ended.

    Args:
        idempotency_key: What identifies the step for a provider, the same in each run.
    """

    def __init__(self, idempotency_key: str) -> None:
        self.idempotency_key = idempotency_key
        self.calls = 0
        """Calls that a transport has sent."""
        self.in_flight = 0
        """Calls without an answer yet."""
        self.upstream = ""
        """The upstream of the last call."""
        self.request_id = ""
        """What the provider calls the last request; empty if it did not say."""
        self.used: UsageTotals | None = None
        """What its calls consumed; None if no response said it."""
        self.has_doubt = False
        """Whether a call ended without a definite answer."""

    def call_sent(self, upstream: str) -> None:
        """Note that a call leaves now."""
        self.calls += 1
        self.in_flight += 1
        self.upstream = upstream

    def call_not_sent(self) -> None:
        """Note that a call that was about to leave did not."""
        self.calls -= 1
        self.in_flight -= 1

    def call_ended(self, *, is_in_doubt: bool, request_id: str = "", usage: Usage | None = None) -> None:
        """Note how a call ended, and what it consumed."""
        if usage is not None:
            self.used = (self.used or UsageTotals()).with_call(usage)
        self.in_flight -= 1
        self.has_doubt |= is_in_doubt
        self.request_id = request_id or self.request_id


_current: ContextVar[CurrentStep | None] = ContextVar("tidegate_step", default=None)


def current_step() -> CurrentStep | None:
    """Return the step that this code is part of; None outside a step.

    The step is also known in everything that it awaits or starts as an asyncio task, but not in its threads.
    """
    return _current.get()


def enter_step(step: CurrentStep) -> None:
    """Mark the code that follows, in the current `contextvars` context, as part of a step."""
    _current.set(step)


_are_calls_recorded: ContextVar[bool] = ContextVar("tidegate_records_calls", default=True)


def are_calls_recorded() -> bool:
    """Return whether the calls of this code may be recorded: those that ask for a state may not."""
    return _are_calls_recorded.get()


@contextmanager
def without_recorded_calls() -> Iterator[None]:
    """Record no calls in the block: a later run must not get the answers of an earlier one."""
    was = _are_calls_recorded.set(False)
    try:
        yield
    finally:
        _are_calls_recorded.reset(was)
