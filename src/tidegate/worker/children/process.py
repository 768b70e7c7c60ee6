"""The pool process's side of one slot: start it, give it a body, hear its answer, end it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
import uuid

from tidegate.context import BACKPRESSURE_SECONDS, Progress, RunControl, StopReason
from tidegate.worker.children import process_tree
from tidegate.worker.children.messages import (
    HEADER_BYTES,
    ChildReady,
    ChunkEmitted,
    FunctionStarted,
    ProgressReported,
    RunReply,
    RunTask,
    StopTask,
    decode_to_parent,
    encode_message,
)
from tidegate.worker.process_snapshot import ProcessSnapshot

log = logging.getLogger("tidegate.worker")

START_SECONDS = 300.0
"""An application that has not been imported by then never will be."""


class ChildDied(Exception):  # noqa: N818 - a fact about the slot, told to whoever waits for its answer
    """The process ended without an answer: `how`, and whether the body's turn had come (`has_started`)."""

    def __init__(self, how: str, *, has_started: bool) -> None:
        super().__init__(how)
        self.how = how
        self.has_started = has_started


class NoChildAvailable(Exception):  # noqa: N818 - as above
    """No process could be made ready, which is no fault of the task that was to run there."""


class ChildProcess:
    """One warm child process, one body at a time.

    Args:
        application: `module:attribute` that it imports.
        gpu: The device it may see, as `CUDA_VISIBLE_DEVICES`; None: the environment as it is.
        snapshot: What it starts with; None: what this process has by then, whatever its tasks changed.
    """

    def __init__(
        self, application: str, *, gpu: int | str | None = None, snapshot: ProcessSnapshot | None = None
    ) -> None:
        self.gpu = gpu
        self.runs = 0
        self.unhealthy_reason = ""
        """Why it must run nothing more; empty if it may."""
        self._application = application
        self._snapshot = snapshot
        self._mark = f"child-{uuid.uuid4()}"
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answer: asyncio.Future[RunReply] | None = None
        self._control: RunControl | None = None
        self._kill_reason = ""
        self._has_started = False
        self.started_at = time.monotonic()

    @property
    def pid(self) -> int:
        """Its process id; 0 before the start."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_alive(self) -> bool:
        """Whether it can take a body."""
        return self._process is not None and self._process.returncode is None and not self._kill_reason

    def excess(self, limit: int) -> int | None:
        """Return the bytes the process and its descendants hold if they are more than `limit`, else None."""
        return process_tree.excess(self.pid, limit)

    async def start(self) -> None:
        """Start the interpreter and wait until the application is imported.

        Raises:
            ChildDied: It ended instead, or took too long.
        """
        ours, theirs = socket.socketpair()
        snapshot = self._snapshot
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tidegate.worker.children.child_main",
                self._application,
                str(theirs.fileno()),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=self._environment(),
                cwd=None if snapshot is None else snapshot.directory,
                umask=-1 if snapshot is None else snapshot.umask,
            )
        if snapshot is not None:
            snapshot.limit(self._process.pid)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._reading = asyncio.create_task(self._read(reader), name=f"tidegate child {self.pid}")
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._ready
        except TimeoutError:
            self.kill(f"its application was not imported within {START_SECONDS:g} s")
            raise ChildDied(self._kill_reason, has_started=False) from None

    async def run(self, run: RunTask, control: RunControl) -> RunReply:
        """Run one body, pass on to its control what it tells and emits, and return how it ended.

        Raises:
            ChildDied: The process ended without an answer: killed, crashed, or left by `os._exit`.
        """
        assert self._writer is not None
        self._has_started = False
        if self._reading is None or self._reading.done():
            raise ChildDied("it was dead before", has_started=False)
        self.runs += 1
        self._control = control
        self._answer = asyncio.get_running_loop().create_future()
        self._writer.write(encode_message(run))
        try:
            answer = await self._answer
        finally:
            self._answer = self._control = None
        self.unhealthy_reason = answer.unhealthy_reason
        return answer

    def request_stop(self, why: StopReason) -> None:
        """Ask the present body to stop."""
        if self._writer is not None:
            self._writer.write(encode_message(StopTask(why.value)))

    def kill(self, why: str) -> None:
        """Kill it with all it started. Whoever waits for its answer learns why."""
        self._kill_reason = self._kill_reason or why
        if self._process is not None:
            process_tree.kill_tree(self._process.pid, self._mark)

    async def close(self) -> None:
        """End it and wait until it is gone, with all it started."""
        self.kill("closed")
        if self._reading is not None:
            await self._reading

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Hear it out until it is gone."""
        try:
            while True:
                header = await reader.readexactly(HEADER_BYTES)
                frame = decode_to_parent(await reader.readexactly(int.from_bytes(header, "big")))
                if isinstance(frame, ChunkEmitted):
                    await self._forward_chunk(frame.data)
                else:
                    self._handle(frame)
        except (asyncio.IncompleteReadError, OSError):
            pass
        except Exception as error:  # a frame that cannot be read: nothing it says from now on can be
            log.exception("child process %d sent what cannot be read; it is killed", self.pid)
            self._kill_reason = self._kill_reason or f"sent what cannot be read: {type(error).__name__}"
        assert self._process is not None
        assert self._writer is not None
        process_tree.kill_tree(self._process.pid, self._mark)  # it may have closed its end and live on
        code = await self._process.wait()
        self._writer.close()
        died = ChildDied(self._kill_reason or _describe_exit(code), has_started=self._has_started)
        for future in (self._answer, self._ready):
            if future is not None and not future.done():
                future.set_exception(died)
                future.exception()  # seen: nobody may be waiting

    async def _forward_chunk(self, chunk: bytes) -> None:
        """Hand on a chunk; until there is room for more, read nothing, so that the body has to wait."""
        control = self._control
        while control is not None and not control.on_emit(chunk) and not self._kill_reason:
            chunk = b""
            await asyncio.sleep(BACKPRESSURE_SECONDS)

    def _handle(self, frame: ChildReady | FunctionStarted | ProgressReported | RunReply) -> None:
        if isinstance(frame, ChildReady):
            if not self._ready.done():
                self._ready.set_result(None)
        elif isinstance(frame, FunctionStarted):
            self._has_started = True
        elif isinstance(frame, ProgressReported):
            if self._control is not None:
                self._control.on_progress(Progress(frame.done, frame.total, frame.note))
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(frame)

    def _environment(self) -> dict[str, str]:
        """Return our environment with its mark; what it starts inherits both."""
        snapshot = os.environ if self._snapshot is None else self._snapshot.environment
        env = {**snapshot, process_tree.MARK: f"{snapshot.get(process_tree.MARK, '')}/{self._mark}"}
        return env if self.gpu is None else env | {"CUDA_VISIBLE_DEVICES": str(self.gpu)}


def _describe_exit(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code} without a result"
