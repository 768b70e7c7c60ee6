"""Estimates how many tokens a call will use, and settles the estimate with what the call used.

A claim charges an estimate for the first call of each task, before anything is known of that call. The
estimate is the average of the function's earlier calls at the same upstream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tidegate.domain.spec import Window
from tidegate.domain.usage import CallTokens, ExpectedTokens, Tokens, TokenUse
from tidegate.limits import token_bucket
from tidegate.limits.settings import Limits
from tidegate.limits.values import Gate, GateRow, TokenBucket, TokenEstimate

MEAN_OF = 50
"""An average follows the latest calls: each new call has at least the weight of one in this many."""
MAX_FUNCTIONS = 50
"""How many functions of an upstream are remembered: those whose calls ended last."""
CERTAIN_SHARE = 0.6
"""A prompt has at least this share of its estimated tokens."""
MOST_CALL_TOKENS = 20_000_000
"""A larger count for one call cannot be right. Its usage then counts as unknown."""
FIRST_ESTIMATE = Tokens(500, 500)
"""The estimate while no call of the upstream has shown its usage."""


def estimated_tokens(estimates: Sequence[TokenEstimate], function: str) -> Tokens:
    """Return how many tokens a call of this function will probably use.

    For a function without calls, the average of the others is used.
    """
    for each in estimates:
        if each.function == function:
            return Tokens(round(each.input_tokens), round(each.output_tokens))
    return average_tokens(estimates)


def average_tokens(estimates: Sequence[TokenEstimate]) -> Tokens:
    """Return how many tokens a call of any function will probably use."""
    if not estimates:
        return FIRST_ESTIMATE
    known = len(estimates)
    return Tokens(
        round(sum(each.input_tokens for each in estimates) / known),
        round(sum(each.output_tokens for each in estimates) / known),
    )


def expected_tokens(estimates: Sequence[TokenEstimate], expected: ExpectedTokens) -> Tokens:
    """Return how many tokens a call will probably use, by its request or by earlier calls."""
    usual = estimated_tokens(estimates, expected.function)
    output = expected.output or usual.output
    if expected.most_output:
        output = min(output, expected.most_output)
    return Tokens(expected.input or usual.input, output)


def window_too_small(limits: Limits, expected: ExpectedTokens) -> Window | None:
    """Return a limit that a call exceeds on its own, so that waiting does not help; None if there is none.

    Only a part of the prompt's estimate counts, because a call must not be refused by a wrong guess.
    """
    least = Tokens(int(expected.input * CERTAIN_SHARE), expected.output)
    exceeded = (each for each in limits.windows if least.of(each.dimension) > each.amount)
    return next((each for each in exceeded if each.counts_tokens), None)


def calls_per_second(window: Window, gate: Gate) -> float:
    """Return how many average calls of a gate this limit allows per second."""
    return 1 / token_bucket.call_interval(window, average_tokens(gate.token_estimates))


def limits_tokens(limits: Limits) -> bool:
    """Whether any of the limits counts tokens."""
    return any(window.counts_tokens for window in limits.windows)


def settle_tokens(row: GateRow, uses: Iterable[TokenUse], now: float) -> GateRow:
    """Return the gate's row after calls ended that had been charged by estimate.

    What a call used beyond its charge delays the calls that follow. Tokens that the call did not use are
    returned. If the usage is not known, the charge stays. A run without a known call gets its charge back
    if other calls of its function are known. Otherwise the charge stays, because the function seems to call
    the upstream without a permit.
    """
    buckets, gate = dict(row.buckets), row.gate
    for use in map(_without_wrong_counts, uses):
        used = _used(gate, use)
        if used is not None:
            difference = used.minus(use.charged)
            for window in row.limits.windows:
                if window.counts_tokens and (change := difference.of(window.dimension)):
                    buckets[window.name] = token_bucket.settle(
                        window,
                        buckets.get(window.name, TokenBucket()),
                        now,
                        change,
                        charged_at=now - use.seconds_ago,
                    )
        if use.call is not None and use.call.needed is not None:
            gate = _with_call(gate, use.function, use.call.needed, now)
    return row if gate is row.gate and buckets == row.buckets else replace(row, gate=gate, buckets=buckets)


def _without_wrong_counts(use: TokenUse) -> TokenUse:
    """Return the use with counts that cannot be right left out. They would stop a gate for days."""
    if use.call is None:
        return use
    used, needed = (
        None if each is not None and each.input + each.output > MOST_CALL_TOKENS else each
        for each in use.call
    )
    return use._replace(call=CallTokens(used, needed))


def _used(gate: Gate, use: TokenUse) -> Tokens | None:
    if use.call is not None:
        return use.call.used
    is_known = any(each.function == use.function for each in gate.token_estimates)
    return Tokens() if is_known else None


def _with_call(gate: Gate, function: str, tokens: Tokens, now: float) -> Gate:
    """Return the gate with one more call of a function in its averages."""
    others = [each for each in gate.token_estimates if each.function != function]
    before = next((each for each in gate.token_estimates if each.function == function), None)
    if before is None:
        after = TokenEstimate(function, 1, tokens.input, tokens.output, now)
        others = sorted(others, key=lambda each: each.learned_at)[-(MAX_FUNCTIONS - 1) :]
    else:
        calls = min(before.calls + 1, MEAN_OF)
        after = TokenEstimate(
            function,
            calls,
            before.input_tokens + (tokens.input - before.input_tokens) / calls,
            before.output_tokens + (tokens.output - before.output_tokens) / calls,
            now,
        )
    return replace(gate, token_estimates=(*others, after))
