"""What a running task can use. A body asks for it by annotating its first parameter with `Context`.

`RunControl` is the worker's side of the same run: how it asks the body to stop, and where it reads what
the body told.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

from tidegate.domain.calls import CallLog
from tidegate.domain.failure import LastFailure
from tidegate.domain.spec import Priority
from tidegate.domain.text import storable, with_surrogates_escaped
from tidegate.errors import ArgumentsError
from tidegate.readers import LONGEST_WAIT_SECONDS, Seconds, seconds_option

_MAX_LINE = 500
BACKPRESSURE_SECONDS = 0.05
"""How long an emitting body waits before it asks again whether there is room."""


class StopReason(StrEnum):
    """Why a body is asked to stop."""

    CANCEL = "cancelled on request"
    TIMEOUT = "timeout"
    DEADLINE = "deadline"
    """The total timeout or the deadline of the whole task."""
    RELEASE = "released by shutdown"
    LOST = "lease lost"


class TaskStopped(BaseException):
    """Raised inside a body that was asked to stop. Let it pass; no `except Exception` catches it."""


class RetryRequested(BaseException):
    """Raised by `ctx.retry`. Let it pass; no `except Exception` catches it."""


@dataclass(frozen=True, slots=True)
class RetryRequest:
    """What a body asked for by `ctx.retry`."""

    after_seconds: float | None
    reason: str
    charge: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a body says it is."""

    done: float
    total: float | None
    note: str


def _ignore_progress(_: Progress) -> None:
    return None


def _ignore_chunk(_: bytes) -> bool:
    return True


@dataclass(slots=True)
class RunControl:
    """Shared by the worker and one run of a body; written by one side, read by the other."""

    scratch_root: Path
    scratch_name: str
    clock: Callable[[], float]
    """Monotonic seconds."""
    started_at: float = 0.0
    """By `clock`: when the worker took it up."""
    ends_at: float = float("inf")
    """By `clock`: when a time limit will stop this run."""
    is_over: bool = False
    """The run has ended: code of it that is left over must make no call any more."""
    retry: RetryRequest | None = None
    """Set once a body asked for its next run: that is the outcome, whatever it does afterwards."""
    on_progress: Callable[[Progress], None] = field(default=_ignore_progress)
    """Told what the body tells, each time."""
    on_emit: Callable[[bytes], bool] = field(default=_ignore_chunk)
    """Given each chunk the body emits, encoded; an empty one only asks whether there is room for more."""
    scratch_used: bool = False
    calls: CallLog = field(default_factory=CallLog)
    """Written by the transports that the body uses."""
    replacement_reason: str = ""
    """Why this process is to be replaced after the run, if the task asked for it."""
    is_stop_raised: bool = False
    """Whether a call that blocks was cut off by the stop: those that the body makes afterwards go on."""
    _stop: StopReason | None = field(default=None, init=False)
    _aborts: dict[object, Callable[[], None]] = field(default_factory=dict, init=False)

    @property
    def stop(self) -> StopReason | None:
        """Why the body is asked to stop; None: it is not. Setting it cuts off the calls that block."""
        return self._stop

    @stop.setter
    def stop(self, why: StopReason | None) -> None:
        self._stop = why
        for abort in tuple(self._aborts.values()):
            abort()

    @contextmanager
    def abort_on_stop(self, abort: Callable[[], None]) -> Iterator[None]:
        """Have `abort` called, in any thread, when the body is asked to stop within the block.

        Once: when a body that was cut off makes further calls, to clean up for one, they are let through.
        """
        key = object()
        self._aborts[key] = abort
        try:
            if self._stop is not None and not self.is_stop_raised:
                abort()
            yield
        finally:
            del self._aborts[key]

    @property
    def scratch_path(self) -> Path:
        """This run's own directory; it need not exist."""
        return self.scratch_root / self.scratch_name

    def remove_scratch(self) -> None:
        """Delete this run's scratch directory."""
        shutil.rmtree(self.scratch_path, ignore_errors=True)


