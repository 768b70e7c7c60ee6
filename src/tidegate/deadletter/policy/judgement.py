"""Judges a redrive by how the first attempts of its letters ended: go on, wait, or stop.

All letters together are one group; the letters of each function and of each tenant are further groups. One
group that fails too often stops the redrive.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidegate.domain.text import counted, format_duration
from tidegate.store.operation_rows import FirstTry

LEAST_JUDGED = 20
"""After the canary, a group is judged by this many of its latest first attempts."""


class Verdict(StrEnum):
    """Whether a redrive goes on."""

    GO_ON = "go on"
    WAIT = "wait"
    """Not enough first attempts have ended yet."""
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a redrive goes on, and why not."""

    verdict: Verdict
    why: str = ""
    """Why the redrive stops; empty unless it stops."""


def judge_canary(
    tries: Sequence[FirstTry], pending: int, *, stop_above: float, seconds: float, limit_seconds: float
) -> Judgement:
    """Judge the canary.

    The redrive stops as soon as more first attempts have failed than `stop_above` of all letters. A function
    or a tenant with few letters may fail once. The redrive goes on once every first attempt has ended.

    Args:
        tries: The first attempts that have ended.
        pending: How many letters of the canary have a first attempt that has not ended.
        stop_above: The largest share of failures.
        seconds: Time since the first letter of the canary was sent; 0 before.
        limit_seconds: How long the first attempts may take.
    """
    if (failing := _failing_group(tries, pending, stop_above, least=1)) is not None:
        return Judgement(Verdict.STOP, failing)
    if pending == 0:
        return Judgement(Verdict.GO_ON)
    if seconds >= limit_seconds:
        of = counted(len(tries) + pending, "letter")
        return Judgement(
            Verdict.STOP,
            f"the first attempts of {pending} of {of} of the canary did not end within"
            f" {format_duration(limit_seconds)}",
        )
    return Judgement(Verdict.WAIT)


def judge_feeding(latest: Sequence[FirstTry], *, stop_above: float) -> Judgement:
    """Judge a redrive after its canary by its latest first attempts. The result is never to wait."""
    failing = _failing_group(latest, 0, stop_above, least=LEAST_JUDGED)
    return Judgement(Verdict.GO_ON) if failing is None else Judgement(Verdict.STOP, failing)


def _failing_group(tries: Iterable[FirstTry], pending: int, stop_above: float, *, least: int) -> str | None:
    """Return a description of the first group that fails too often; None if there is none."""
    groups: defaultdict[str, list[bool]] = defaultdict(list)
    for each in tries:
        groups[""].append(each.failed)
        groups[f" of the function {each.function}"].append(each.failed)
        if each.tenant:
            groups[f" of the tenant {each.tenant}"].append(each.failed)
    for name, results in groups.items():
        failed = sum(results)
        size = len(results) + (pending if name == "" else 0)
        if size >= least and failed > _allowed(size, stop_above, is_part=name != ""):
            return (
                f"{failed} of {counted(len(results), 'first attempt')}{name} failed,"
                f" more than {stop_above:.0%}"
            )
    return None


def _allowed(size: int, stop_above: float, *, is_part: bool) -> int:
    """Return how many letters of a group may fail.

    One failure in a small part of the letters proves nothing.
    """
    return max(math.floor(size * stop_above), 1 if is_part and stop_above > 0 else 0)
