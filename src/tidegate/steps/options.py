"""The options of one step, checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from tidegate.domain.readers import (
    LONGEST_WAIT_SECONDS,
    Seconds,
    positive_option,
    short_text_option,
    whole_option,
    wrong,
)
from tidegate.domain.step import KEY_LENGTH, OnDoubt
from tidegate.steps.cache import CacheOptions


@dataclass(frozen=True, slots=True)
class StepDone:
    """What a reconciling function returns if the step in doubt was done: with its result."""

    result: Any


Reconcile = Callable[[str], StepDone | Awaitable[StepDone | None] | None]
"""Finds out what became of a step in doubt.

The function gets the step's idempotency key. The function returns `StepDone(result)` if the step was done.
The function returns None if the step was not done; then the step is done again."""
DoubtPolicy = Literal["repeat", "ask"]
InDoubt = DoubtPolicy | Reconcile
OnChange = Literal["rerun", "error"]
MOST_RETRIES = 20


@dataclass(frozen=True, slots=True)
class StepOptions:
    """What a task function asked for with `ctx.step`."""

    key: str | None
    on_doubt: OnDoubt
    reconcile: Reconcile | None
    on_change: OnChange | None
    timeout_seconds: float | None
    retries: int
    """How often the function is called again in this run after a transient failure."""
    cache: CacheOptions | None = None
    """How results are shared with other tasks; None: they are not."""


def step_options(
    name: str,
    *,
    key: str | None,
    in_doubt: InDoubt,
    on_change: OnChange | None,
    timeout: Seconds | None,
    retry: int,
    cache: CacheOptions | None = None,
) -> StepOptions:
    """Return the options of a step.

    Raises:
        OptionError: One of the options is invalid.
    """
    short_text_option("name", name, most=KEY_LENGTH)
    if key is not None:
        short_text_option("key", key, most=KEY_LENGTH)
    if on_change not in (None, "rerun", "error"):
        raise wrong("on_change", on_change, "use 'rerun' or 'error'")
    if on_change is not None and key is None:
        raise wrong(
            "on_change", on_change, "give the step a key=: without one, other arguments are another step"
        )
    if callable(in_doubt):
        on_doubt, reconcile = OnDoubt.RECONCILE, in_doubt
    elif in_doubt in ("repeat", "ask"):
        on_doubt, reconcile = OnDoubt(in_doubt), None
    else:
        raise wrong(
            "in_doubt", in_doubt, "use 'repeat', 'ask', or a function that finds out what became of it"
        )
    seconds = None if timeout is None else positive_option("timeout", timeout, most=LONGEST_WAIT_SECONDS)
    retries = whole_option("retry", retry, least=0, most=MOST_RETRIES)
    return StepOptions(key, on_doubt, reconcile, on_change, seconds, retries, cache)
