"""The options of a provider job, checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidegate.domain.readers import (
    LONGEST_WAIT_SECONDS,
    Seconds,
    callable_option,
    positive_option,
    short_text_option,
    whole_option,
    wrong,
)
from tidegate.domain.step import KEY_LENGTH, OnDoubt
from tidegate.steps.options import DoubtPolicy

Find = Callable[[str], str | Awaitable[str | None] | None]
"""Asks the provider for a job by its idempotency key; returns the job's id, or None if there is none."""
Cancel = Callable[[str], object]
"""Asks the provider to cancel a job, by the job's id."""
LONGEST_PAUSE_SECONDS = 600.0
"""The longest pause between two polls, unless `every` or `max_every` is longer."""
MOST_SUBMITS = 100


@dataclass(frozen=True, slots=True)
class ProviderJobOptions:
    """What a task function asked for with `ctx.remote` or `ctx.remote_batch`."""

    key: str | None
    on_doubt: OnDoubt
    find: Find | None
    cancel: Cancel | None
    every_seconds: float
    max_every_seconds: float
    timeout_seconds: float | None
    max_poll_failures: int
    max_submits: int = 1


def provider_job_options(
    name: str,
    submit: object,
    poll: object,
    *,
    find: Find | None,
    cancel: Cancel | None,
    every: Seconds,
    max_every: Seconds | None,
    timeout: Seconds | None,
    in_doubt: DoubtPolicy,
    max_poll_failures: int,
    key: str | None,
    max_submits: int = 1,
) -> ProviderJobOptions:
    """Return the options of a provider job.

    Raises:
        OptionError: One of the options is invalid.
    """
    for option, text in (("name", name), ("key", key)):
        if text is not None:
            short_text_option(option, text, most=KEY_LENGTH)
    callable_option("submit", submit)
    callable_option("poll", poll)
    for option, function in (("find", find), ("cancel", cancel)):
        if function is not None:
            callable_option(option, function)
    if in_doubt not in ("repeat", "ask"):
        raise wrong("in_doubt", in_doubt, "use 'repeat' or 'ask', or pass find=")
    every_seconds = positive_option("every", every, most=LONGEST_WAIT_SECONDS)
    longest = (
        max(every_seconds, LONGEST_PAUSE_SECONDS)
        if max_every is None
        else positive_option("max_every", max_every, most=LONGEST_WAIT_SECONDS)
    )
    if longest < every_seconds:
        raise wrong("max_every", max_every, "use a pause that is at least as long as every=")
    return ProviderJobOptions(
        key,
        OnDoubt(in_doubt) if find is None else OnDoubt.RECONCILE,
        find,
        cancel,
        every_seconds,
        longest,
        None if timeout is None else positive_option("timeout", timeout, most=LONGEST_WAIT_SECONDS),
        whole_option("max_poll_failures", max_poll_failures),
        whole_option("max_submits", max_submits, most=MOST_SUBMITS),
    )
