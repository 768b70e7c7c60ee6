"""The limits that an application or a person sets for an upstream, a function or the system. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from tidegate.domain.spec import Window


class GateKind(StrEnum):
    """What a gate limits."""

    UPSTREAM = "upstream"
    FUNCTION = "function"
    """A task function with a rate limit. The gate of a function always flows; only the limit applies."""
    SYSTEM = "system"
    """All tasks together. The gate of the system holds the retry budget of the whole system."""


PACING_SECONDS = 3600.0
"""The longest window that paces runs."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an upstream, a function or the system. None means no limit."""

    windows: tuple[Window, ...] = ()
    max_in_flight: int | None = None
    """The most calls at once. A run counts as one call from its claim to its end, even while it makes no
    call."""
    retries_per_minute: float | None = None
    """Retries per minute. None means a fifth of the requests per minute if these are limited, otherwise no
    budget."""
    retry_window_seconds: float = 60.0
    """The window of the retry budget."""
    slow_start_seconds: float = 45.0
    """The time from a tenth of the rate to the full rate after an outage; 0 turns the slow start off."""
    failures_to_park: int = 5
    """Consecutive network and server failures after which the gate parks."""
    set_by_person: tuple[str, ...] = ()
    """The names of the limits that a person set. The values in the code are ignored for these limits until
    the person hands them back."""

    def merged_with(self, declared: Limits) -> Limits:
        """Return the declared limits, except the stored limits that a person set.

        The declaration always decides whether a window is fixed or refills evenly.
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

    @property
    def paces(self) -> bool:
        """Whether a limit of an hour or less paces the runs. Limits of a day let runs start at once."""
        return any(window.seconds <= PACING_SECONDS for window in self.windows)

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
"""The names, as users write them, of the limits that are not windows."""


@dataclass(frozen=True, slots=True)
class LimitDeclaration:
    """An upstream, a function's rate limit or the system's retry budget, as an application declares it."""

    kind: GateKind
    name: str
    """The name of the upstream or function; empty for the system."""
    limits: Limits = field(default_factory=Limits)
