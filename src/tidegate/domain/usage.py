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


class Dimension(StrEnum):
    """What a limit counts."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"


@dataclass(frozen=True, slots=True)
class SeenLimit:
    """One limit, as the headers of one answer show it; None is what they do not say."""

    dimension: Dimension
    limit: float | None = None
    """The size of the whole bucket."""
    remaining: float | None = None
    reset_seconds: float | None = None
    """Until the bucket is full again."""
    window_seconds: float | None = None
    """Over which `limit` is counted, where the provider says or documents it."""
