"""What an application or a person sets: the limits of an upstream, a function or the system. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from tidegate.domain.spec import Window


class GateKind(StrEnum):
    """What a gate stands before."""

    UPSTREAM = "upstream"
    FUNCTION = "function"
    """A task function with a rate limit. Its gate always flows; only the limit counts."""
    SYSTEM = "system"
    """All tasks together: holds the retry budget of the whole system."""


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
    set_by_person: tuple[str, ...] = ()
    """Names of the limits that a person set: for them the code does not count until they are handed back."""

    def merged_with(self, declared: Limits) -> Limits:
        """Return what counts of these stored limits after a declaration: the code's, except those by hand.

        How a window is counted, evenly or from edge to edge, is always the code's.
        """
        set_by_person = frozenset(self.set_by_person)
        windows = [window for window in declared.windows if window.name not in set_by_person]
        for window in self.windows:
            if window.name in set_by_person:
                theirs = declared.window(window.name)
                windows.append(window if theirs is None else replace(window, is_fixed=theirs.is_fixed))
        kept = {
            field: getattr(self, field) for name, field in _FIELDS_BY_NAME.items() if name in set_by_person
        }
        ordered = tuple(sorted(windows, key=lambda window: window.seconds))
        return replace(declared, windows=ordered, set_by_person=self.set_by_person, **kept)

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
class LimitDeclaration:
    """An upstream, a function's rate limit or the system's retry budget, as an application declares it."""

    kind: GateKind
    name: str
    """Of the upstream or function; empty for the system."""
    limits: Limits = field(default_factory=Limits)
