"""What is known of an upstream: its limits, how much of them is used, its gate, and what a call told of it.

Plain values. What follows from them is decided in the rooms of `policy`: gate, pacing, admission, budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tidegate.domain.failure import Reason
from tidegate.domain.usage import LearnedLimit


class GateKind(StrEnum):
    """What a gate stands before."""

    UPSTREAM = "upstream"
    FUNCTION = "function"
    """A task function with a rate limit. Its gate always flows; only the limit counts."""
    SYSTEM = "system"
    """All tasks together: holds the retry budget of the whole system."""


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
class Pace:
    """How fast runs of an upstream go well, and how fast they may start since its last 429."""

    goods_per_second: float = 0.0
    """Lately, as of `counted_at`: too few while the count is young."""
    counted_at: float = 0.0
    counting_at: float = 0.0
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
    by: ParkedBy | None = None
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
    failed_for: tuple[str, ...] = ()
    """The first two tasks that met network, server or time-out failures since then."""
    parked_for: tuple[OverloadedTask, ...] = ()
    """The latest tasks that parked it because it was overloaded for them."""
    limited_for: tuple[OverloadedTask, ...] = ()
    """The latest rate limits that tasks met while it flowed, each of a task with a good call between."""
    good_at: float | None = None
    """When a call or run last went well."""
    refused_since_at: float | None = None
    """From when on it named waits and no call was good; None: the last one was."""
    opened_at: float | None = None
    """Set during a slow start: when it began, by which its share is reckoned."""
    goods: int = 0
    """Good calls since then."""
    reopened_at: float | None = None
    """When it last opened; what began to wait before may leave early."""
    typical_seconds: float = 1.0
    """How long a good run takes, learned."""
    learned: tuple[LearnedLimit, ...] = ()
    """What answers show of its limits, one a dimension."""
    pace: Pace = Pace()


@dataclass(frozen=True, slots=True)
class Window:
    """So many requests in so many seconds."""

    name: str
    """As users write it: `requests_per_minute`."""
    amount: int
    """At least 1."""
    seconds: float
    fixed: bool = False
    """False: a bucket, refilled evenly. True: counted from edge to edge, as some providers do by the day."""


@dataclass(frozen=True, slots=True)
class Meter:
    """How much of one window is used."""

    next_at: float = 0.0
    """When the next slot of an even pace is free (the theoretical arrival time of GCRA)."""
    edge_at: float = 0.0
    """Start of the window that `used` counts."""
    used: int = 0
    carried: int = 0
    """Those of `used` that fell so near to the next edge that they count in the next window too."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an upstream, a function or the system may be asked for. What is None has no limit."""

    windows: tuple[Window, ...] = ()
    max_in_flight: int | None = None
    """Calls at once. A run counts as one from its claim on, whatever it does meanwhile."""
    retries_per_minute: float | None = None
    """Re-runs it may spend; None: a fifth of its requests per minute, or no budget of its own."""
    retry_window_seconds: float = 60.0
    """The length over which the retry budget holds."""
    slow_start_seconds: float = 45.0
    """From a tenth of its pace to all of it after an outage."""
    failures_to_park: int = 5
    """Consecutive network and server failures after which the gate parks."""
    by_hand: tuple[str, ...] = ()
    """Names of the limits that a person set: for them the code does not count until they are handed back."""

    def declared_as(self, declared: Limits) -> Limits:
        """Return what counts of these stored limits after a declaration: the code's, except those by hand.

        How a window is counted, evenly or from edge to edge, is always the code's.
        """
        by_hand = frozenset(self.by_hand)
        windows = [window for window in declared.windows if window.name not in by_hand]
        for window in self.windows:
            if window.name in by_hand:
                theirs = declared.window(window.name)
                windows.append(window if theirs is None else replace(window, fixed=theirs.fixed))
        kept = {field: getattr(self, field) for name, field in _FIELDS_BY_NAME.items() if name in by_hand}
        ordered = tuple(sorted(windows, key=lambda window: window.seconds))
        return replace(declared, windows=ordered, by_hand=self.by_hand, **kept)

    def window(self, name: str) -> Window | None:
        """Return the window of that name."""
        return next((window for window in self.windows if window.name == name), None)


_FIELDS_BY_NAME = {
    "max_in_flight": "max_in_flight",
    "retries_per_minute": "retries_per_minute",
    "retry_window": "retry_window_seconds",
    "slow_start": "slow_start_seconds",
    "failures_to_park": "failures_to_park",
}
"""Limits that are no windows, by the names users give them."""


@dataclass(frozen=True, slots=True)
class Signal:
    """What one failed call shows of its upstream."""

    reason: Reason
    wait_seconds: float | None = None
    """The wait the server asked for; None: none."""
    needs_person: bool = False
    """Waiting cannot help: a key, an account, money."""
    message: str = ""
    spread: float = 0.0
    """A number in [0, 1) drawn by the sender, for jitter."""
    no_key_flows: bool = False
    """Every key of the sender's ring is refused: what others' keys could do does not count."""
    task_id: str = ""
    """The task that met it; empty for a call outside tasks, each of which counts as another task."""
    upstream: str = ""
    """Whose call it was; empty: the run's own upstream."""
    is_reported: bool = False
    """The end of the call has moved the gate already: the end of the run must not."""
    seconds: float | None = None
    """How long ago the call began; None: not known."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The answer to one call that asks an upstream for its slot."""

    is_granted: bool
    wait_seconds: float | None
    """Until the call may start; where it is not granted, until it is worth asking again (None: unknown)."""
    reason: str = ""
    """Why it is not granted: the reason of a gate that does not flow, else `rate_limit`."""
    is_full: bool = False
    """Not granted for as many calls as may be are in flight: one of them must end first."""
    is_held: bool = False
    """A permit was recorded for it, to be given back."""
    is_probe: bool = False
    """Granted to try whether the held gate may open: how it ended is to be told."""
    opens_by_probe: bool = False
    """Not granted, and no time opens the gate: after `wait_seconds` one call may try."""
    message: str = ""
    """Not granted: what the failure said that parked the gate, or why a person did."""


_KEY_MARK = "#"


def key_gate(upstream: str, key: str) -> str:
    """Return the name under which the gate of one key of an upstream is kept."""
    return f"{upstream}{_KEY_MARK}{key}"


def ring_of(name: str) -> str:
    """Return the upstream whose key has the gate of this name; empty: it is no key's."""
    return name.rpartition(_KEY_MARK)[0]


def is_key_gate(name: str, upstream: str | None = None) -> bool:
    """Whether a name is that of a key's gate, of this upstream or of any."""
    ring, mark, _ = name.rpartition(_KEY_MARK)
    return bool(mark) and upstream in (None, ring)


@dataclass(frozen=True, slots=True)
class Declared:
    """An upstream, a function's rate limit or the system's retry budget, as an application declares it."""

    kind: GateKind
    name: str
    """Of the upstream or function; empty for the system."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class GateRow:
    """One gate as the store keeps it."""

    kind: GateKind
    name: str
    limits: Limits = field(default_factory=Limits)
    gate: Gate = field(default_factory=Gate)
    meters: Mapping[str, Meter] = field(default_factory=dict)
    """By the name of the window."""
