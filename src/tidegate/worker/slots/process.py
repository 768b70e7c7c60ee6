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

from tidegate.context import CROWDED_SECONDS, Progress, RunControl, Stop
from tidegate.worker.slots import tree
from tidegate.worker.slots.frames import (
    HEADER_BYTES,
    Answer,
    Began,
    Emitted,
    Halt,
    Ready,
    Run,
    Told,
    decode_to_pool,
    packed,
)
from tidegate.worker.surroundings import Surroundings

log = logging.getLogger("tidegate.worker")

START_SECONDS = 300.0
"""An application that has not been imported by then never will be."""


class SlotDied(Exception):  # noqa: N818 - a fact about the slot, told to whoever waits for its answer
    """The process ended without an answer: `how`, and whether the body's turn had come (`began`)."""

    def __init__(self, how: str, *, began: bool) -> None:
        super().__init__(how)
        self.how = how
        self.began = began


class NoSlot(Exception):  # noqa: N818 - as above
    """No process could be made ready, which is no fault of the task that was to run there."""


class SlotProcess:
    """One warm child process, one body at a time.

    Args:
        application: `module:attribute` that it imports.
        gpu: The device it may see, as `CUDA_VISIBLE_DEVICES`; None: the environment as it is.
        surroundings: What it starts with; None: what this process has by then, whatever its tasks changed.
    """

    def __init__(
        self, application: str, *, gpu: int | str | None = None, surroundings: Surroundings | None = None
    ) -> None:
        self.gpu = gpu
        self.runs = 0
        self.condemned = ""
        """Why it must run nothing more; empty if it may."""
        self._application = application
        self._surroundings = surroundings
        self._mark = f"slot-{uuid.uuid4()}"
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answer: asyncio.Future[Answer] | None = None
        self._control: RunControl | None = None
        self._killed_for = ""
        self._began = False
        self.started_at = time.monotonic()

    @property
    def pid(self) -> int:
        """Its process id; 0 before the start."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_alive(self) -> bool:
        """Whether it can take a body."""
        return self._process is not None and self._process.returncode is None and not self._killed_for

    def excess(self, limit: int) -> int | None:
        """Return the bytes the process and its descendants hold if they are more than `limit`, else None."""
        return tree.excess(self.pid, limit)

    async def start(self) -> None:
        """Start the interpreter and wait until the application is imported.

        Raises:
            SlotDied: It ended instead, or took too long.
        """
        ours, theirs = socket.socketpair()
        around = self._surroundings
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tidegate.worker.slots.slot",
                self._application,
                str(theirs.fileno()),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=self._environment(),
                cwd=None if around is None else around.directory,
                umask=-1 if around is None else around.umask,
            )
        if around is not None:
            around.limit(self._process.pid)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._reading = asyncio.create_task(self._read(reader), name=f"tidegate slot {self.pid}")
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._ready
        except TimeoutError:
            self.kill(f"its application was not imported within {START_SECONDS:g} s")
            raise SlotDied(self._killed_for, began=False) from None

    async def run(self, run: Run, control: RunControl) -> Answer:
        """Run one body, pass on to its control what it tells and emits, and return how it ended.

        Raises:
            SlotDied: The process ended without an answer: killed, crashed, or left by `os._exit`.
        """
        assert self._writer is not None
        self._began = False
        if self._reading is None or self._reading.done():
            raise SlotDied("it was dead before", began=False)
        self.runs += 1
        self._control = control
        self._answer = asyncio.get_running_loop().create_future()
        self._writer.write(packed(run))
        try:
            answer = await self._answer
        finally:
            self._answer = self._control = None
        self.condemned = answer.condemned
        return answer

    def halt(self, why: Stop) -> None:
        """Ask the present body to stop."""
        if self._writer is not None:
            self._writer.write(packed(Halt(why.value)))

    def kill(self, why: str) -> None:
        """Kill it with all it started. Whoever waits for its answer learns why."""
        self._killed_for = self._killed_for or why
        if self._process is not None:
            tree.kill_tree(self._process.pid, self._mark)

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
                frame = decode_to_pool(await reader.readexactly(int.from_bytes(header, "big")))
                if isinstance(frame, Emitted):
                    await self._pass_on(frame.data)
                else:
                    self._hear(frame)
        except (asyncio.IncompleteReadError, OSError):
            pass
        except Exception as error:  # a frame that cannot be read: nothing it says from now on can be
            log.exception("child process %d sent what cannot be read; it is killed", self.pid)
            self._killed_for = self._killed_for or f"sent what cannot be read: {type(error).__name__}"
        assert self._process is not None
        assert self._writer is not None
        tree.kill_tree(self._process.pid, self._mark)  # it may have closed its end and live on
        code = await self._process.wait()
        self._writer.close()
        died = SlotDied(self._killed_for or _in_words(code), began=self._began)
        for future in (self._answer, self._ready):
            if future is not None and not future.done():
                future.set_exception(died)
                future.exception()  # seen: nobody may be waiting

    async def _pass_on(self, chunk: bytes) -> None:
        """Hand on a chunk; until there is room for more, read nothing, so that the body has to wait."""
        control = self._control
        while control is not None and not control.on_emit(chunk) and not self._killed_for:
            chunk = b""
            await asyncio.sleep(CROWDED_SECONDS)

    def _hear(self, frame: Ready | Began | Told | Answer) -> None:
        if isinstance(frame, Ready):
            if not self._ready.done():
                self._ready.set_result(None)
        elif isinstance(frame, Began):
            self._began = True
        elif isinstance(frame, Told):
            if self._control is not None:
                self._control.on_progress(Progress(frame.done, frame.total, frame.note))
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(frame)

    def _environment(self) -> dict[str, str]:
        """Return our environment with its mark; what it starts inherits both."""
        around = os.environ if self._surroundings is None else self._surroundings.environment
        env = {**around, tree.MARK: f"{around.get(tree.MARK, '')}/{self._mark}"}
        return env if self.gpu is None else env | {"CUDA_VISIBLE_DEVICES": str(self.gpu)}


def _in_words(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code} without a result"
