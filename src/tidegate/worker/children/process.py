"""Controls one child process from its pool process: start it, send a task, receive the reply, end it."""

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
from tidegate.steps.port import StepPort
from tidegate.worker.children import process_tree
from tidegate.worker.children.answer_steps import answer_step
from tidegate.worker.children.messages import (
    HEADER_BYTES,
    ChildReady,
    ChunkEmitted,
    FunctionStarted,
    ProgressReported,
    RunReply,
    RunTask,
    StepAnswer,
    StepRequest,
    StopTask,
    decode_to_parent,
    encode_message,
)
from tidegate.worker.process_snapshot import ProcessSnapshot

log = logging.getLogger("tidegate.worker")

START_SECONDS = 300.0
"""Seconds within which a child process must have imported the application."""


class ChildDied(Exception):  # noqa: N818 - a fact about the child process, not an error of the caller
    """A child process ended without a reply.

    `how` describes its end; `has_started` is true if the function had started.
    """

    def __init__(self, how: str, *, has_started: bool) -> None:
        super().__init__(how)
        self.how = how
        self.has_started = has_started


class NoChildAvailable(Exception):  # noqa: N818 - as above
    """No child process could be started. The task that waited for it is not to blame."""


class ChildProcess:
    """One child process. A child process stays warm and runs one function at a time.

    Args:
        application: `module:attribute` that the process imports.
        gpu: The device it may see, as `CUDA_VISIBLE_DEVICES`; None leaves the environment unchanged.
        snapshot: The process state that it starts with; None: the state of this process at that time, with
            any changes that tasks made.
    """

    def __init__(
        self, application: str, *, gpu: int | str | None = None, snapshot: ProcessSnapshot | None = None
    ) -> None:
        self.gpu = gpu
        self.runs = 0
        self.unhealthy_reason = ""
        """Why this process must not run another task; empty if it may."""
        self._application = application
        self._snapshot = snapshot
        self._mark = f"child-{uuid.uuid4()}"
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reply: asyncio.Future[RunReply] | None = None
        self._control: RunControl | None = None
        self._step_port: StepPort | None = None
        """Records the steps of the last run, also those that its threads end after it."""
        self._kill_reason = ""
        self._has_started = False
        self.started_at = time.monotonic()

    @property
    def pid(self) -> int:
        """The process id of this process; 0 before the start."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_alive(self) -> bool:
        """Whether this process can run a task."""
        return self._process is not None and self._process.returncode is None and not self._kill_reason

    def excess(self, limit: int) -> int | None:
        """Return the bytes that the process and its descendants use if more than `limit`, else None."""
        return process_tree.excess(self.pid, limit)

    async def start(self) -> None:
        """Start the interpreter and wait until the application is imported.

        Raises:
            ChildDied: The process ended, or took too long.
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
                "" if snapshot is None else str(snapshot.umask),  # uvloop cannot start a process with a umask
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=self._environment(),
                cwd=None if snapshot is None else snapshot.directory,
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
        """Run one task, pass its progress and chunks to `control`, and return its reply.

        Raises:
            ChildDied: The process ended without a reply: killed, crashed, or left by `os._exit`.
        """
        assert self._writer is not None
        self._has_started = False
        if self._reading is None or self._reading.done():
            raise ChildDied("it was dead before", has_started=False)
        self.runs += 1
        self._control, self._step_port = control, control.step_port
        self._reply = asyncio.get_running_loop().create_future()
        self._writer.write(encode_message(run))
        try:
            reply = await self._reply
        finally:
            self._reply = self._control = None
        self.unhealthy_reason = reply.unhealthy_reason
        return reply

    def request_stop(self, why: StopReason) -> None:
        """Ask the current function to stop."""
        if self._writer is not None:
            self._writer.write(encode_message(StopTask(why.value)))

    def kill(self, why: str) -> None:
        """Kill this process and all processes it started. `run` then raises `ChildDied` with this reason."""
        self._kill_reason = self._kill_reason or why
        if self._process is not None:
            process_tree.kill_tree(self._process.pid, self._mark)

    async def close(self) -> None:
        """Kill this process and all processes it started, and wait until it is gone."""
        self.kill("closed")
        if self._reading is not None:
            await self._reading

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Receive the messages of the process until it is gone."""
        try:
            while True:
                header = await reader.readexactly(HEADER_BYTES)
                message = decode_to_parent(await reader.readexactly(int.from_bytes(header, "big")))
                if isinstance(message, ChunkEmitted):
                    await self._forward_chunk(message.data)
                else:
                    self._handle(message)
        except (asyncio.IncompleteReadError, OSError):
            pass
        except Exception as error:  # after one unreadable message, the rest of the stream is unreadable too
            log.exception("child process %d sent an unreadable message; it is killed", self.pid)
            self._kill_reason = self._kill_reason or f"sent an unreadable message: {type(error).__name__}"
        assert self._process is not None
        assert self._writer is not None
        # the process may have closed its end of the connection and still run
        process_tree.kill_tree(self._process.pid, self._mark)
        code = await self._process.wait()
        self._writer.close()
        died = ChildDied(self._kill_reason or _describe_exit(code), has_started=self._has_started)
        for future in (self._reply, self._ready):
            if future is not None and not future.done():
                future.set_exception(died)
                future.exception()  # marks the exception as retrieved: no code may be waiting for it

    async def _forward_chunk(self, chunk: bytes) -> None:
        """Pass on a chunk.

        Read no message until there is room for more chunks, so that the function waits.
        """
        control = self._control
        while control is not None and not control.on_emit(chunk) and not self._kill_reason:
            chunk = b""
            await asyncio.sleep(BACKPRESSURE_SECONDS)

    def _send(self, message: StepAnswer) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode_message(message))

    def _handle(
        self, message: ChildReady | FunctionStarted | ProgressReported | StepRequest | RunReply
    ) -> None:
        if isinstance(message, ChildReady):
            if not self._ready.done():
                self._ready.set_result(None)
        elif isinstance(message, FunctionStarted):
            self._has_started = True
        elif isinstance(message, ProgressReported):
            if self._control is not None:
                self._control.on_progress(Progress(message.done, message.total, message.note))
        elif isinstance(message, StepRequest):
            if self._step_port is not None:
                answer_step(self._step_port, message, self._send)
        elif self._reply is not None and not self._reply.done():
            self._reply.set_result(message)

    def _environment(self) -> dict[str, str]:
        """Return our environment with a mark for the child process, which its descendants inherit."""
        snapshot = os.environ if self._snapshot is None else self._snapshot.environment
        env = {**snapshot, process_tree.MARK: f"{snapshot.get(process_tree.MARK, '')}/{self._mark}"}
        return env if self.gpu is None else env | {"CUDA_VISIBLE_DEVICES": str(self.gpu)}


def _describe_exit(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code} without a result"
