"""The usage of calls to a provider, and the limits that its headers show: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


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
    """The part of the output that was reasoning and is not in the text."""
    model: str = ""
    """The model that the response names. The model that responded may differ from the requested model."""
    tier: str = ""
    """The service tier that was used, which sets the price."""
    cost_usd: str = ""
    """The cost that the provider states, a decimal number as text; empty if it states none."""


MOST_TOKENS = 10**12
"""A larger token count of one call is ignored as wrong. No token limit may be larger."""


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """The usage of several calls together: all calls of one run, or of all runs of a task.

    `input_tokens` and `output_tokens` are everything read and written; the other tokens are parts of these.
    """

    calls: int = 0
    """Calls whose response stated their usage. Other calls are not counted."""
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    def with_call(self, used: Usage) -> UsageTotals:
        """Return the totals after one more call. A count that cannot be right adds nothing."""
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
    """Return the count of tokens, or 0 if it cannot be right: task functions may report any value."""
    return int(tokens) if isinstance(tokens, int | float) and 0 <= tokens <= MOST_TOKENS else 0


class Dimension(StrEnum):
    """What a limit counts."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"


class Tokens(NamedTuple):
    """How many tokens a call uses, as its provider counts them against a limit."""

    input: int = 0
    output: int = 0

    def of(self, dimension: Dimension) -> int:
        """Return how much the call uses of a limit. Each call is one request."""
        if dimension is Dimension.REQUESTS:
            return 1
        if dimension is Dimension.TOKENS:
            return self.input + self.output
        return self.input if dimension is Dimension.INPUT_TOKENS else self.output

    def minus(self, other: Tokens) -> Tokens:
        """Return the difference, which may be negative."""
        return Tokens(self.input - other.input, self.output - other.output)


NO_TOKENS = Tokens()


class ExpectedTokens(NamedTuple):
    """What is known of a call's tokens before it is made. 0 means unknown."""

    function: str = ""
    """The task function that makes the call; empty outside tasks."""
    input: int = 0
    output: int = 0
    """What the provider counts for the output when the call begins."""
    most_output: int = 0
    """The most tokens the output may have."""


NOTHING_EXPECTED = ExpectedTokens()


class CallTokens(NamedTuple):
    """The tokens of one call that has ended."""

    used: Tokens | None
    """What the provider counted in the end; None if that is not known."""
    needed: Tokens | None = None
    """What the provider counts when such a call begins; None if that is not known."""


class TokenUse(NamedTuple):
    """The tokens that were charged for one call before it began, and what the call used."""

    function: str
    """The task function that made the call; empty outside tasks."""
    charged: Tokens
    call: CallTokens | None
    """None if no call is known: none was made, or it was made without a permit."""
    seconds_ago: float = 0.0
    """How long ago the tokens were charged."""


@dataclass(frozen=True, slots=True)
class HeaderLimit:
    """One limit, as the headers of one response show it. A field is None if the headers do not say."""

    dimension: Dimension
    limit: float | None = None
    """The whole limit."""
    remaining: float | None = None
    reset_seconds: float | None = None
    """Seconds until the limit is full again."""
    window_seconds: float | None = None
    """The window of the limit, if the provider states or documents it."""
