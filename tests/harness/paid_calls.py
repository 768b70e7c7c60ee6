"""Paid calls of HTTP clients: what task functions note of them, and what the provider's own ledger must show.

The functions may know nothing of steps: their calls are recorded by the transport. The model that a call names
says which call it is, so each entry of the provider's ledger belongs to one call of one task.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from checker import Violation
from tidegate.domain.states import State
from tidegate.store.rows import TaskRow
from tidegate.store.step_rows import DoubtRow
from tidegate.testing.provider import ProviderCall

PAID = "paid.ndjson"
"""Name of the file of notes in the directory of a run."""


class Promise(StrEnum):
    """What may happen to a call that was sent and has no answer."""

    REPEATED = "repeated"
    """It is made again, and may be paid twice. Then it is in the ledger of doubts."""
    ASKED = "asked"
    """It is not made again without a person."""
    HONOURED = "honoured"
    """It is made again with the same key, and the provider bills a key once."""


class PaidNote(msgspec.Struct, frozen=True):
    """A task function is about to make a call, or has its answer."""

    event: Literal["sent", "kept"]
    task_id: str
    run: int
    item: int
    count: int
    """The number of calls that the task makes."""
    promise: Promise
    request_id: str = ""
    """What the provider calls the request whose answer the function has."""


class PaidCall(NamedTuple):
    """One call of one task."""

    task_id: str
    item: int


@dataclass(frozen=True, slots=True)
class PaidCalls:
    """What is recorded of all paid calls of a run."""

    notes: Sequence[PaidNote] = ()
    ledger: Sequence[ProviderCall] = ()
    """The ledgers of all providers."""
    doubts: Sequence[DoubtRow] = ()
    billed: Counter[PaidCall] = field(init=False)
    """How often each call was billed."""

    def __post_init__(self) -> None:
        billed = Counter(paid_call_of(call) for call in self.ledger if call.billed)
        object.__setattr__(self, "billed", billed)

    @property
    def paid_twice(self) -> int:
        """Payments beyond the first for the same call."""
        return sum(times - 1 for times in self.billed.values())

    @property
    def in_flight(self) -> Counter[PaidCall]:
        """Calls that a run sent, and whose answer it never had: how often each was in flight at a fault."""
        sent = {(PaidCall(n.task_id, n.item), n.run) for n in self.notes if n.event == "sent"}
        kept = {(PaidCall(n.task_id, n.item), n.run) for n in self.notes if n.event == "kept"}
        return Counter(call for call, _ in sent - kept)


def model_of(task_id: str, item: int) -> str:
    """Return the model that a call names, which identifies it in the ledger of a provider."""
    return f"{task_id}/{item}"


def paid_call_of(call: ProviderCall) -> PaidCall:
    """Return the call that an entry of a provider's ledger belongs to."""
    task_id, _, item = call.model.partition("/")
    return PaidCall(task_id, int(item))


def paid_calls_are_kept(paid: PaidCalls, tasks: Iterable[TaskRow]) -> Iterator[Violation]:
    """G6: no answer is lost or changed, and what was paid twice was in flight at a fault and is listed."""
    answered = {call.id: paid_call_of(call) for call in paid.ledger if call.status == 200}
    notes: defaultdict[PaidCall, list[PaidNote]] = defaultdict(list)
    for note in paid.notes:
        notes[PaidCall(note.task_id, note.item)].append(note)
    in_flight = paid.in_flight
    for call, of_call in notes.items():
        yield from _of_call(call, of_call, answered, paid.billed[call], in_flight[call])
    for call in paid.billed.keys() - notes.keys():
        yield Violation("G6", call.task_id, f"call {call.item} was paid, though no run made it")
    yield from _doubts_are_listed(paid)
    yield from _succeeded_with_all(notes, tasks)


def _of_call(
    call: PaidCall, notes: Sequence[PaidNote], answered: dict[str, PaidCall], billed: int, in_flight: int
) -> Iterator[Violation]:
    kept = {note.request_id for note in notes if note.event == "kept"}
    if len(kept) > 1:
        yield Violation("G6", call.task_id, f"runs got {len(kept)} different answers to call {call.item}")
    for request_id in kept:
        if answered.get(request_id) != call:
            yield Violation("G6", call.task_id, f"call {call.item} has an answer that no provider gave to it")
    if kept and not billed:
        yield Violation("G6", call.task_id, f"call {call.item} has an answer, and was not paid")
    if billed > max(1, in_flight + bool(kept)):
        what = f"call {call.item} was paid {billed} times, and was in flight at {in_flight} ends of runs"
        yield Violation("G6", call.task_id, what)
    if billed > 1 and notes[0].promise is not Promise.REPEATED:
        yield Violation("G6", call.task_id, f"call {call.item} ({notes[0].promise}) was paid {billed} times")


def _doubts_are_listed(paid: PaidCalls) -> Iterator[Violation]:
    doubted = Counter(doubt.task_id for doubt in paid.doubts)
    twice: Counter[str] = Counter()
    for call, times in paid.billed.items():
        twice[call.task_id] += times - 1
    for task_id, times in twice.items():
        if times > doubted[task_id]:
            yield Violation(
                "G6", task_id, f"{times} calls were paid again, and {doubted[task_id]} doubts are listed"
            )


def _succeeded_with_all(
    notes: dict[PaidCall, list[PaidNote]], tasks: Iterable[TaskRow]
) -> Iterator[Violation]:
    counts = {note.task_id: note.count for of_call in notes.values() for note in of_call}
    for task in tasks:
        if task.state is not State.SUCCEEDED or task.id not in counts:
            continue
        for item in range(counts[task.id]):
            if not any(note.event == "kept" for note in notes.get(PaidCall(task.id, item), ())):
                yield Violation("G6", task.id, f"succeeded without an answer to call {item}")
