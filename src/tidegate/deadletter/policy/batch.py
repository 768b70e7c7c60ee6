"""Decides how many dead letters of a redrive may be sent now.

A letter is sent when a worker could start it soon. So few letters wait in the main queue at any moment: a
burst of new work does not queue behind a redrive, and an abort or an undo finds most letters unsent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.domain.text import counted
from tidegate.limits import gate as gates
from tidegate.limits import probes
from tidegate.limits.settings import GateKind
from tidegate.policy.live_workers import LiveWorkers
from tidegate.store.operation_rows import FeedFacts, LetterChannel

MOST_PER_STEP = 100
"""The most letters in one transaction."""
MOST_UNFINISHED = 1_000
"""The most letters that were sent and have no final outcome. More would mean that many letters are being
retried."""
BUSY_SHARE = 0.1
"""The share of a queue's slots that a redrive may use while other tasks are ready."""
IDLE_SHARE = 2.0
"""The same share while no other task is ready: enough that no slot is idle until the next step."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How many letters of each channel may be sent now."""

    channels: tuple[LetterChannel, ...]
    waits_for: str = ""
    """Why a channel gets no letters, for people; empty if every channel gets some."""


def plan_batch(facts: FeedFacts, workers: LiveWorkers, *, unfinished: int) -> BatchPlan:
    """Return how many letters of each channel may be sent now.

    Args:
        facts: What was read from the store.
        workers: The live workers.
        unfinished: How many letters were sent and have no final outcome.
    """
    left = min(MOST_PER_STEP, MOST_UNFINISHED - unfinished)
    room: Counter[str] = Counter()
    for queue in {channel.queue for channel in facts.channels}:
        slots = workers.slots(queue)
        share = BUSY_SHARE if facts.ready.get(queue, 0) else IDLE_SHARE
        room[queue] = max(1, int(slots * share)) - facts.untried.get(queue, 0)
    planned, reasons = [], []
    if left <= 0 and facts.channels:
        reasons.append(f"{counted(unfinished, 'letter')} that were sent have no outcome yet")
    for channel in _fair(facts.channels):
        if blocked := _blocked_by(channel, facts, workers):
            reasons.append(blocked)
            continue
        letters = max(0, min(channel.letters, room[channel.queue], left))
        if letters:
            planned.append(replace(channel, letters=letters))
            room[channel.queue] -= letters
            left -= letters
    return BatchPlan(tuple(planned), reasons[0] if reasons else "")


def _fair(channels: Sequence[LetterChannel]) -> list[LetterChannel]:
    """Return the channels with the fewest letters first, so that a large channel does not delay others."""
    return sorted(
        channels, key=lambda channel: (channel.letters, channel.queue, channel.upstream, channel.function)
    )


def _blocked_by(channel: LetterChannel, facts: FeedFacts, workers: LiveWorkers) -> str:
    """Return why no letter of this channel may be sent; empty if letters may."""
    if unserved := workers.unserved(channel.queue, channel.function):
        return unserved
    if (pause := facts.pauses.of(channel.queue, channel.function)) is not None:
        return f"the {pause.kind} {pause.name} is paused"
    for row in facts.gates:
        if (row.kind, row.name) == (GateKind.UPSTREAM, channel.upstream):
            gate = gates.gate_at(row.gate, row.limits, facts.now)
            if probes.admits_only_probes(gate):
                return f"the gate of {channel.upstream} is {gate.state}"
    return ""
