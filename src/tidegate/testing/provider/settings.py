"""The settings of the simulated provider: limits, speed, faults and rules."""

from __future__ import annotations

import dataclasses
import os
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate.errors import OptionError
from tidegate.testing.provider.outages import Outage

POLICY_MARKER = "[violates-policy]"
"""The content policy refuses a prompt that contains this, unless `blocked_phrases` differs."""

_FIXED = frozenset({"port", "ledger_path"})


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """All settings. The defaults are a provider without limits, delays or faults."""

    port: int = 0
    """Port on 127.0.0.1; 0 chooses a free one."""
    ledger_path: str | os.PathLike[str] = ""
    """SQLite file of the ledger, created if missing, else continued; empty for memory."""
    requests_per_minute: int | None = None
    """None: no limit."""
    tokens_per_minute: int | None = None
    """None: no limit. A call counts its prompt and the longest possible completion."""
    requests_burst: int | None = None
    """Requests that a full bucket allows at once; None: `requests_per_minute`."""
    tokens_burst: int | None = None
    """Tokens that a full bucket allows at once; None: `tokens_per_minute`."""
    window_seconds: float = 60.0
    """Length of the limits' minute in seconds; shorter in tests."""
    latency_seconds: float = 0.0
    """Mean time to a response, or to the first chunk of a stream."""
    latency_jitter: float = 0.2
    """Share of the latency by which it varies either way, 0 to 1."""
    tokens_per_second: float | None = None
    """Speed of a stream after its first chunk; None: no delay between chunks."""
    overload_probability: float = 0.0
    """Share of the admitted calls that get one of `overload_statuses`."""
    overload_statuses: tuple[int, ...] = (503,)
    """503, 529 or both."""
    outages: tuple[Outage, ...] = ()
    """The timetable, counted from the server's start."""
    blocked_phrases: tuple[str, ...] = (POLICY_MARKER,)
    """A prompt that holds one of them, in any case, gets 400 `content_policy_violation`."""
    context_window: int = 128_000
    """Tokens; a longer prompt (or embedding input) gets 400 `context_length_exceeded`."""
    api_keys: tuple[str, ...] = ()
    """Accepted keys; empty: any or none."""
    models: tuple[str, ...] = ()
    """Known models; empty: any."""
    budget_calls: int | None = None
    """Billed calls the account can pay, including the calls in a continued ledger; None: any number."""
    honour_idempotency: bool = False
    """Whether a repeated `Idempotency-Key` gets the first response, unbilled. Real providers do not."""
    answer_max_tokens: int = 120
    """The longest completion if the request has no `max_tokens`."""
    embedding_dimensions: int = 256
    """Length of a vector if the request has no `dimensions`."""
    max_body_bytes: int = 4 * 1024 * 1024
    """A longer request body gets 413."""
    seed: int = 0
    """Seed of latency and overload. The nth call with the same content has the same outcome in every run."""

    def __post_init__(self) -> None:
        for name, value, least in self._minima():
            if value is not None and not value >= least:
                raise OptionError(f"{name}={value!r} is below {least}")
        if self.window_seconds == 0 or self.tokens_per_second == 0:
            raise OptionError("window_seconds and tokens_per_second must be above 0")
        if not self.latency_jitter <= 1 or not self.overload_probability <= 1:
            raise OptionError("latency_jitter and overload_probability lie between 0 and 1")
        if not self.overload_statuses or not set(self.overload_statuses) <= {503, 529}:
            raise OptionError(f"overload_statuses={self.overload_statuses!r}", fix="503, 529 or both")

    def _minima(self) -> list[tuple[str, float | None, float]]:
        at_least_one = (
            "requests_per_minute",
            "tokens_per_minute",
            "requests_burst",
            "tokens_burst",
            "context_window",
            "answer_max_tokens",
            "embedding_dimensions",
            "max_body_bytes",
        )
        at_least_zero = (
            "port",
            "window_seconds",
            "latency_seconds",
            "latency_jitter",
            "tokens_per_second",
            "overload_probability",
            "budget_calls",
        )
        return [(name, getattr(self, name), 1) for name in at_least_one] + [
            (name, getattr(self, name), 0) for name in at_least_zero
        ]


def changed(settings: ProviderSettings, changes: Mapping[str, Any]) -> ProviderSettings:
    """Return the settings with some replaced; values may be plain JSON ones.

    Raises:
        OptionError: A name is unknown or cannot change while the server runs, or a value is invalid.
    """
    hints = typing.get_type_hints(ProviderSettings)
    if unknown := sorted(set(changes) - (set(hints) - _FIXED)):
        raise OptionError(f"not a setting that can change: {', '.join(unknown)}")
    try:
        values = {name: msgspec.convert(value, hints[name]) for name, value in changes.items()}
    except msgspec.ValidationError as error:
        raise OptionError(f"{sorted(changes)}: {error}") from error
    return dataclasses.replace(settings, **values)
