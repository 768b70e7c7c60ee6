"""What calls to a provider consumed, and what its headers say is left: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Usage:
    """What one call consumed, in the same terms for every provider.

    `input_tokens` is everything read and `output_tokens` everything written; the others are parts of these.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """The part of the input that came from a cache."""
    cache_write_tokens: int = 0
    """The part of the input that was written to a cache."""
    reasoning_tokens: int = 0
    """The part of the output that was thought rather than said."""
    model: str = ""
    """As the answer names it, which may differ from what was asked for."""
    tier: str = ""
    """The service tier that was used, which sets the price."""
    cost_usd: str = ""
    """Money as the provider itself states it, a decimal number as text; empty where it states none."""


MOST_TOKENS = 10**12
"""Of one call: a larger count is not believed."""


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """What several calls consumed together: those of one run, or of all runs of a task.

    `input_tokens` and `output_tokens` are everything read and written; the other tokens are parts of these.
    """

    calls: int = 0
    """Calls whose answer stated what they used; others are not counted."""
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    def with_call(self, used: Usage) -> UsageTotals:
        """Return the totals after one more call. A count that is no believable number adds nothing."""
        return UsageTotals(
            self.calls + 1,
            self.input_tokens + _believable(used.input_tokens),
            self.cached_tokens + _believable(used.cached_tokens),
            self.cache_write_tokens + _believable(used.cache_write_tokens),
            self.output_tokens + _believable(used.output_tokens),
            self.reasoning_tokens + _believable(used.reasoning_tokens),
        )

    def columns(self) -> tuple[int, ...]:
        """Return the counts in the order of the fields, as stores keep them."""
        return (
            self.calls,
            self.input_tokens,
            self.cached_tokens,
            self.cache_write_tokens,
            self.output_tokens,
            self.reasoning_tokens,
        )


def _believable(tokens: object) -> int:
    """Return a count of tokens; 0 for what cannot be one, since task functions may state any value."""
    return int(tokens) if isinstance(tokens, int | float) and 0 <= tokens <= MOST_TOKENS else 0


class Dimension(StrEnum):
    """What a limit counts."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"


@dataclass(frozen=True, slots=True)
class HeaderLimit:
    """One limit, as the headers of one answer show it; None is what they do not say."""

    dimension: Dimension
    limit: float | None = None
    """The size of the whole bucket."""
    remaining: float | None = None
    reset_seconds: float | None = None
    """Until the bucket is full again."""
    window_seconds: float | None = None
    """Over which `limit` is counted, where the provider says or documents it."""
