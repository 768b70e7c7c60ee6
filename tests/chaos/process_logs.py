"""The files that the processes of a run write: the requests and responses of clients, and the processes.

Each line is one appending write and is on disk before its writer goes on.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from checker import ClientObservations, ObservedCancel, SubmittedTask, digest_of
from tidegate.store.rows import CancelStatus, NewTask

NOTES, PROCESSES = "bodies.ndjson", "processes.ndjson"
"""Names of the functions' notes and of the processes' file in the directory of a run."""


class EnqueueSent(msgspec.Struct, tag="sent", frozen=True):
    """An enqueue is on its way."""

    call: str
    tasks: tuple[NewTask, ...]
    many: bool
    """Through `enqueue_many`."""


class EnqueueAnswered(msgspec.Struct, tag="answered", frozen=True):
    """The response arrived."""

    call: str
    ids: tuple[str, ...]


class CancelSent(msgspec.Struct, tag="cancelling", frozen=True):
    """A cancel is on its way."""

    task_id: str


class CancelAnswered(msgspec.Struct, tag="cancelled", frozen=True):
    """The response arrived."""

    task_id: str
    answer: CancelStatus
    at: float


class FinalSeen(msgspec.Struct, tag="final", frozen=True):
    """A client received the result of a task."""

    task_id: str
    state: str
    run: int
    """That of the result; 0 without one."""


class ClientError(msgspec.Struct, tag="trouble", frozen=True):
    """A client met an error it should not have met."""

    what: str


class ProcessStarted(msgspec.Struct, tag="process", frozen=True):
    """A pool process or a child process started."""

    kind: str
    pid: int
    parent: int
    worker_id: str
    host: str
    at: float


LogLine = (
    EnqueueSent | EnqueueAnswered | CancelSent | CancelAnswered | FinalSeen | ClientError | ProcessStarted
)

_LONGEST_LINE_BYTES = 100_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LogLine).decode


class ProcessLog:
    """A file of lines that several processes may append to."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")  # who wrote before us was killed within a line

    def write(self, line: LogLine) -> None:
        """Append a line, on the disk when this returns."""
        os.write(self._file, _encode(line) + b"\n")
        os.fsync(self._file)


def read_lines(path: Path) -> list[LogLine]:
    """Return the complete lines of a file; an incomplete last line is ignored."""
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


def _whole_lines(path: Path) -> Iterator[LogLine]:
    if not path.exists():
        return
    for text in path.read_bytes().split(b"\n"):
        try:
            yield _decode(text)
        except msgspec.DecodeError:
            continue


@dataclass(slots=True)
class ClientLogs:
    """The responses that all clients of a run got."""

    described: ClientObservations
    unanswered: list[EnqueueSent]
    """Enqueues without a response."""
    cancelling: set[str]
    """Tasks somebody wanted to cancel, answered or not."""
    finals: list[FinalSeen]
    client_errors: list[str]
    sent_again: int = 0
    """Enqueues that were answered only when they were sent again by another process."""
    functions: dict[str, str] = field(default_factory=dict)


def read_clients(paths: Iterable[Path]) -> ClientLogs:
    """Return the responses from the files of all clients."""
    lines = [line for path in sorted(paths) for line in read_lines(path)]
    answers = {line.call: line.ids for line in lines if isinstance(line, EnqueueAnswered)}
    sends = [line for line in lines if isinstance(line, EnqueueSent)]
    cancels = (line for line in lines if isinstance(line, CancelAnswered))
    return ClientLogs(
        described=ClientObservations(
            submitted=tuple(one for sent in sends for one in _submitted(sent, answers.get(sent.call))),
            cancels=tuple(ObservedCancel(line.task_id, line.answer, line.at) for line in cancels),
        ),
        unanswered=[sent for sent in sends if sent.call not in answers],
        cancelling={line.task_id for line in lines if isinstance(line, CancelSent)},
        finals=[line for line in lines if isinstance(line, FinalSeen)],
        client_errors=[line.what for line in lines if isinstance(line, ClientError)],
        sent_again=len(sends) - len({sent.call for sent in sends}),
        functions={task.id: task.function for sent in sends for task in sent.tasks},
    )


def _submitted(sent: EnqueueSent, ids: Sequence[str] | None) -> Iterator[SubmittedTask]:
    for place, task in enumerate(sent.tasks):
        task_id = task.id if ids is None else ids[place]
        yield SubmittedTask(task_id, digest_of(task.args), task.key, task.tenant, ok=ids is not None)


@dataclass(slots=True)
class StartedProcesses:
    """Every pool process and slot there was, as they signed in."""

    pools: dict[str, ProcessStarted] = field(default_factory=dict)
    """By worker id."""
    children: dict[str, list[ProcessStarted]] = field(default_factory=lambda: defaultdict(list))
    """By the worker id of their pool process."""

    def host_of(self, worker_id: str) -> str:
        """Return the host of a worker; empty if it never signed in."""
        pool = self.pools.get(worker_id)
        return pool.host if pool is not None else ""


def read_processes(path: Path) -> StartedProcesses:
    """Return the processes from the processes' file."""
    found = StartedProcesses()
    for line in read_lines(path):
        if isinstance(line, ProcessStarted):
            if line.kind == "pool":
                found.pools[line.worker_id] = line
            else:
                found.children[line.worker_id].append(line)
    return found
