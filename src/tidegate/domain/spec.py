"""The settings of a task function, as values. They live in code, so a deploy changes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, IntEnum, StrEnum
from typing import Final

from tidegate.domain.failure import Reason
from tidegate.readers import (
    LONGEST_WAIT_SECONDS,
    Seconds,
    choice_option,
    number_option,
    seconds_option,
    set_fields,
    whole_option,
    wrong,
)


class Priority(IntEnum):
    """How urgent a task is. Stored as its number; the smaller goes first."""

    INTERACTIVE = 0
    """Someone waits."""
    NORMAL = 1
    BULK = 2
    """Keeps a small guaranteed share of the claims, so it is never starved."""

    @property
    def word(self) -> str:
        """The name used in options, the command line and output."""
        return str(self.name).lower()


class OnCrash(StrEnum):
    """What to do when the process that ran a task died."""

    RETRY = "retry"
    FAIL = "fail"
    """Dead at the first crash: at most once after the claim."""


class RunsIn(StrEnum):
    """Where a body runs."""

    LOOP = "loop"
    """On the pool process's event loop. For `async def`."""
    PROCESS = "process"
    """In a child slot: a warm process of its own that can be killed."""
    THREAD = "thread"
    """In a thread of the pool process, which nothing can kill."""


class Jitter(StrEnum):
    """How far a wait is drawn from its plan, so that tasks which failed together come back apart.

    Source of the names full, equal and none: AWS Architecture Blog, "Exponential Backoff and Jitter".
    """

    NARROW = "narrow"
    """From 0.8 to 1.2 times the plan: the default. The retry budget already spreads re-runs, and a person
    can still read the plan in the history."""
    EQUAL = "equal"
    """From half of the plan to all of it."""
    FULL = "full"
    """From 0 to all of the plan: spreads most, and shortens the mean wait by half."""
    NONE = "none"
    """Exactly the plan."""


@dataclass(frozen=True, slots=True, init=False)
class Exponential:
    """Waits of base, base × factor, base × factor²… seconds, at most `cap`.

    Args:
        base: The first wait; 0 stays 0.
        cap: The longest, a year at most.
        factor: 1 or more.
        jitter: A word of `Jitter`.

    Raises:
        OptionError: A value cannot work.
    """

    base: float
    cap: float
    factor: float
    jitter: Jitter

    def __init__(
        self,
        base: Seconds = 10.0,
        cap: Seconds = 600.0,
        factor: float = 2.0,
        *,
        jitter: Jitter | str = Jitter.NARROW,
    ) -> None:
        set_fields(
            self,
            base=_wait("Exponential: base", base),
            cap=_wait("Exponential: cap", cap),
            factor=number_option("Exponential: factor", factor, least=1.0),
            jitter=_jitter(jitter),
        )


@dataclass(frozen=True, slots=True, init=False)
class Polynomial:
    """Waits of nᵖ + plus seconds after the nth charged attempt (n⁴ + 2 by default), at most `cap`.

    Args:
        power: 0 or more.
        plus: Added to each wait.
        cap: The longest, a year at most.
        jitter: A word of `Jitter`.

    Raises:
        OptionError: A value cannot work.
    """

    power: float
    plus: float
    cap: float
    jitter: Jitter

    def __init__(
        self,
        power: float = 4.0,
        plus: Seconds = 2.0,
        cap: Seconds = 86_400.0,
        *,
        jitter: Jitter | str = Jitter.NARROW,
    ) -> None:
        set_fields(
            self,
            power=number_option("Polynomial: power", power, least=0.0),
            plus=_wait("Polynomial: plus", plus),
            cap=_wait("Polynomial: cap", cap),
            jitter=_jitter(jitter),
        )


@dataclass(frozen=True, slots=True, init=False)
class Fixed:
    """The same wait each time, in seconds.

    Args:
        seconds: The wait, a year at most.
        jitter: A word of `Jitter`.

    Raises:
        OptionError: A value cannot work.
    """

    seconds: float
    jitter: Jitter

    def __init__(self, seconds: Seconds, *, jitter: Jitter | str = Jitter.NARROW) -> None:
        set_fields(self, seconds=_wait("Fixed: seconds", seconds), jitter=_jitter(jitter))


Backoff = Exponential | Polynomial | Fixed


