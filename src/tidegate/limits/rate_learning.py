"""Learns how fast calls of an upstream may start after it answered 429.

The rate that met a 429 is remembered. The next rate is a little lower, approaches the remembered one fast at
first and slowly near it, and then probes beyond it, slowly at first. That is the curve of CUBIC (RFC 9438,
section 4.2), here for calls per second. Between two 429s the calls that were answered show the real quota: a
provider that refills its limit evenly admits exactly that many. So each 429 corrects the estimate.

The rate is computed from the time of the last 429, so its growth needs no write.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tidegate.domain.spec import Window
from tidegate.limits.values import LearnedRate

LEARNED_RATE = "learned_rate"
"""The name of the learned window and of its bucket."""
FIRST_CUT = 0.5
"""The share by which a 429 lowers the rate while little is known of the quota."""
BURST_SECONDS = 2.0
"""The first 429 is assumed to end a burst that used up this many seconds of quota in advance."""
CUT = 0.05
"""The share below the estimated quota at which the rate starts again after a later 429."""
DOUBLING_SECONDS = 2.0
"""A rate that no 429 has limited yet doubles in this time."""
DOUBLINGS_BEYOND = 1
"""How often a rate doubles in each further time of approach, after it passed the target by as much as it was
below."""
CALLS_TO_APPROACH = 250
"""The number of calls in which the rate approaches the remembered one again, if the limits below allow."""
MIN_APPROACH_SECONDS, MAX_APPROACH_SECONDS = 4.0, 120.0
WAITS_TO_APPROACH = 40
"""The approach also takes this many of the waits that a 429 names, because each such wait may lose quota."""
SETTLE_SECONDS = 0.3
"""Calls that began within this time of a 429 were handed out at the old rate."""
UNKNOWN_BEGIN_SECONDS = 1.0
MIN_SENT = 20
"""This many calls since the last 429 show the quota well enough."""
PERSISTING_REFUSALS, PERSISTING_SHARE = 5, 0.6
"""If at least this many calls, and this share of them, were refused at the lowered rate, the rate is not the
reason, and only a probe helps."""
ABOVE_ACCEPTED = 0.5
"""The remembered rate lies this far between the rate that was answered and the rate that was refused."""
MOST_ABOVE_ACCEPTED = 1.3
MEMORY_SECONDS = 600.0
"""The least time for which a learned rate is remembered."""
COUNTED_SECONDS = 30.0
"""The weight of a success decays with its age: to about a third after this time."""
FORGOTTEN_SECONDS = 4 * COUNTED_SECONDS
"""After this long without a success, the count restarts."""
GOOD_SECONDS = 60.0
"""After successes for this long, a first 429 does not set a rate below theirs."""
SHORT_WAIT_SECONDS = 2.0
LEAST_PER_SECOND = 1 / 60
"""The lowest rate that is learned."""
FIRST_PER_SECOND = 1.0
"""The first rate after a 429 if nothing is known of the quota; it doubles until the next 429."""
TRICKLE_PER_SECOND = 2 / 3
"""The lowest rate of successes that counts: a lower rate shows a low demand, not the limit."""
YOUNG_SECONDS = 1.0
"""A younger count is averaged over this time."""
OLD_ENOUGH_SECONDS = 3.0
"""Successes are counted for at least this long before their rate counts against a declared one."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """What the buckets show of the calls at the moment of a 429."""

    sent: float = 0.0
    """How many calls were sent at the learned rate since the last 429 slowed it."""
    is_tight: bool = False
    """Whether calls used every slot lately, so that the rate decided how many were sent, not the demand."""
    declared_per_second: float | None = None
    """The declared rate, if calls used every slot of it lately."""
    shown_per_second: float | None = None
    """The rate of the limit that response headers show; None if they show none."""
    are_counted: bool = True
    """Whether successes are counted. They are not for a single key: there, a 429 sets no rate unless one is
    known."""


NO_ATTEMPTS = Attempts()


def count_successes(learned_rate: LearnedRate, calls: int, now: float) -> LearnedRate:
    """Return the learned rate after calls that succeeded."""
    return replace(
        learned_rate,
        successes_per_second=_decayed_successes(learned_rate, now) + calls / COUNTED_SECONDS,
        counted_at=max(now, learned_rate.counted_at),
        count_started_at=now
        if now - learned_rate.counted_at > FORGOTTEN_SECONDS
        else learned_rate.count_started_at,
    )


def slow_down(
    learned_rate: LearnedRate,
    now: float,
    *,
    attempts: Attempts = NO_ATTEMPTS,
    began_at: float | None = None,
    wait_seconds: float = 0.0,
) -> LearnedRate:
    """Return the learned rate after a 429.

    Args:
        learned_rate: The rate before.
        now: The current time by the store's clock.
        attempts: What the buckets show of the calls sent lately.
        began_at: When the refused call began; None if unknown. A call from before the last slowdown shows
            nothing new.
        wait_seconds: The wait that the 429 named; 0 if it named none.
    """
    rate = per_second(learned_rate, now)
    if rate is None or learned_rate.slowed_at is None:
        return _first(learned_rate, now, attempts)
    if began_at is None:
        began_at = now - UNKNOWN_BEGIN_SECONDS
    if began_at < learned_rate.slowed_at + SETTLE_SECONDS:
        return learned_rate
    learned_rate = replace(learned_rate, refusals=learned_rate.refusals + 1)
    refusals, sent = learned_rate.refusals, max(attempts.sent, learned_rate.refusals)
    if _refused_share(learned_rate, attempts) >= PERSISTING_SHARE or (refusals < 2 and sent < MIN_SENT):
        return learned_rate
    # A short wait is left out, because the provider's bucket may have been full before its end.
    is_short = 0 < wait_seconds <= SHORT_WAIT_SECONDS
    counts_from = (learned_rate.grows_since if is_short else None) or learned_rate.slowed_at or now
    elapsed = max(YOUNG_SECONDS, now - counts_from)
    accepted = (sent - refusals) / elapsed
    refused = rate if attempts.is_tight else min(rate, sent / elapsed)
    if sent < MIN_SENT or _is_searching(learned_rate, now):
        slower, target = (1 - FIRST_CUT) * refused, refused
    else:
        target = min(
            accepted + ABOVE_ACCEPTED * (refused - accepted), MOST_ABOVE_ACCEPTED * accepted, refused
        )
        slower = min((1 - CUT) * target, accepted)
    return _slowed(
        learned_rate, now, slower, target, refused=refused, wait_seconds=wait_seconds, epoch=elapsed
    )


def _first(learned_rate: LearnedRate, now: float, attempts: Attempts) -> LearnedRate:
    """Return the first rate: not below what headers show, or what succeeded for the last minute."""
    recent = _recent_per_second(learned_rate, now)
    declared, shown = attempts.declared_per_second, attempts.shown_per_second
    age = now - learned_rate.count_started_at if recent else 0.0
    is_young = age < OLD_ENOUGH_SECONDS
    known = [declared] if declared and is_young else [each for each in (recent, declared) if each]
    refused = declared or recent or None
    if not known and shown is None and not attempts.are_counted:
        return learned_rate
    if known:
        share = 1.0 if age >= GOOD_SECONDS else max(1 - FIRST_CUT, age / (age + BURST_SECONDS))
        slower = share * min(known)
    else:
        slower = FIRST_PER_SECOND
    target = (slower + declared) / 2 if declared else (recent if age >= GOOD_SECONDS else None)
    if shown is not None:
        slower, target = max(shown, slower), max(shown, slower)
    return _slowed(learned_rate, now, slower, target, refused=refused)


def _slowed(
    learned_rate: LearnedRate,
    now: float,
    slower: float,
    target: float | None,
    *,
    refused: float | None,
    wait_seconds: float = 0.0,
    epoch: float = 0.0,
) -> LearnedRate:
    slower = max(LEAST_PER_SECOND, slower)
    approach = max(
        CALLS_TO_APPROACH / (target or slower),
        WAITS_TO_APPROACH * wait_seconds,
        epoch / 2,
        MIN_APPROACH_SECONDS,
    )
    return replace(
        learned_rate,
        per_second=slower,
        target_per_second=None if target is None else max(target, slower),
        refused_per_second=refused,
        approach_seconds=min(approach, MAX_APPROACH_SECONDS),
        slowed_at=now,
        grows_since=now,
        refusals=0,
    )


def keeps_gate_open(learned_rate: LearnedRate, attempts: Attempts) -> bool:
    """Whether a lower rate is enough after a 429, so that the gate need not park.

    It is not if nothing was known of the quota, or if nearly all calls are refused at the lowered rate.
    """
    if learned_rate.slowed_at is None or learned_rate.refused_per_second is None:
        return False
    return (
        learned_rate.refusals < PERSISTING_REFUSALS
        or _refused_share(learned_rate, attempts) < PERSISTING_SHARE
    )


def _refused_share(learned_rate: LearnedRate, attempts: Attempts) -> float:
    """Return the refused share of the calls sent at the lowered rate, without the latest ones."""
    settling = SETTLE_SECONDS * (learned_rate.per_second or 0.0)
    return learned_rate.refusals / max(attempts.sent - settling, learned_rate.refusals, 1)


def resume(learned_rate: LearnedRate, now: float) -> LearnedRate:
    """Return the learned rate after its gate opened: it did not grow while nothing could start."""
    if learned_rate.per_second is None:
        return learned_rate
    return replace(learned_rate, grows_since=now)


def per_second(learned_rate: LearnedRate, now: float) -> float | None:
    """Return how many calls per second may start now; None for any number."""
    slower, since = learned_rate.per_second, learned_rate.slowed_at
    if slower is None or since is None:
        return None
    since = max(since, learned_rate.grows_since or since)
    elapsed, approach = max(0.0, now - since), learned_rate.approach_seconds
    if elapsed > max(MEMORY_SECONDS, 6 * approach):
        return None
    target = learned_rate.target_per_second
    if target is None or approach <= 0:
        return float(slower * 2 ** min(60.0, elapsed / DOUBLING_SECONDS))
    cut, part = target - slower, elapsed / approach - 1
    beyond = max(0.0, part - 1)  # of twice the time to the target: the quota may have been raised
    return float(
        (target + (max(cut, CUT * target) if part > 0 else cut) * min(part, 1) ** 3)
        * 2 ** min(60.0, DOUBLINGS_BEYOND * beyond)
    )


def _is_searching(learned_rate: LearnedRate, now: float) -> bool:
    """Whether the rate has grown far beyond the target, so that the calls since the last 429 show little."""
    since = learned_rate.grows_since or learned_rate.slowed_at or now
    return learned_rate.target_per_second is not None and now - since > 2 * learned_rate.approach_seconds


def window(learned_rate: LearnedRate, now: float) -> Window | None:
    """Return the learned rate as a window; None if there is no learned rate."""
    rate = per_second(learned_rate, now)
    return None if rate is None else Window(LEARNED_RATE, 1, 1 / rate)


def _recent_per_second(learned_rate: LearnedRate, now: float) -> float:
    """Return how many calls per second succeeded recently: `TRICKLE_PER_SECOND` at least, or 0 for none.

    A young count is averaged over its own age.
    """
    if now - learned_rate.counted_at > FORGOTTEN_SECONDS:
        return 0.0
    age = max(YOUNG_SECONDS, now - learned_rate.count_started_at)
    return max(
        TRICKLE_PER_SECOND, _decayed_successes(learned_rate, now) / (1 - math.exp(-age / COUNTED_SECONDS))
    )


def _decayed_successes(learned_rate: LearnedRate, now: float) -> float:
    return learned_rate.successes_per_second * math.exp(
        -max(0.0, now - learned_rate.counted_at) / COUNTED_SECONDS
    )
