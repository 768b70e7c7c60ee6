"""The stored state of an upstream: its gate, its buckets, its learned limits. Plain values, no rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidegate.domain.outcome import Fence
from tidegate.domain.usage import Dimension, HeaderLimit, Tokens
from tidegate.limits.settings import GateKind, Limits


class GateState(StrEnum):
    """Whether tasks of an upstream may start."""

    FLOWING = "flowing"
    PARKED = "parked"
    """No task may start until a set time, a successful probe, or a person opens the gate."""
    PROBING = "probing"
    """Parked, and one task is testing whether the upstream works again."""


class ParkedBy(StrEnum):
    """Who or what parked a gate. This decides how the gate opens."""

    SERVER = "server"
    """The server named a wait. The gate opens by itself when the wait is over."""
    FAILURES = "failures"
    """Calls failed, or were refused without a usable wait. Only a successful probe opens the gate."""
    ACCOUNT = "account"
    """A key is missing or the account has no money. A person must open the gate."""
    PERSON = "person"
    """A person parked it. The gate opens at the time that the person named, if any, or when a person opens
    it."""


@dataclass(frozen=True, slots=True)
class LearnedRate:
    """How fast runs of an upstream succeed, and how fast calls may start since its last 429."""

    successes_per_second: float = 0.0
    """The recent rate of successes at `counted_at`. The rate is too low while the count is young."""
    counted_at: float = 0.0
    count_started_at: float = 0.0
    """When the count began."""
    per_second: float | None = None
    """How many calls per second could start at `slowed_at`; None if the upstream was never slowed."""
    slowed_at: float | None = None
    """When the last 429 slowed the upstream."""
    target_per_second: float | None = None
    """The rate that is approached after `slowed_at`, fast at first and slowly near it. If None, the
    rate doubles steadily."""
    refused_per_second: float | None = None
    """The rate that met the last 429; None if unknown."""
    approach_seconds: float = 0.0
    """How long the rate takes to reach `target_per_second`."""
    grows_since: float | None = None
    """Since when the rate grows: `slowed_at`, or when the gate opened after it."""
    refusals: int = 0
    """How many calls that began after `slowed_at` were refused."""


@dataclass(frozen=True, slots=True)
class InFlightLearning:
    """How many runs an upstream can work on at once, and the comparison that is under way."""

    target: float | None = None
    """How many runs may be in flight; None for any number."""
    seconds: float = 0.0
    """How long a run took in the last window."""
    window_starts_at: float = 0.0
    """When the present window began or begins; 0 before the first run."""
    runs: int = 0
    """The runs that succeeded in this window."""
    run_seconds: float = 0.0
    """How long they took together."""
    tries: int = 0
    """1 while a higher number is tried, -1 while a lower one is, 0 otherwise."""
    last_try: int = 1
    """The last of these that was not 0."""
    level: float = 0.0
    """The runs in flight before the number that is tried."""
    per_second: float = 0.0
    """The completions per second before the number that is tried."""
    has_met_limit: bool = False
    """Whether a number was not worth it. From then on, smaller steps are tried."""
    held_until: float = 0.0
    """No other number is tried before this time."""
    hold_seconds: float = 0.0
    """How long the last hold was."""


@dataclass(frozen=True, slots=True)
class RefusedTask:
    """A task whose call was refused because of an overload or a rate limit."""

    task_id: str
    at: float


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """How many tokens the calls of one function use at an upstream."""

    function: str
    """Empty for calls outside tasks."""
    calls: int
    """How many calls the averages are of."""
    input_tokens: float
    """On average."""
    output_tokens: float
    learned_at: float
    """When a call last changed the averages."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The state of one upstream, shared by all processes through the store."""

    state: GateState = GateState.FLOWING
    parked_by: ParkedBy | None = None
    """Who or what parked the gate; None while it flows."""
    reason: str = ""
    """The reason of the failure that parked the gate, or of the latest failure."""
    message: str = ""
    """The message of the failure in `reason`, or why a person parked the gate."""
    message_task_id: str = ""
    """The task that met the failure in `message`; empty for a call outside tasks, and for a person."""
    since_at: float = 0.0
    """When the gate entered this state."""
    until_at: float | None = None
    """When a parked gate opens by itself; None if it does not."""
    probe_at: float | None = None
    """The time from which one task may probe the gate; None if no task may."""
    failures: int = 0
    """Network, server and overload failures since the last success."""
    failed_task_ids: tuple[str, ...] = ()
    """The first two tasks that met network, server or timeout failures since the last success."""
    overloaded_tasks: tuple[RefusedTask, ...] = ()
    """The latest tasks that parked the gate by an overload."""
    rate_limited_tasks: tuple[RefusedTask, ...] = ()
    """The latest rate limits that tasks met while the gate flowed; a task counts again after a success."""
    last_success_at: float | None = None
    """When a call or run last succeeded."""
    answered_at: float | None = None
    """When a call last failed by an answer of the upstream, such as a 500."""
    rate_limited_since_at: float | None = None
    """When the server began to name waits with no success in between; None if the last call succeeded."""
    slow_start_at: float | None = None
    """When the slow start began; None if there is none. The current share is computed from it."""
    successes: int = 0
    """How many calls succeeded since the slow start began."""
    last_opened_at: float | None = None
    """When the gate last opened. Retries that began to wait before this moment may leave early."""
    typical_seconds: float = 1.0
    """How long a successful run takes: a moving average."""
    learned_limits: tuple[LearnedLimit, ...] = ()
    """The limits that response headers showed, one per dimension."""
    learned_rate: LearnedRate = LearnedRate()
    in_flight: InFlightLearning = InFlightLearning()
    token_estimates: tuple[TokenEstimate, ...] = ()
    """What calls use, one entry per function."""


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """How much of a rate limit's window is used."""

    next_at: float = 0.0
    """When the next evenly paced slot is free (the theoretical arrival time of GCRA)."""
    window_started_at: float = 0.0
    """The start of the fixed window that `used` counts."""
    used: int = 0
    """The number of requests in the window that began at `window_start_at`. Of the learned rate: the requests
    since its last 429."""
    carried_over: int = 0
    """How many requests were so close to the window's end that they also count in the next window."""


