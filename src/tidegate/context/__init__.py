"""What a running task can use. A task function gets it by annotating its first parameter with `Context`.

`RunControl` is the worker's side of the same run.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from tidegate.context.approvals import ApprovalMethods
from tidegate.context.provider_jobs import ProviderJobMethods
from tidegate.context.run_control import (
    Progress,
    RetryRequest,
    RunControl,
    StopReason,
    SuspensionRequest,
)
from tidegate.context.stop import RetryRequested, TaskStopped, TaskSuspended
from tidegate.domain.calls import CallLog
from tidegate.domain.failure import LastFailure
from tidegate.domain.readers import LONGEST_WAIT_SECONDS, Seconds, seconds_option
from tidegate.domain.schedule import SCHEDULE_LABEL, SCHEDULED_FOR_LABEL
from tidegate.domain.spec import Priority
from tidegate.domain.text import storable, with_surrogates_escaped
from tidegate.domain.trace import TraceContext
from tidegate.errors import ArgumentsError

_MAX_LINE = 500
BACKPRESSURE_SECONDS = 0.05
"""How long a function that emits waits before it checks again whether there is room."""


class Context(ApprovalMethods, ProviderJobMethods):
    """What a running task can use. Call it from the function's own thread or event loop."""

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
        """Number of this claim of the task, from 1. `task_id` and `run` together identify this run."""
        self.attempt = attempt
        """Which charged attempt this is, from 1; parks, crashes and releases do not count."""
        self.max_attempts = max_attempts
        self.queue = queue
        self.priority = priority
        self.upstream = upstream
        """The upstream whose limits were charged for this run; empty if there is none."""
        self.is_probe = is_probe
        """Whether this run tests if that upstream, parked after failures, works again."""
        self.function = function
        """The name of the task function."""
        self.tenant = tenant
        self.labels: Mapping[str, str] = labels or {}
        self.last_failure = last_failure
        """Why the latest failed run of this task failed; None if no run has failed yet."""

    @classmethod
    def detached(cls) -> Context:
        """Return a context for a plain call outside a worker: never cancelled, no limits, its own scratch."""
        import time

        control = RunControl(
            scratch_root=Path(tempfile.gettempdir()),
            scratch_name=f"tidegate-{os.getpid()}-{os.urandom(4).hex()}",
            clock=time.monotonic,
        )
        for observe in tuple(plain_call_observers):
            observe(control)
        return cls(control, task_id="00000000-0000-0000-0000-000000000000", run=1, attempt=1, max_attempts=1)

    @property
    def schedule(self) -> str:
        """The schedule that enqueued this task; empty if no schedule did."""
        return self.labels.get(SCHEDULE_LABEL, "")

    @property
    def scheduled_for(self) -> datetime | None:
        """The planned moment of the tick that enqueued this task, in UTC; None if no schedule did.

        The task may start later: after an outage, or behind other tasks. The task works for this moment.
        """
        text = self.labels.get(SCHEDULED_FOR_LABEL)
        return None if text is None else datetime.fromisoformat(text)

    @property
    def trace(self) -> TraceContext | None:
        """The trace that enqueued this task; None if there was none."""
        return TraceContext.of_labels(self.labels) if self.labels else None

    @property
    def calls(self) -> CallLog:
        """The calls of this run, as its transports recorded them."""
        return self._control.calls

    def cancelled(self) -> bool:
        """Return whether this run was asked to stop, for any reason."""
        return self._control.stop is not None

    def raise_if_ended(self) -> None:
        """Raise `TaskStopped` if this run has ended or its lease is lost: it must make no further call.

        Raises:
            TaskStopped: It has. The caller is code that the function started and left running.
        """
        if self._control.is_over:
            message = "its run has ended"
            raise TaskStopped(message)
        if self._control.stop is StopReason.LOST:
            raise TaskStopped(StopReason.LOST.value)

    def abort_on_stop(self, abort: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `abort`, in any thread, if this run is asked to stop within the block."""
        return self._control.abort_on_stop(abort)

    def raise_stop(self) -> NoReturn:
        """Raise the reason why a call was cut off. Later calls of the function are not cut off.

        Raises:
            TaskStopped: Always.
        """
        self._control.is_stop_raised = True
        raise TaskStopped("" if self._control.stop is None else self._control.stop.value)

    def remaining(self) -> float:
        """Return the seconds until a time limit stops this run, at least 0; infinity without a limit."""
        return max(0.0, self._control.ends_at - self._control.clock())

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report progress. Stored at most twice a second; the last report is always stored. Never blocks.

        Args:
            done: Units done, a finite number.
            total: Units in total, if known.
            note: A message for people, cut to 500 characters.
        """
        self._control.on_progress(
            Progress(float(done), None if total is None else float(total), _one_line(note))
        )

    async def emit(self, data: Any) -> None:
        r"""Add a chunk to this task's stream: a token, a line, the URL of a picture.

        Chunks keep their order. Chunks are stored within 0.1 s, and always before the task ends. Chunks are
        kept as long as the task. If the task runs again, the new run's chunks follow the old run's. `emit`
        waits only while the store cannot keep up.

        Args:
            data: Any JSON value, at most `CHUNK_BYTES` (64 KiB). Half of a surrogate pair, from a stream
                that was cut inside a character, is stored as text such as `\ud83d`.

        Raises:
            ArgumentsError: The chunk cannot be stored.
        """
        import asyncio

        has_room = self._control.on_emit(_encode_chunk(data))
        while not has_room and not self.cancelled():
            await asyncio.sleep(BACKPRESSURE_SECONDS)
            has_room = self._control.on_emit(b"")

    def emit_sync(self, data: Any) -> None:
        """Do the same as `emit`, from a plain function."""
        import time

        has_room = self._control.on_emit(_encode_chunk(data))
        while not has_room and not self.cancelled():
            time.sleep(BACKPRESSURE_SECONDS)
            has_room = self._control.on_emit(b"")

    def retry(self, after: Seconds | None = None, reason: str = "", *, charge: bool = True) -> NoReturn:
        """End this run now and run the task again. Never returns.

        Args:
            after: The time until the next run: seconds, a timedelta, or text such as `30s`; at most 366 days.
                None uses the task's backoff. The delay is exact if `charge` is False, else it is a minimum.
            reason: Kept in the history.
            charge: Whether this run counts as an attempt. Only the total timeout and the deadline limit
                uncharged retries.

        Raises:
            RetryRequested: Always, unless `after` is invalid. Let it pass.
            OptionError: `after` is not a duration, or is out of bounds.
        """
        seconds = None if after is None else seconds_option("after", after, most=LONGEST_WAIT_SECONDS)
        if self._control.retry is None:
            self._control.retry = RetryRequest(seconds, _one_line(reason), bool(charge))
        raise RetryRequested(reason)

    def replace_process(self, why: str) -> None:
        """Replace the process that runs this task once the task has ended, with any outcome.

        A child process runs no other task. A pool process (async functions and threads) claims nothing more,
        gives its other tasks `drain_grace` to end, releases the rest, and is restarted. An embedded worker
        cannot replace its process and logs a warning instead.

        Args:
            why: What is wrong with the process, for the log, such as "the GPU context is broken".
        """
        self._control.replacement_reason = _one_line(f"asked by the task: {why}")

    def scratch(self) -> Path:
        """Return a directory for this run alone.

        The directory is removed when the run ends, also after a kill.
        """
        self._control.scratch_used = True
        self._control.scratch_path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._control.scratch_path

    def publish(self, target: str | os.PathLike[str], source: str | os.PathLike[str] | None = None) -> Path:
        """Move a finished file to its final path, atomically: readers see the whole file or none.

        The file is synced to disk, then renamed over `target`. On another file system it is first copied into
        the target's directory.

        Args:
            target: The final path; its directory must exist.
            source: A file in `scratch()`, absolute or relative to it; None: the file there with the target's
                name.

        Raises:
            TaskStopped: This run was asked to stop; nothing was published.
            FileNotFoundError: The source or the target's directory does not exist.
        """
        self.raise_if_cancelled()
        final = Path(target)
        finished = self.scratch() / (final.name if source is None else source)
        _sync_file(finished)
        try:
            finished.replace(final)
        except OSError as error:
            if not final.parent.is_dir() or not finished.exists():
                raise FileNotFoundError(
                    error.errno, f"cannot publish {finished} as {final}", str(final)
                ) from error
            temporary = final.with_name(f".{final.name}.{os.urandom(4).hex()}.part")
            shutil.copyfile(finished, temporary)
            _sync_file(temporary)
            temporary.replace(final)
            finished.unlink()
        return final


plain_call_observers: list[Callable[[RunControl], None]] = []
"""Called with the control of each plain call of a task function that takes a context. For tests."""


def _one_line(text: object) -> str:
    """Return text from a function, shortened and safe to send and store."""
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


_current: ContextVar[Callable[[], Context] | None] = ContextVar("tidegate_context", default=None)
"""Makes the context of the current run, always the same object: few functions ask for it."""


def current_context() -> Context | None:
    """Return the context of the run that this code is part of; None outside a task.

    The context is found in everything that the function awaits or starts as an asyncio task, but not in
    threads that it starts.
    """
    make_context = _current.get()
    return None if make_context is None else make_context()


_child_context: Context | None = None
"""The run of this child process, which runs one task at a time; None in other processes and between runs."""


def child_context() -> Context | None:
    """Return the run of this child process, in any of its threads; None elsewhere. For log records."""
    return _child_context


def set_child_context(context: Context | None) -> None:
    """Mark a run as the one of this child process; None at its end."""
    global _child_context
    _child_context = context


def set_current_context(make_context: Callable[[], Context]) -> None:
    """Mark the code that follows as part of a run, in the current `contextvars` context.

    Args:
        make_context: Returns the context of the run, always the same object.
    """
    _current.set(make_context)


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


__all__ = [
    "BACKPRESSURE_SECONDS",
    "Context",
    "Progress",
    "RetryRequest",
    "RetryRequested",
    "RunControl",
    "StopReason",
    "SuspensionRequest",
    "TaskStopped",
    "TaskSuspended",
    "child_context",
    "current_context",
    "plain_call_observers",
    "set_child_context",
    "set_current_context",
]
