"""How providers count tokens against their limits: when a call begins, and when its usage is known.

Sources: the limits pages of Azure OpenAI, Anthropic, Amazon Bedrock and Groq, November 2026.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.domain.usage import CallTokens, Tokens, Usage


@dataclass(frozen=True, slots=True)
class Counting:
    """How one provider counts the tokens of a call."""

    reserves_max_tokens: bool = False
    """Whether a call counts with its `max_tokens` when it begins, instead of with its real output."""
    returns_unused: bool = True
    """Whether tokens that were reserved and not used are given back when the call ends."""
    counts_cached: bool = True
    """Whether the part of the input that came from a cache counts."""

    def tokens_of(self, usage: Usage, max_tokens: int) -> CallTokens:
        """Return the tokens of a call that has ended.

        Args:
            usage: What the call consumed.
            max_tokens: The most tokens that its output could have; 0 if the call set no limit.
        """
        read = usage.input_tokens - (0 if self.counts_cached else usage.cached_tokens)
        used = Tokens(max(0, read), usage.output_tokens)
        if not self.reserves_max_tokens:
            return CallTokens(used, used)
        needed = Tokens(used.input, max(max_tokens, used.output))
        return CallTokens(used if self.returns_unused else needed, needed)


ACTUAL = Counting()