class Context:
    """What a running task can use. Safe from the body's own thread or loop."""

    def __init__(
        self,
        control: RunControl,
        *,
        task_id: str,
        run: int,
        attempt: int,
        max_attempts: int,
        queue: str = "",
        priority: Priority = Priority.NORMAL,
        upstream: str = "",
        is_probe: bool = False,
        function: str = "",
        tenant: str = "",
        labels: Mapping[str, str] | None = None,
        last_failure: LastFailure | None = None,
    ) -> None:
        self._control = control
        self.task_id = task_id
        self.run = run
        """Number of this claim of the task, from 1; with `task_id` it names this run for good."""
        self.attempt = attempt
        """Which charged attempt this is, from 1; parks, crashes and releases do not count."""
        self.max_attempts = max_attempts
        self.queue = queue
        self.priority = priority
        self.upstream = upstream
        """The outside service whose limits were charged for this run; empty for none."""
        self.is_probe = is_probe
        """Whether this run was sent to try if that service, held after failures, works again."""
        self.function = function
        """The name of the task function."""
        self.tenant = tenant
        self.labels: Mapping[str, str] = labels or {}
        self.last_failure = last_failure
        """Why an earlier run of this task failed, the latest one that did; None on the first run."""

    @classmethod
    def detached(cls) -> Context:
        """Return a context for a plain call outside a worker: never cancelled, no limits, own scratch."""
        import time

        control = RunControl(
            scratch_root=Path(tempfile.gettempdir()),
            scratch_name=f"tidegate-{os.getpid()}-{os.urandom(4).hex()}",
            clock=time.monotonic,
        )
        return cls(control, task_id="00000000-0000-0000-0000-000000000000", run=1, attempt=1, max_attempts=1)

    @property
    def calls(self) -> CallLog:
        """What the run's transports noted of its calls."""
        return self._control.calls

    def cancelled(self) -> bool:
        """Return whether this run was asked to stop, for whatever reason."""
        return self._control.stop is not None

    def raise_if_cancelled(self) -> None:
        """Stop here if this run was asked to stop.

        Raises:
            TaskStopped: It was. Let it pass.
        """
        if self._control.stop is not None:
            raise TaskStopped(self._control.stop.value)

    def raise_if_ended(self) -> None:
        """Stop here if this run has ended or is no longer this worker's: nothing may be called for it.

        Raises:
            TaskStopped: It has. The caller is code that the body started and left behind.
        """
        if self._control.is_over:
            message = "its run has ended"
            raise TaskStopped(message)
        if self._control.stop is StopReason.LOST:
            raise TaskStopped(StopReason.LOST.value)

    def abort_on_stop(self, abort: Callable[[], None]) -> AbstractContextManager[None]:
        """Have `abort` called, in any thread, when this run is asked to stop within the block."""
        return self._control.abort_on_stop(abort)

    def raise_stop(self) -> NoReturn:
        """Raise what a call was cut off for; calls that the body makes afterwards are let through.

        Raises:
            TaskStopped: Always.
        """
        self._control.is_stop_raised = True
        raise TaskStopped("" if self._control.stop is None else self._control.stop.value)

    def remaining(self) -> float:
        """Return the seconds until a time limit stops this run, 0 at least; infinity without limits."""
        return max(0.0, self._control.ends_at - self._control.clock())

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Tell how far the work is. Kept at most twice a second, the last one always; never blocks.

        Args:
            done: Units done, finite.
            total: Units in all, if known.
            note: One line for people, cut to 500 characters.
        """
        self._control.on_progress(
            Progress(float(done), None if total is None else float(total), _one_line(note))
        )

    async def emit(self, data: Any) -> None:
        r"""Add a chunk to this task's stream, for whoever follows it: a token, a line, a picture's address.

        Chunks keep their order, are stored within 0.1 s, and in any case before the task's end. They stay
        as long as the task. Those of a run that is repeated stay too: the next run's follow them. Waits
        only while the store cannot keep up.

        Args:
            data: Whatever JSON can hold, `CHUNK_BYTES` (64 KiB) at most. Half of a surrogate pair, where a
                stream was cut inside a character, is kept as text such as `\ud83d`.

        Raises:
            ArgumentsError: It cannot be stored.
        """
        import asyncio

        has_room = self._control.on_emit(_encode_chunk(data))
        while not has_room and not self.cancelled():
            await asyncio.sleep(BACKPRESSURE_SECONDS)
            has_room = self._control.on_emit(b"")

    def emit_sync(self, data: Any) -> None:
        """As `emit`, from a plain function."""
        import time

        has_room = self._control.on_emit(_encode_chunk(data))
        while not has_room and not self.cancelled():
            time.sleep(BACKPRESSURE_SECONDS)
            has_room = self._control.on_emit(b"")

    def retry(self, after: Seconds | None = None, reason: str = "", *, charge: bool = True) -> NoReturn:
        """End this run now and have exactly one next one. Never returns.

        Args:
            after: The time until then: seconds, a timedelta, or text such as `30s`; 366 days at most. None:
                the task's backoff. Exact where `charge` is False, else a floor.
            reason: Kept in the history.
            charge: Whether this run counts as an attempt. An uncharged retry is bounded by the total
                timeout and the deadline only.

        Raises:
            RetryRequested: Always, unless `after` cannot work. Let it pass.
            OptionError: `after` is no duration, or is out of bounds.
        """
        seconds = None if after is None else seconds_option("after", after, most=LONGEST_WAIT_SECONDS)
        if self._control.retry is None:
            self._control.retry = RetryRequest(seconds, _one_line(reason), bool(charge))
        raise RetryRequested(reason)

    def replace_process(self, why: str) -> None:
        """Have the process that runs this task replaced once the task has ended, however it ends.

        A child process runs no other task. A pool process (async functions, and threads) claims no more,
        gives its other tasks `drain_grace` to end, gives the rest back, and is started again. An embedded
        worker cannot replace its process: it logs a warning.

        Args:
            why: What is wrong with the process, for the log, such as "the GPU context is broken".
        """
        self._control.replacement_reason = _one_line(f"asked by the task: {why}")

    def scratch(self) -> Path:
        """Return a directory of this run's own. It is removed when the run ends, also after a kill."""
        self._control.scratch_used = True
        self._control.scratch_path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._control.scratch_path

    def publish(self, target: str | os.PathLike[str], source: str | os.PathLike[str] | None = None) -> Path:
        """Move a finished file to where others look for it: whole or not at all.

        The data is synced to disk, then renamed over `target`. Across file systems it is copied beside
        the target first.

        Args:
            target: The final path; its directory must exist.
            source: A file in `scratch()`, absolute or relative to it; None: the target's own name there.

        Raises:
            TaskStopped: This run was asked to stop; nothing was published.
            FileNotFoundError: The source or the target's directory does not exist.
        """
        self.raise_if_cancelled()
        final = Path(target)
        made = self.scratch() / (final.name if source is None else source)
        _sync_file(made)
        try:
            made.replace(final)
        except OSError as error:
            if not final.parent.is_dir() or not made.exists():
                raise FileNotFoundError(
                    error.errno, f"cannot publish {made} as {final}", str(final)
                ) from error
            temporary = final.with_name(f".{final.name}.{os.urandom(4).hex()}.part")
            shutil.copyfile(made, temporary)
            _sync_file(temporary)
            temporary.replace(final)
            made.unlink()
        return final


def _one_line(text: object) -> str:
    """Return what a body says in words, cut and fit to be sent and stored."""
    return storable(str(text), _MAX_LINE)


def _encode_chunk(data: Any) -> bytes:
    from tidegate.codec import encode
    from tidegate.store.streams import CHUNK_BYTES

    try:
        return encode(data, path="chunk", limit=CHUNK_BYTES)
    except ArgumentsError:
        if (shown := with_surrogates_escaped(data)) == data:
            raise
    return encode(shown, path="chunk", limit=CHUNK_BYTES)  # a token stream may be cut inside a character


_current: ContextVar[Context | None] = ContextVar("tidegate_context", default=None)


def current_context() -> Context | None:
    """Return the context of the run that this code is part of; None outside a task.

    Holds in everything the body awaits or starts as an asyncio task, but not in threads of its own making.
    """
    return _current.get()


def set_current_context(context: Context) -> None:
    """Say whose run the code from here on is part of, in the present `contextvars` context."""
    _current.set(context)


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