@dataclass(frozen=True, slots=True)
class CallSlot:
    """Whether a call may start, and when."""

    is_granted: bool
    wait_seconds: float | None
    """Seconds until the call may start. If refused: seconds until asking again helps; None if unknown."""
    reason: str = ""
    """Why the call was refused: the reason of a gate that does not flow, else `rate_limit`."""
    is_at_capacity: bool = False
    """Whether the call was refused because `max_in_flight` calls are running. Try again when one ends."""
    has_permit: bool = False
    """Whether the store recorded a permit for the call, which must be released."""
    is_probe: bool = False
    """Whether the call is a probe of a closed gate, whose result must be reported."""
    opens_by_probe: bool = False
    """Whether the call was refused and only a probe opens the gate: after `wait_seconds` one call may
    probe."""
    message: str = ""
    """If refused: the message of the failure that parked the gate, or why a person parked it."""
    charged: Tokens | None = None
    """The tokens that were charged; None if no limit counts tokens."""


_KEY_MARK = "#"


def key_gate_name(upstream: str, key: str) -> str:
    """Return the name of the gate of one key of an upstream."""
    return f"{upstream}{_KEY_MARK}{key}"


def upstream_of_key_gate(name: str) -> str:
    """Return the upstream of a key's gate; empty if the name is not a key's gate."""
    return name.rpartition(_KEY_MARK)[0]


def is_key_gate(name: str, upstream: str | None = None) -> bool:
    """Whether a name is the gate of one of this upstream's keys.

    Without an upstream: of any upstream's keys.
    """
    ring, mark, _ = name.rpartition(_KEY_MARK)
    return bool(mark) and upstream in (None, ring)


@dataclass(frozen=True, slots=True)
class GateRow:
    """One gate as it is stored, with its limits and buckets."""

    kind: GateKind
    name: str
    limits: Limits = field(default_factory=Limits)
    gate: Gate = field(default_factory=Gate)
    buckets: Mapping[str, TokenBucket] = field(default_factory=dict)
    """The token buckets, by the name of their window."""


@dataclass(frozen=True, slots=True)
class ObservedLimit:
    """One limit that a response just showed, and when that response came."""

    seen: HeaderLimit
    sent_seconds_ago: float = 0.0
    """How long ago the call was sent. The response to a later call is the more recent one."""
    seen_seconds_ago: float = 0.0
    """How long ago the response came."""
    needs: float = 1.0
    """How much of the limit one more call of this kind uses."""
    jitter: float = 0.0
    """A number in [0, 1) drawn by the sender, for jitter."""


@dataclass(frozen=True, slots=True)
class LearnedLimit:
    """The latest state of one limit that response headers showed."""

    dimension: Dimension
    limit: float | None = None
    window_seconds: float | None = None
    """The window of the limit; None if unknown."""
    refills_evenly: bool = False
    """True if a part of the wait restores a part of the limit; False if the reset restores all at once."""
    remaining: float | None = None
    needs: float = 1.0
    """How much of the limit one call uses: a moving average."""
    seen_at: float = 0.0
    """When the response arrived."""
    sent_at: float = 0.0
    """When the call of that response was sent. Responses to older calls change nothing."""
    opens_at: float | None = None
    """No call may start before this time, because nothing or too little remains; None if enough remains."""
    is_scarce: bool = False
    """Whether at least half of the limit was used and has not refilled since."""


@dataclass(frozen=True, slots=True)
class PermitRecord:
    """The store's record of a call in flight that is not covered by a run."""

    permit_id: str
    """The id of the permit, made by the caller so that it can release the permit even if the store's reply
    was lost."""
    seconds: float
    """The lease: seconds from the call's start until the store drops the record if nobody releases it."""
    fence: Fence | None = None
    """The run that makes the call; None outside a task. Once that run is over, for example because its worker
    was lost, the call is no longer counted."""
