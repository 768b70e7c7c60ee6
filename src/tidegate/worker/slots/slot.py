"""A child slot: imports the application and runs one body at a time, in its main thread.

It knows nothing of leases or the store. When the pool process is gone, it ends at once.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import inspect
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tidegate.context import Context, Progress, RetryRequested, RunControl, Stop, TaskStopped, set_present
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.spec import Priority
from tidegate.errors import ArgumentsError, ConfigError
from tidegate.worker import report
from tidegate.worker.application import Application, Runnable, load_application
from tidegate.worker.judge import failure_of_misfit
from tidegate.worker.last_resort import failure_of
from tidegate.worker.logs import application_loaded, set_up_logging
from tidegate.worker.returned import NotAValue, encoded, is_value, value_of
from tidegate.worker.signals import outlive_the_group
from tidegate.worker.slots.frames import (
    HEADER_BYTES,
    Answer,
    AskedAgain,
    Began,
    Emitted,
    Failed,
    Halt,
    Halted,
    Ready,
    Returned,
    Run,
    Told,
    decode_to_slot,
    packed,
)
from tidegate.worker.surroundings import Surroundings
from tidegate.worker.title import set_title

_PR_SET_PDEATHSIG = 1
PROGRESS_SECONDS = 0.25
LOG_PATIENCE_SECONDS = 0.1
"""How long a log call waits until its line is written: the next statement may end the process."""


class Slot:
    """Runs what the pool process sends.

    Args:
        app: Whose functions.
        end: Our end of the socket pair.
    """

    def __init__(self, app: Application, end: socket.socket) -> None:
        self._app = app
        self._end = end
        self._sending = threading.Lock()
        self._runs: queue.SimpleQueue[tuple[Run, RunControl]] = queue.SimpleQueue()
        self._control: RunControl | None = None
        """Of the present run, from when it was told of: a word to stop may come before its body begins."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._body: asyncio.Task[Any] | None = None
        self._told_at = 0.0
        self._last_told: Progress | None = None
        """Told by the body and not sent yet."""

    def serve(self) -> None:
        """Run bodies until the pool process hangs up; then end the process."""
        threading.Thread(target=self._listen, name="tidegate-slot", daemon=True).start()
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            for hook in self._app.child_start_hooks:
                started = hook()
                if inspect.isawaitable(started):
                    runner.run(_awaited(started))
            # What the import and the start hooks have set; no run adds to it.
            base, surroundings = contextvars.copy_context(), Surroundings()
            self._send(Ready())
            while True:
                run, control = self._runs.get()
                set_title(f"slot: {run.function} {run.task_id}")
                self._send(Began())
                answer = base.copy().run(self._perform, run, control, runner)
                control.is_over = True
                calls = control.calls.made(run.upstream)
                why = control.replacement_reason or _left_behind(run.function, surroundings)
                self._send(msgspec.structs.replace(answer, condemned=why, calls=calls))
                set_title("slot: idle")

    def _perform(self, run: Run, control: RunControl, runner: asyncio.Runner) -> Answer:
        function = self._app.functions.get(run.function)
        if function is None:
            return Failed(failure=_unknown(run.function), rule=-1)
        self._last_told = None
        context = _context(control, run)
        set_present(context)
        try:
            args, kwargs = function.signature.load(run.args)
            args, kwargs = function.signature.with_context(args, kwargs, context)
        except (ArgumentsError, ConfigError) as error:
            return Failed(failure=failure_of_misfit(error), rule=-1)
        except BaseException as error:  # annotations and decoders are the user's code
            return self._judge(function, control, error)
        if control.stop is not None:
            return Halted()
        try:
            value = self._call(function, control, args, kwargs, runner)
        except NotAValue as refused:
            return _asked(control) or Failed(failure=refused.failure(function.spec.name), rule=-1)
        except BaseException as error:  # a body may raise anything, also what is no Exception
            return self._judge(function, control, error)
        finally:
            if self._last_told is not None:
                self._send(Told(self._last_told.done, self._last_told.total, self._last_told.note))
        return _asked(control) or (Halted() if control.stop else None) or _returned(function, value)

    def _call(
        self,
        function: Runnable,
        control: RunControl,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        runner: asyncio.Runner,
    ) -> Any:
        if not function.is_async:
            returned = function.body(*args, **kwargs)
            if is_value(returned):
                return returned

        async def tracked() -> Any:
            self._body = asyncio.current_task()
            try:
                if control.stop is not None:  # before there was a task to cancel
                    raise asyncio.CancelledError
                return await value_of(function.body(*args, **kwargs) if function.is_async else returned)
            finally:
                self._body = None

        return runner.run(tracked(), context=contextvars.copy_context())

    def _judge(self, function: Runnable, control: RunControl, error: BaseException) -> Answer:
        asked = _asked(control)
        if asked is not None:
            return asked
        if control.stop is not None:
            return Halted()
        try:
            return self._classified(function, error)
        except BaseException as fault:  # rules and classifiers are the user's code as well
            return Failed(failure=failure_of(function.spec, fault), rule=-1)

    def _classified(self, function: Runnable, error: BaseException) -> Failed:
        if isinstance(error, TaskStopped | RetryRequested):
            error = RuntimeError(f"{type(error).__name__} was raised by hand")
        from tidegate.policy.classify import classify  # most bodies succeed: not at every start

        spec = function.spec
        judged = classify(
            error,
            rules=spec.rules,
            now=time.time(),
            classifiers=self._app.classifiers,
            provider=spec.provider,
        )
        place = -1 if judged.rule is None else spec.rules.index(judged.rule)
        return Failed(failure=judged.failure, rule=place)

    def _tell(self, told: Progress) -> None:
        """Send progress, at most a few times a second; the last one is sent at the end."""
        self._last_told, now = told, time.monotonic()
        if now - self._told_at >= PROGRESS_SECONDS:
            self._told_at, self._last_told = now, None
            self._send(Told(told.done, told.total, told.note))

    def _emit(self, data: bytes) -> bool:
        """Send a chunk; where the store cannot keep up, the socket makes us wait."""
        if data:
            self._send(Emitted(data))
        return True

    def _send(self, frame: Any) -> None:
        with self._sending:
            try:
                self._end.sendall(packed(frame))
            except OSError:
                os._exit(1)  # nobody is there to hear it

    def _listen(self) -> None:
        """Take in frames; runs in a thread of its own, so that a busy body can be asked to stop."""
        read = _reader(self._end)
        while (data := read()) is not None:
            frame = decode_to_slot(data)
            if isinstance(frame, Run):
                self._control = self._control_of(frame)
                self._runs.put((frame, self._control))
            else:
                self._halt(frame)
        os._exit(0)

    def _control_of(self, run: Run) -> RunControl:
        control = RunControl(
            scratch_root=Path(run.scratch_root),
            scratch_name=f"{run.task_id}-{run.run}",
            clock=time.monotonic,
            ends_at=float("inf") if run.ends_at is None else run.ends_at,
        )
        control.on_progress = self._tell
        control.on_emit = self._emit
        return control

    def _halt(self, frame: Halt) -> None:
        control, body, loop = self._control, self._body, self._loop
        if control is None:
            return
        control.stop = Stop(frame.why)
        if body is not None and loop is not None:
            loop.call_soon_threadsafe(body.cancel)


