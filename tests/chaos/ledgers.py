"""The files that processes of a run leave: what clients sent and were told, and which processes there were.

Each line is one appending write and on the disk before its writer goes on.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tidegate.store.rows import CancelAnswer, NewTask
from tidegate.testing.checker import CancelTold, Submitted, Told, digest_of

NOTES, PROCESSES = "bodies.ndjson", "processes.ndjson"
"""Files of the bodies' own ledger and of the processes', in the directory of a run."""


class Sent(msgspec.Struct, tag="sent", frozen=True):
    """An enqueue is on its way."""

    call: str
    tasks: tuple[NewTask, ...]
    many: bool
    """Through `enqueue_many`."""


class Answered(msgspec.Struct, tag="answered", frozen=True):
    """Its answer has come."""

    call: str
    ids: tuple[str, ...]


class Cancelling(msgspec.Struct, tag="cancelling", frozen=True):
    """A cancel is on its way."""

    task_id: str


class Cancelled(msgspec.Struct, tag="cancelled", frozen=True):
    """Its answer has come."""

    task_id: str
    answer: CancelAnswer
    at: float


class Final(msgspec.Struct, tag="final", frozen=True):
    """A client was told how a task ended."""

    task_id: str
    state: str
    run: int
    """That of the result; 0 without one."""


class Trouble(msgspec.Struct, tag="trouble", frozen=True):
    """A client met an error it should not have met."""

    what: str


class SignIn(msgspec.Struct, tag="process", frozen=True):
    """A pool process or a slot begins."""

    kind: str
    pid: int
    parent: int
    worker_id: str
    host: str
    at: float


Line = Sent | Answered | Cancelling | Cancelled | Final | Trouble | SignIn

_LONGEST_LINE_BYTES = 100_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


class Ledger:
    """A file of lines that several processes may append to."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")  # who wrote before us was killed within a line

    def write(self, line: Line) -> None:
        """Append a line, on the disk when this returns."""
        os.write(self._file, _encode(line) + b"\n")
        os.fsync(self._file)


def read_lines(path: Path) -> list[Line]:
    """Return the whole lines of a ledger; one that was cut off said nothing yet."""
    return list(_whole_lines(path))


def is_waiting(path: Path) -> bool:
    """Return whether the client that writes there has sent something and was not answered yet."""
    try:
        with path.open("rb") as file:
            file.seek(-min(_LONGEST_LINE_BYTES, path.stat().st_size), os.SEEK_END)
            last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    except OSError:
        return False
    return last.startswith(b'{"type":"sent"')


def _whole_lines(path: Path) -> Iterator[Line]:
    if not path.exists():
        return
    for text in path.read_bytes().split(b"\n"):
        try:
            yield _decode(text)
        except msgspec.DecodeError:
            continue


@dataclass(slots=True)
class Clients:
    """What all clients of a run were told."""

    told: Told
    unanswered: list[Sent]
    """Enqueues whose answer nobody heard."""
    cancelling: set[str]
    """Tasks somebody wanted to cancel, answered or not."""
    finals: list[Final]
    troubles: list[str]
    resent: int = 0
    """Enqueues that were answered only when they were sent again by another process."""
    functions: dict[str, str] = field(default_factory=dict)


def read_clients(paths: Iterable[Path]) -> Clients:
    """Return what the clients' ledgers say together."""
    lines = [line for path in sorted(paths) for line in read_lines(path)]
    answers = {line.call: line.ids for line in lines if isinstance(line, Answered)}
    sends = [line for line in lines if isinstance(line, Sent)]
    cancels = (line for line in lines if isinstance(line, Cancelled))
    return Clients(
        told=Told(
            submitted=tuple(one for sent in sends for one in _submitted(sent, answers.get(sent.call))),
            cancels=tuple(CancelTold(line.task_id, line.answer, line.at) for line in cancels),
        ),
        unanswered=[sent for sent in sends if sent.call not in answers],
        cancelling={line.task_id for line in lines if isinstance(line, Cancelling)},
        finals=[line for line in lines if isinstance(line, Final)],
        troubles=[line.what for line in lines if isinstance(line, Trouble)],
        resent=len(sends) - len({sent.call for sent in sends}),
        functions={task.id: task.function for sent in sends for task in sent.tasks},
    )


def _submitted(sent: Sent, ids: Sequence[str] | None) -> Iterator[Submitted]:
    for place, task in enumerate(sent.tasks):
        task_id = task.id if ids is None else ids[place]
        yield Submitted(task_id, digest_of(task.args), task.key, task.tenant, ok=ids is not None)


@dataclass(slots=True)
class Processes:
    """Every pool process and slot there was, as they signed in."""

    pools: dict[str, SignIn] = field(default_factory=dict)
    """By worker id."""
    slots: dict[str, list[SignIn]] = field(default_factory=lambda: defaultdict(list))
    """By the worker id of their pool process."""

    def host_of(self, worker_id: str) -> str:
        """Return the host of a worker; empty if it never signed in."""
        pool = self.pools.get(worker_id)
        return pool.host if pool is not None else ""


def read_processes(path: Path) -> Processes:
    """Return what the processes' ledger says."""
    found = Processes()
    for line in read_lines(path):
        if isinstance(line, SignIn):
            if line.kind == "pool":
                found.pools[line.worker_id] = line
            else:
                found.slots[line.worker_id].append(line)
    return found
