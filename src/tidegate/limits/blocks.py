"""Says why the tasks of a gate are blocked, and until when. Tasks that are only paced are not blocked."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.limits import gate as gates
from tidegate.limits import learned_limits, token_bucket
from tidegate.limits.admission import HANDOUT_AHEAD_SECONDS
from tidegate.limits.values import Gate, GateRow, LearnedLimit, TokenBucket

PACED_SECONDS = 60.0
"""A task that waits for a limit is paced if the limit refills within this time, and blocked otherwise."""


@dataclass(frozen=True, slots=True)
class Block:
    """Why the tasks of a gate do not start."""

    gate: Gate
    until_at: float | None
    """When the tasks may start; None if that is not known."""
    window: str = ""
    """The name of the exhausted window; empty if no window is exhausted."""
    spent: LearnedLimit | None = None
    """The exhausted limit that the provider's headers showed; None if there is none."""


def find_block(row: GateRow, now: float) -> Block | None:
    """Return why the tasks of a gate are blocked; None if they can start, even slowly.

    Tasks that wait for a limit which refills evenly, or within a minute, are paced and not blocked.
    """
    gate = gates.gate_at(row.gate, row.limits, now)
    if gate.parked_by is not None:
        return Block(gate, gate.until_at)
    spent = learned_limits.exhausted_limit(
        (limit for limit in gate.learned_limits if not _only_paces(limit, now)), now
    )
    if spent is not None:
        return Block(gate, spent.opens_at, spent=spent)
    for window in row.limits.windows:
        at = token_bucket.next_slot_at(window, row.buckets.get(window.name, TokenBucket()), now)
        if window.is_fixed and window.seconds > PACED_SECONDS and at - now > HANDOUT_AHEAD_SECONDS:
            return Block(gate, at, window.name)
    return None


def _only_paces(limit: LearnedLimit, now: float) -> bool:
    if limit.refills_evenly:
        return True
    if limit.window_seconds is not None:
        return limit.window_seconds <= PACED_SECONDS
    return (limit.opens_at or 0.0) - now <= PACED_SECONDS
