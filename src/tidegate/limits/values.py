"""What is known of an upstream: its limits, how much of them is used, its gate, and what a call told of it.

Plain values. What follows from them is decided in the rooms of `policy`: gate, pacing, admission, budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidegate.domain.usage import Dimension, HeaderLimit
from tidegate.limits.settings import GateKind, Limits


class GateState(StrEnum):
    """Whether tasks of an upstream may start."""

    FLOWING = "flowing"
    PARKED = "parked"
    """None may start until a moment, a good probe, or a person."""
    PROBING = "probing"
    """Parked, and one task is trying whether it works again."""


class ParkedBy(StrEnum):
    """Who or what parked a gate, which says how it opens."""

    SERVER = "server"
    """It named the time. Opens by itself then."""
    FAILURES = "failures"
    """Calls failed, or it was overloaded and named no time. A good probe opens it."""
    ACCOUNT = "account"
    """Keys or money. A person opens it."""
    PERSON = "person"
    """Opens by itself at the time the person named, if one was named."""


@dataclass(frozen=True, slots=True)
class LearnedRate:
    """How fast runs of an upstream go well, and how fast they may start since its last 429."""

    successes_per_second: float = 0.0
    """Lately, as of `counted_at`: too few while the count is young."""
    counted_at: float = 0.0
    count_started_at: float = 0.0
    """When the count began."""
    per_second: float | None = None
    """May start, as of `slowed_at`; None: it was never slowed."""
    slowed_at: float | None = None


@dataclass(frozen=True, slots=True)
class OverloadedTask:
    """A task whose call was refused as an overload, or by a rate limit."""

    task_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Gate:
    """The state of one upstream, shared by all processes through the store."""

    state: GateState = GateState.FLOWING
    parked_by: ParkedBy | None = None
    """Set while it does not flow."""
    reason: str = ""
    """Of the failure that parked it, or of the last one."""
    message: str = ""
    since_at: float = 0.0
    """When it took this state."""
    until_at: float | None = None
    """When a parked gate opens by itself; None: it does not."""
    probe_at: float | None = None
    """From when on one task may try; None: no task may."""
    failures: int = 0
    """Network, server and overload failures since the last good call."""
    failed_task_ids: tuple[str, ...] = ()
    """The first two tasks that met network, server or time-out failures since then."""
    overloaded_tasks: tuple[OverloadedTask, ...] = ()
    """The latest tasks that parked it because it was overloaded for them."""
    limited_for: tuple[OverloadedTask, ...] = ()
    """The latest rate limits that tasks met while it flowed, each of a task with a good call between."""
    last_success_at: float | None = None
    """When a call or run last went well."""
    rate_limited_since_at: float | None = None
    """From when on it named waits and no call was good; None: the last one was."""
    slow_start_at: float | None = None
    """Set during a slow start: when it began, by which its share is reckoned."""
    successes: int = 0
    """Good calls since then."""
    last_opened_at: float | None = None
    """When it last opened; what began to wait before may leave early."""
    typical_seconds: float = 1.0
    """How long a good run takes, learned."""
    learned_limits: tuple[LearnedLimit, ...] = ()
    """What answers show of its limits, one a dimension."""
    learned_rate: LearnedRate = LearnedRate()


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """How much of one window is used."""

    next_at: float = 0.0
    """When the next slot of an even pace is free (the theoretical arrival time of GCRA)."""
    window_started_at: float = 0.0
    """Start of the window that `used` counts."""
    used: int = 0
    carried_over: int = 0
    """Those of `used` that fell so near to the next edge that they count in the next window too."""


@dataclass(frozen=True, slots=True)
class CallSlot:
    """The answer to one call that asks an upstream for its slot."""

    is_granted: bool
    wait_seconds: float | None
    """Until the call may start; where it is not granted, until it is worth asking again (None: unknown)."""
    reason: str = ""
    """Why it is not granted: the reason of a gate that does not flow, else `rate_limit`."""
    is_at_capacity: bool = False
    """Not granted for as many calls as may be are in flight: one of them must end first."""
    has_permit: bool = False
    """A permit was recorded for it, to be given back."""
    is_probe: bool = False
    """Granted to try whether the held gate may open: how it ended is to be told."""
    opens_by_probe: bool = False
    """Not granted, and no time opens the gate: after `wait_seconds` one call may try."""
    message: str = ""
    """Not granted: what the failure said that parked the gate, or why a person did."""


_KEY_MARK = "#"


def key_gate_name(upstream: str, key: str) -> str:
    """Return the name under which the gate of one key of an upstream is kept."""
    return f"{upstream}{_KEY_MARK}{key}"


def upstream_of_key_gate(name: str) -> str:
    """Return the upstream whose key has the gate of this name; empty: it is no key's."""
    return name.rpartition(_KEY_MARK)[0]


def is_key_gate(name: str, upstream: str | None = None) -> bool:
    """Whether a name is that of a key's gate, of this upstream or of any."""
    ring, mark, _ = name.rpartition(_KEY_MARK)
    return bool(mark) and upstream in (None, ring)


@dataclass(frozen=True, slots=True)
class GateRow:
    """One gate as the store keeps it."""

    kind: GateKind
    name: str
    limits: Limits = field(default_factory=Limits)
    gate: Gate = field(default_factory=Gate)
    buckets: Mapping[str, TokenBucket] = field(default_factory=dict)
    """By the name of the window."""


@dataclass(frozen=True, slots=True)
class ObservedLimit:
    """One limit as an answer just showed it, with what places it among other answers."""

    seen: HeaderLimit
    sent_seconds_ago: float = 0.0
    """Since the call was sent: of two answers the one to the later call knows more."""
    seen_seconds_ago: float = 0.0
    needs: float = 1.0
    """What one more call like it takes of the limit."""
    jitter: float = 0.0
    """A number in [0, 1) drawn by the sender, for jitter."""


@dataclass(frozen=True, slots=True)
class LearnedLimit:
    """What is known of one limit from answers' headers, the newest word of it."""

    dimension: Dimension
    limit: float | None = None
    window_seconds: float | None = None
    """Over which it is counted; None: unknown."""
    refills_evenly: bool = False
    """It refills evenly: a part of the wait gives a part of the limit. False: all of it at the reset."""
    remaining: float | None = None
    needs: float = 1.0
    """What a call takes of it, lately in the mean."""
    seen_at: float = 0.0
    sent_at: float = 0.0
    """When the call was sent whose answer this is from; answers to older ones change nothing."""
    opens_at: float | None = None
    """Nothing, or too little, is left: no call before this moment."""
    is_scarce: bool = False
    """Half of it or more was used, and it has not filled up since."""


@dataclass(frozen=True, slots=True)
class PermitRecord:
    """A permit to be in flight, as the store keeps it for a call that no run stands for."""

    permit_id: str
    """Made by the caller, so that one whose answer was lost can be given back."""
    seconds: float
    """From when the call may start until the store forgets it, should nobody give it back."""