def main(application: str, fd: int, parent: int) -> None:
    """Serve until the pool process hangs up."""
    outlive_the_group()
    _die_with(parent)
    set_up_logging(application, patience=LOG_PATIENCE_SECONDS)
    set_title("slot: importing")
    app = load_application(application)
    application_loaded(app.functions)
    Slot(app, socket.socket(fileno=fd)).serve()


def _die_with(parent: int) -> None:
    """Be killed by the kernel when the pool process dies, should our own code be stuck by then (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it died before we could ask


def _context(control: RunControl, run: Run) -> Context:
    return Context(
        control,
        task_id=run.task_id,
        run=run.run,
        attempt=run.attempt,
        max_attempts=run.max_attempts,
        queue=run.queue,
        priority=Priority(run.priority),
        upstream=run.upstream,
        is_probe=run.is_probe,
        function=run.function,
        tenant=run.tenant,
        labels=run.labels,
        last_failure=run.last_failure,
    )


def _asked(control: RunControl) -> AskedAgain | None:
    request = control.retry
    if request is None:
        return None
    return AskedAgain(after_seconds=request.after_seconds, reason=request.reason, charge=request.charge)


def _returned(function: Runnable, value: Any) -> Returned:
    return Returned(data=encoded(function.spec.name, function.signature, value))


def _left_behind(function: str, surroundings: Surroundings) -> str:
    """Put back what a body changed of this process; return why the process must run nothing more, if so."""
    restored, lost = surroundings.restore()
    report.process_was_changed(function, restored, lost)
    return f"its task changed {', '.join(lost)}" if lost else ""


def _unknown(function: str) -> Failure:
    """Return the failure of a task whose function the code of this child process does not declare."""
    return Failure(
        Verdict.UNKNOWN,
        Reason.UNKNOWN,
        message=f"{function} is not declared where the child process imported the application",
        error_class="tidegate.errors.ConfigError",
        evidence="function not declared",
    )


def _reader(end: socket.socket) -> Callable[[], bytes | None]:
    """Return a function that reads one frame's body, None at the end of the conversation."""
    stream = end.makefile("rb")

    def read() -> bytes | None:
        try:
            header = stream.read(HEADER_BYTES)
            if len(header) < HEADER_BYTES:
                return None
            body = stream.read(int.from_bytes(header, "big"))
        except OSError:
            return None
        return body

    return read


async def _awaited(started: Any) -> None:
    await started


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