def backoff_option(option: str, value: Backoff | Seconds) -> Backoff:
    """Return a backoff; a duration means the same wait each time.

    Raises:
        OptionError: It is neither. A class of the caller's own is refused too, even one derived from ours:
            waits are also computed where the application's code is not at hand.
    """
    if type(value) in (Exponential, Polynomial, Fixed):
        return value  # type: ignore[return-value]
    if isinstance(value, int | float | timedelta | str):
        return Fixed(_wait(option, value))
    raise wrong(
        option,
        value,
        "use a duration, Fixed, Exponential or Polynomial; for a wait that the task computes, "
        "raise RetryAfter(seconds) in it",
    )


def _wait(option: str, value: Seconds) -> float:
    return seconds_option(option, value, most=LONGEST_WAIT_SECONDS)


def _jitter(value: Jitter | str) -> Jitter:
    return Jitter(choice_option("jitter", value, Jitter))


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of `retry=[…]`: what to do about one kind of error. Made by `on(…)` and `discard(…)`."""

    match: type[BaseException] | Reason
    retry: bool = True
    """False: the task is dead at once (and kept as a dead letter)."""
    wait: Backoff | None = None
    """None: the task function's own backoff."""
    attempts: int | None = None
    """Charged attempts this rule allows, beside `max_attempts`; None: no limit of its own."""

    def __post_init__(self) -> None:
        if self.wait is not None:
            object.__setattr__(self, "wait", backoff_option("on(…): wait", self.wait))
        if self.attempts is not None:
            whole_option("on(…): attempts", self.attempts)

    @property
    def name(self) -> str:
        """The name under which this rule's attempts are counted."""
        if isinstance(self.match, Reason):
            return self.match.value
        return f"{self.match.__module__}.{self.match.__qualname__}"


NO_LIMIT = float("inf")
"""Write it out where a limit is really not wanted: `timeout=NO_LIMIT`."""
TIMEOUT_SECONDS = 300.0
"""For one attempt, unless its function says otherwise."""
TIMEOUT_WITH_UPSTREAM_SECONDS = 900.0
"""The same for a function with an upstream: longer than one call may take, 600 s."""
TOTAL_TIMEOUT_SECONDS = 1_800.0
"""For a whole task, unless its function or its caller says otherwise."""
TOTAL_TIMEOUT_WITH_UPSTREAM_SECONDS = 3_600.0
"""The same for a function with an upstream: enough for all attempts of the usual length and their waits."""


class Usual(Enum):
    """The type of `USUAL`."""

    VALUE = "usual"


USUAL: Final = Usual.VALUE
"""An option that was not given."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """The settings of one task function."""

    name: str
    """Stable name in the store: `module:function` unless given."""
    queue: str = "default"
    priority: Priority = Priority.NORMAL
    upstream: str = ""
    """The outside service its calls go to; empty for none."""
    provider: str = ""
    """Whose errors that service's errors are (`providers/packs/`)."""
    rate_limit: Window | None = None
    """Runs started in a time, by all workers together; None: as many as there are slots."""
    timeout: float = TIMEOUT_SECONDS
    """Seconds one attempt may run."""
    total_timeout: float = TOTAL_TIMEOUT_SECONDS
    """Seconds the whole task may take from its first start; waits for an upstream are not counted."""
    deadline: float = NO_LIMIT
    """Seconds from each enqueue, which nothing stops."""
    max_attempts: int = 3
    """Charged attempts before it is dead."""
    backoff: Backoff = field(default_factory=Exponential)
    rules: tuple[Rule, ...] = ()
    retry_unknown: bool = True
    """Whether a failure of unknown meaning is tried again (`on_unknown="retry"`)."""
    on_crash: OnCrash = OnCrash.RETRY
    runs_in: RunsIn = RunsIn.LOOP
    memory_limit: int | None = None
    """Bytes its process may hold while it runs; only in a process of its own."""
    cancel_grace: float | None = None
    """Seconds after a cancel until the body is closed by force; None: it may go on to its time limit."""

    @property
    def crash_limit(self) -> int:
        """Crashes after which the task is dead: at most 3, and never more than its attempts.

        0 for `on_crash="fail"`: not even a crash that another task caused, or a lost machine, is survived.
        """
        return 0 if self.on_crash is OnCrash.FAIL else min(3, self.max_attempts)


@dataclass(frozen=True, slots=True)
class Window:
    """So many requests in so many seconds."""

    name: str
    """As users write it: `requests_per_minute`."""
    amount: int
    """At least 1."""
    seconds: float
    is_fixed: bool = False
    """False: a bucket, refilled evenly. True: counted from edge to edge, as some providers do by the day."""
