"""Steps: what their functions note of each paid call, and what must hold of the calls in the end."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from checker import Violation
from tidegate.codec import decode
from tidegate.domain.states import State
from tidegate.domain.step import StepState, step_digest, step_key
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskRow
from tidegate.store.step_rows import DoubtRow, StepRow

CALLS = "calls.ndjson"
"""Name of the file of paid calls in the directory of a run."""
STEP = "draw"
"""The name of every step."""
_PAGE = 1_000

NoteT = TypeVar("NoteT", bound=msgspec.Struct)


class CallNote(msgspec.Struct, frozen=True):
    """A note of one step: its call is sent, its call is answered, or its result is with the task function."""

    event: Literal["sent", "answered", "kept"]
    task_id: str
    run: int
    item: int
    token: str
    """The answer of the call: other for each call."""
    at: float
    asks: bool = False
    """Whether the step is never repeated without a person."""


class CallLog:
    """A file of notes on calls. Each line is on the disk before its writer goes on."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, note: msgspec.Struct) -> None:
        """Append a note, on the disk when this returns."""
        os.write(self._file, b"\n" + msgspec.json.encode(note) + b"\n")
        os.fsync(self._file)


def read_calls(path: Path) -> list[CallNote]:
    """Return the notes of a file of calls of steps."""
    return read_notes_of(path, CallNote)


def read_notes_of(path: Path, kind: type[NoteT]) -> list[NoteT]:
    """Return the whole lines of a file of notes."""
    if not path.exists():
        return []
    notes = []
    for line in path.read_bytes().split(b"\n"):
        try:
            notes.append(msgspec.json.decode(line, type=kind))
        except msgspec.DecodeError:  # an empty line, or one that a kill cut off
            continue
    return notes


@dataclass(frozen=True, slots=True)
class RecordedSteps:
    """What the store and the functions recorded of all steps of a run."""

    calls: Sequence[CallNote] = ()
    doubts: Sequence[DoubtRow] = ()
    rows: Sequence[tuple[str, StepRow]] = ()
    """Recorded steps, each with its task."""

    @property
    def paid_twice(self) -> int:
        """Calls that were sent although another call of the same step was."""
        sent = Counter((note.task_id, note.item) for note in self.calls if note.event == "sent")
        return sum(count - 1 for count in sent.values())


async def read_recorded_steps(store: Store, calls: Sequence[CallNote]) -> RecordedSteps:
    """Return what is recorded of the steps that made these calls, when nothing runs any more."""
    doubts = await read_doubts(store)
    rows = [
        (task_id, row)
        for task_id in sorted({note.task_id for note in calls})
        for row in await store.read_steps(task_id)
    ]
    return RecordedSteps(calls, doubts, rows)


async def read_doubts(store: Store) -> list[DoubtRow]:
    """Return the whole ledger of doubts."""
    doubts: list[DoubtRow] = []
    while page := await store.list_doubts(state=None, after=doubts[-1].id if doubts else None, limit=_PAGE):
        doubts += page
    return doubts


def steps_are_kept(steps: RecordedSteps, tasks: Iterable[TaskRow]) -> Iterator[Violation]:
    """G6: the first recorded result is the only one, and each call that may have been paid twice is listed."""
    notes: defaultdict[tuple[str, int], list[CallNote]] = defaultdict(list)
    for note in steps.calls:
        notes[note.task_id, note.item].append(note)
    doubted = Counter((doubt.task_id, doubt.key) for doubt in steps.doubts)
    stored = {(task_id, row.key): row for task_id, row in steps.rows}
    by_id = {task.id: task for task in tasks}
    for (task_id, item), of_step in notes.items():
        key = step_key(step_digest(STEP, f"key\0{item}".encode()), 1)
        task, row = by_id.get(task_id), stored.get((task_id, key))
        if task is None:
            continue  # it was purged, with its steps and doubts
        yield from _of_step(task_id, item, of_step, row, doubted[task_id, key])
        if task.state is State.SUCCEEDED and (row is None or row.state is not StepState.DONE):
            yield Violation("G6", task_id, f"succeeded, but step {item} has no recorded result")


def _of_step(
    task_id: str,
    item: int,
    notes: Sequence[CallNote],
    row: StepRow | None,
    doubts: int,
) -> Iterator[Violation]:
    sent = sum(note.event == "sent" for note in notes)
    answers = {note.token for note in notes if note.event == "answered"}
    kept = {note.token for note in notes if note.event == "kept"}
    if len(kept) > 1:
        yield Violation("G6", task_id, f"runs got {len(kept)} different results of step {item}")
    if kept - answers:
        yield Violation("G6", task_id, f"step {item} has a result that no call gave")
    if row is not None and row.data is not None and kept and decode(row.data) not in kept:
        yield Violation("G6", task_id, f"the recorded result of step {item} is not the one its runs got")
    if sent > 1 + doubts:
        yield Violation("G6", task_id, f"step {item} was paid {sent} times, and {doubts} of them are listed")
    if sent > 1 and any(note.asks for note in notes):
        yield Violation("G6", task_id, f"step {item} was repeated {sent - 1} times without a person")
