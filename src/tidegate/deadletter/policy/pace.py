"""Decides how many letters of a redrive may be sent now.

A letter is sent when a worker could start it soon. So few wait in the main queue at any moment: a burst of
new work does not queue behind a redrive, and an abort or an undo finds most letters unsent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.domain.text import counted
from tidegate.limits import gate as gates
from tidegate.limits.settings import GateKind
from tidegate.policy.live_workers import LiveWorkers
from tidegate.store.operation_rows import FeedFacts, Lane

MOST_PER_STEP = 100
"""Letters in one transaction."""
MOST_UNFINISHED = 1_000
"""Letters that were sent and have no final outcome: many mean that they are being retried."""
BUSY_SHARE = 0.1
"""The share of a queue's slots that a redrive may use while other tasks are ready."""
IDLE_SHARE = 2.0
"""While no other task is ready: enough that no slot is idle until the next step."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How many letters of each lane may be sent now."""

    lanes: tuple[Lane, ...]
    waits_for: str = ""
    """Why a lane gets nothing, for people; empty if every lane gets some."""


def plan_batch(facts: FeedFacts, workers: LiveWorkers, *, unfinished: int) -> Pace:
    """Return how many letters of each lane may be sent now.

    Args:
        facts: What was read from the store.
        workers: The live workers.
        unfinished: Letters that were sent and have no final outcome.
    """
    left = min(MOST_PER_STEP, MOST_UNFINISHED - unfinished)
    room: Counter[str] = Counter()
    for queue in {lane.queue for lane in facts.lanes}:
        slots = workers.slots(queue)
        share = BUSY_SHARE if facts.ready.get(queue, 0) else IDLE_SHARE
        room[queue] = max(1, int(slots * share)) - facts.untried.get(queue, 0)
    planned, reasons = [], []
    if left <= 0 and facts.lanes:
        reasons.append(f"{counted(unfinished, 'letter')} that were sent have no outcome yet")
    for lane in _fair(facts.lanes):
        if blocked := _blocked_by(lane, facts, workers):
            reasons.append(blocked)
            continue
        letters = max(0, min(lane.letters, room[lane.queue], left))
        if letters:
            planned.append(replace(lane, letters=letters))
            room[lane.queue] -= letters
            left -= letters
    return Pace(tuple(planned), reasons[0] if reasons else "")


def _fair(lanes: Sequence[Lane]) -> list[Lane]:
    """Return the lanes with the fewest letters first: a large one does not keep them waiting."""
    return sorted(lanes, key=lambda lane: (lane.letters, lane.queue, lane.upstream, lane.function))


def _blocked_by(lane: Lane, facts: FeedFacts, workers: LiveWorkers) -> str:
    """Return why no letter of this lane may be sent; empty if one may."""
    if unserved := workers.unserved(lane.queue, lane.function):
        return unserved
    if (pause := facts.pauses.of(lane.queue, lane.function)) is not None:
        return f"the {pause.kind} {pause.name} is paused"
    for row in facts.gates:
        if (row.kind, row.name) == (GateKind.UPSTREAM, lane.upstream):
            gate = gates.gate_at(row.gate, row.limits, facts.now)
            if gates.admits_only_probes(gate):
                return f"the gate of {lane.upstream} is {gate.state}"
    return ""
