"""The settings of a task function, as values. These settings live in code, so a deploy changes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum, StrEnum

from tidegate.domain.failure import Reason
from tidegate.domain.final_hook import FinalHook
from tidegate.domain.readers import (
    LONGEST_WAIT_SECONDS,
    Seconds,
    choice_option,
    number_option,
    seconds_option,
    set_fields,
    whole_option,
    wrong,
)
from tidegate.domain.usage import Dimension


class Priority(IntEnum):
    """How urgent a task is. A priority is stored as a number; smaller numbers go first."""

    INTERACTIVE = 0
    """Somebody waits for the result."""
    NORMAL = 1
    BULK = 2
    """Has a small guaranteed share of the claims, so it never starves."""

    @property
    def word(self) -> str:
        """The name used in options, the command line and output."""
        return str(self.name).lower()


class OnCrash(StrEnum):
    """What to do when the process that ran a task died."""

    RETRY = "retry"
    FAIL = "fail"
    """The task is dead at the first crash: it runs at most once after the claim."""


class RunsIn(StrEnum):
    """Where a task function runs."""

    LOOP = "loop"
    """The function runs on the event loop of the pool process. For `async def`."""
    PROCESS = "process"
    """In a child process that is kept warm and can be killed."""
    THREAD = "thread"
    """In a thread of the pool process, which cannot be killed."""


class Jitter(StrEnum):
    """How far a wait may differ from its plan, so that tasks that failed together do not retry together.

    Source of the names full, equal and none: AWS Architecture Blog, "Exponential Backoff and Jitter".
    """

    NARROW = "narrow"
    """From 0.8 to 1.2 times the plan: the default. The retry budget already spreads retries, and people can
    still recognise the plan in the history."""
    EQUAL = "equal"
    """From half of the plan to the whole plan."""
    FULL = "full"
    """From 0 to the whole plan: it spreads the most and halves the mean wait."""
    NONE = "none"
    """Exactly the plan."""


@dataclass(frozen=True, slots=True, init=False)
class Exponential:
    """Waits of base, base × factor, base × factor²… seconds, at most `cap`.

    Args:
        base: The first wait. With 0 every wait is 0.
        cap: The longest wait, at most a year.
        factor: 1 or more.
        jitter: A value of `Jitter`.

    Raises:
        OptionError: A value is out of range.
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
        plus: Seconds added to each wait.
        cap: The longest wait, at most a year.
        jitter: A value of `Jitter`.

    Raises:
        OptionError: A value is out of range.
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
        seconds: The wait, at most a year.
        jitter: A value of `Jitter`.

    Raises:
        OptionError: A value is out of range.
    """

    seconds: float
    jitter: Jitter

    def __init__(self, seconds: Seconds, *, jitter: Jitter | str = Jitter.NARROW) -> None:
        set_fields(self, seconds=_wait("Fixed: seconds", seconds), jitter=_jitter(jitter))


Backoff = Exponential | Polynomial | Fixed


def backoff_option(option: str, value: Backoff | Seconds) -> Backoff:
    """Return the backoff that an option's value means. A duration means the same wait each time.

    Raises:
        OptionError: The value is neither a backoff nor a duration. The caller's own classes are refused, even
            subclasses of ours, because waits are also computed without the application's code.
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
    """One rule of `retry=[…]`: what to do about one kind of error. Made by `on(…)` and `discard(…)`."""

    match: type[BaseException] | Reason
    retry: bool = True
    """False: the task is dead at once and kept as a dead letter."""
    wait: Backoff | None = None
    """The backoff after this error; None for the task function's."""
    attempts: int | None = None
    """The charged attempts that this rule allows, besides `max_attempts`; None for no limit of its own."""

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
"""Turns a time limit off: `timeout=NO_LIMIT`."""
TIMEOUT_SECONDS = 300.0
"""The default timeout of one attempt."""
TIMEOUT_WITH_UPSTREAM_SECONDS = 900.0
"""The same for a function with an upstream: longer than the 600 s that one call may take."""
TOTAL_TIMEOUT_SECONDS = 1_800.0
"""The default total timeout of a task, over all its attempts."""
TOTAL_TIMEOUT_WITH_UPSTREAM_SECONDS = 3_600.0
"""The same for a function with an upstream: enough for the usual number of attempts and their waits."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """The settings of one task function."""

    name: str
    """The stable name in the store. Default: `module:function`."""
    queue: str = "default"
    priority: Priority = Priority.NORMAL
    upstream: str = ""
    """The outside service that it calls; empty if there is none."""
    provider: str = ""
    """The provider pack that reads that service's errors (`providers/packs/`)."""
    rate_limit: Window | None = None
    """How many runs may start in a time, over all workers; None for no limit."""
    timeout: float = TIMEOUT_SECONDS
    """Seconds that one attempt may run."""
    total_timeout: float = TOTAL_TIMEOUT_SECONDS
    """Seconds that the whole task may take from its first start. Waits for an upstream do not count."""
    deadline: float = NO_LIMIT
    """Seconds from the enqueue until the task expires. Nothing postpones this."""
    max_attempts: int = 3
    """Charged attempts after which the task is dead."""
    backoff: Backoff = field(default_factory=Exponential)
    rules: tuple[Rule, ...] = ()
    retry_unknown: bool = True
    """Whether a failure with an unknown verdict is retried (`on_unknown="retry"`)."""
    on_crash: OnCrash = OnCrash.RETRY
    runs_in: RunsIn = RunsIn.LOOP
    memory_limit: int | None = None
    """Bytes that its child process may use; only for `runs_in="process"`. None for no limit."""
    on_final: FinalHook | None = None
    """What is enqueued when a task of this function reaches a final state."""
    cancel_grace: float | None = None
    """Seconds after a cancel until the function is stopped by force; None to let it run to its timeout."""
    record_calls: bool | None = None
    """Whether the responses of its calls are kept; None: as their upstream says."""

    @property
    def slots_grow(self) -> bool:
        """Whether its slots grow while all its tasks wait for answers, with `concurrency="auto"`."""
        return bool(self.upstream) and self.runs_in is RunsIn.LOOP

    @property
    def crash_limit(self) -> int:
        """Crashes after which the task is dead: at most 3, and at most its attempts.

        0 for `on_crash="fail"`: then a crash that another task caused and a lost machine end the task too.
        """
        return 0 if self.on_crash is OnCrash.FAIL else min(3, self.max_attempts)


@dataclass(frozen=True, slots=True)
class Window:
    """A rate limit: `amount` requests or tokens in `seconds` seconds."""

    name: str
    """The name that users write: `requests_per_minute`."""
    amount: int
    """At least 1."""
    seconds: float
    is_fixed: bool = False
    """False: refilled evenly. True: counted in fixed windows, as some providers count a day."""
    dimension: Dimension = Dimension.REQUESTS
    """What is counted."""

    @property
    def counts_tokens(self) -> bool:
        """Whether the limit counts tokens."""
        return self.dimension is not Dimension.REQUESTS
