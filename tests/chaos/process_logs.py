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

from chaos.plan import BATCHED_FROM
from checker import ClientObservations, ObservedCancel, SubmittedTask
from harness.record import FinalSeen, ScriptedEnd, submitted_task
from harness.relations import ParentEdges, Relations, SentMap, event_value
from harness.scripts import script_of, scripted_end
from tidegate.domain.failure import Reason
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


class MapSent(msgspec.Struct, tag="sent map", frozen=True):
    """A map is on its way."""

    key: str
    items: tuple[tuple[int, list[str]], ...]
    """The arguments of its items."""
    digests: tuple[str, ...]
    """`digest_of` the encoded arguments of each."""
    max_failures: int | None


class MapAnswered(msgspec.Struct, tag="answered map", frozen=True):
    """The response to it arrived."""

    key: str


class CancelSent(msgspec.Struct, tag="cancelling", frozen=True):
    """A cancel is on its way."""

    task_id: str


class CancelAnswered(msgspec.Struct, tag="cancelled", frozen=True):
    """The response arrived."""

    task_id: str
    answer: CancelStatus
    at: float


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
    EnqueueSent
    | EnqueueAnswered
    | MapSent
    | MapAnswered
    | CancelSent
    | CancelAnswered
    | FinalSeen
    | ClientError
    | ProcessStarted
)

_DEAF = frozenset({"hog", "deaf", "threaded"})
"""Functions that do not notice a request to stop."""
_MAX_ATTEMPTS = 3
"""Of every function of the application."""
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
    return last.startswith(b'{"type":"sent')


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
    scripted_ends: dict[str, ScriptedEnd] = field(default_factory=dict)
    """How each task may end."""
    unique_names: dict[str, list[str]] = field(default_factory=dict)
    """Tasks by the unique name under which they were sent."""
    batched: frozenset[str] = frozenset()
    """Tasks of enqueues in batches."""
    deaf: frozenset[str] = frozenset()
    """Tasks whose functions do not notice a request to stop."""
    unanswered_maps: Sequence[MapSent] = ()
    """Maps without a response."""
    relations: Relations = field(default_factory=Relations)
    """The maps, the tasks after others and the events, as they were sent."""


def read_clients(paths: Iterable[Path]) -> ClientLogs:
    """Return the responses from the files of all clients."""
    lines = [line for path in sorted(paths) for line in read_lines(path)]
    answers = {line.call: line.ids for line in lines if isinstance(line, EnqueueAnswered)}
    sends = [line for line in lines if isinstance(line, EnqueueSent)]
    cancels = (line for line in lines if isinstance(line, CancelAnswered))
    tasks = [task for sent in sends for task in sent.tasks]
    maps = {line.key: line for line in lines if isinstance(line, MapSent)}
    answered_maps = {line.key for line in lines if isinstance(line, MapAnswered)}
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
        scripted_ends={task.id: _end_of(task) for task in tasks},
        unique_names=_by_unique_name(tasks),
        batched=frozenset(
            task.id for sent in sends if sent.many and len(sent.tasks) >= BATCHED_FROM for task in sent.tasks
        ),
        deaf=frozenset(task.id for task in tasks if task.function.rpartition(":")[2] in _DEAF),
        unanswered_maps=[sent for key, sent in maps.items() if key not in answered_maps],
        relations=Relations(
            sent_maps={key: SentMap(sent.digests, key in answered_maps) for key, sent in maps.items()},
            edges={task.id: ParentEdges(task.after, task.on_parent_failure) for task in tasks if task.after},
            events={task.id: event_value(task.id) for task in tasks if "event" in (script_of(task))},
        ),
    )


def _end_of(task: NewTask) -> ScriptedEnd:
    """Return how a task may end: as its script says, or else only well, apart from crashes."""
    if task.function.endswith("asking"):
        return ScriptedEnd(dead_reasons=frozenset({Reason.IN_DOUBT}))
    script = script_of(task)
    return ScriptedEnd() if not script else scripted_end(script, task.max_attempts or _MAX_ATTEMPTS)


def _by_unique_name(tasks: Iterable[NewTask]) -> dict[str, list[str]]:
    named: defaultdict[str, list[str]] = defaultdict(list)
    for task in tasks:
        if task.unique is not None:
            named[task.unique].append(task.id)
    return named


def _submitted(sent: EnqueueSent, ids: Sequence[str] | None) -> Iterator[SubmittedTask]:
    for place, task in enumerate(sent.tasks):
        yield submitted_task(task, None if ids is None else ids[place])


@dataclass(slots=True)
class StartedProcesses:
    """Every pool process and child process that registered itself."""

    pools: dict[str, ProcessStarted] = field(default_factory=dict)
    """By worker id."""
    children: dict[str, list[ProcessStarted]] = field(default_factory=lambda: defaultdict(list))
    """By the worker id of their pool process."""

    def host_of(self, worker_id: str) -> str:
        """Return the host of a worker; empty if it never registered."""
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
