"""A child process: imports the application and runs one function at a time, in its main thread.

A child process does not use leases or the store. It ends at once when its pool process is gone.
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

from tidegate.context import (
    Context,
    Progress,
    RetryRequested,
    RunControl,
    StopReason,
    TaskStopped,
    TaskSuspended,
    set_child_context,
    set_current_context,
)
from tidegate.context.trace import continue_trace
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.provider_job import CANCELLING_LABEL
from tidegate.domain.spec import Priority
from tidegate.domain.trace import TraceContext
from tidegate.errors import ArgumentsError, ConfigError
from tidegate.internals import core_of
from tidegate.worker import report
from tidegate.worker.application import Application, Runnable, load_application
from tidegate.worker.children.child_steps import ChildSteps, OlderPoolProcess
from tidegate.worker.children.messages import (
    HEADER_BYTES,
    ChildReady,
    ChunkEmitted,
    FunctionFailed,
    FunctionReturned,
    FunctionStarted,
    FunctionStopped,
    FunctionSuspended,
    ProgressReported,
    RetryWanted,
    RunReply,
    RunTask,
    StopTask,
    decode_to_child,
    encode_message,
)
from tidegate.worker.engine.fallback_outcome import undecidable_failure
from tidegate.worker.engine.outcome_decider import FUNCTION_NOT_DECLARED, bad_arguments_failure
from tidegate.worker.engine.return_value import UnusableResult, await_value, encode_return_value, is_result
from tidegate.worker.engine.steps_in_flight import wait_for_steps, wait_for_steps_sync
from tidegate.worker.logs import register_application_loggers, set_up_logging
from tidegate.worker.process_snapshot import ProcessSnapshot
from tidegate.worker.signals import ignore_group_signals
from tidegate.worker.title import set_title

_PR_SET_PDEATHSIG = 1
PROGRESS_SECONDS = 0.25
LOG_WAIT_SECONDS = 0.1
"""How long a log call waits until its line is written: the next statement may end the process."""


class ChildRuntime:
    """Runs the tasks that the pool process sends.

    Args:
        app: The application.
        sock: Our end of the socket pair.
    """

    def __init__(self, app: Application, sock: socket.socket) -> None:
        self._app = app
        self._sock = sock
        self._send_lock = threading.Lock()
        self._runs: queue.SimpleQueue[tuple[RunTask, RunControl]] = queue.SimpleQueue()
        self._control: RunControl | None = None
        """The control of the current run, set on receipt: a stop request may come before the function
        starts."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._async_task: asyncio.Task[Any] | None = None
        self._steps = ChildSteps(self._send)
        self._progress_sent_at = 0.0
        self._unsent_progress: Progress | None = None
        """The progress that the function reported and that is not sent yet."""

    def serve(self) -> None:
        """Run tasks until the pool process closes the connection; then end the process."""
        threading.Thread(target=self._receive_loop, name="tidegate-child", daemon=True).start()
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            for hook in self._app.child_start_hooks:
                started = hook()
                if inspect.isawaitable(started):
                    runner.run(_await_hook(started))
            self._app.observe()
            # The process state after the import and the start hooks; each run starts with it.
            base, snapshot = contextvars.copy_context(), ProcessSnapshot()
            self._send(ChildReady())
            while True:
                run, control = self._runs.get()
                set_title(f"child: {run.function} {run.task_id}")
                self._send(FunctionStarted())
                reply = base.copy().run(self._execute, run, control, runner)
                control.is_over = True
                set_child_context(None)
                calls = control.calls.summary(run.upstream)
                reason = control.replacement_reason or _restore_process(run.function, snapshot)
                self._send(msgspec.structs.replace(reply, unhealthy_reason=reason, calls=calls))
                self._app.events.exporters.flush_soon()  # only a kill ends this process
                set_title("child: idle")

    def _execute(self, run: RunTask, control: RunControl, runner: asyncio.Runner) -> RunReply:
        function = self._app.functions.get(run.function)
        if function is None:
            return FunctionFailed(failure=_undeclared_function_failure(run.function), rule=-1)
        self._unsent_progress = None
        control.records_calls = function.spec.record_calls
        context = _make_context(control, run)
        set_current_context(lambda: context)
        set_child_context(context)
        if (span := TraceContext.parse(run.traceparent, run.tracestate)) is not None:
            continue_trace(span)
        try:
            args, kwargs = function.signature.load(run.args)
            args, kwargs = function.signature.with_context(args, kwargs, context)
        except (ArgumentsError, ConfigError) as error:
            return FunctionFailed(failure=bad_arguments_failure(error), rule=-1)
        except BaseException as error:  # annotations and decoders are user code
            return self._failure_reply(function, control, error)
        if control.stop is not None:
            return FunctionStopped()
        try:
            value = self._call(function, control, args, kwargs, runner)
        except UnusableResult as refused:
            return _requested(control) or FunctionFailed(failure=refused.failure(function.spec.name), rule=-1)
        except BaseException as error:  # a function may raise anything, not only an Exception
            return self._failure_reply(function, control, error)
        finally:
            if self._unsent_progress is not None:
                self._send(
                    ProgressReported(
                        self._unsent_progress.done, self._unsent_progress.total, self._unsent_progress.note
                    )
                )
        if control.steps is not None:
            control.steps.report_unmet()
        return (
            _requested(control)
            or (FunctionStopped() if control.stop else None)
            or _returned_message(function, value)
        )

    def _call(
        self,
        function: Runnable,
        control: RunControl,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        runner: asyncio.Runner,
    ) -> Any:
        if not function.is_async:
            try:
                returned = function.function(*args, **kwargs)
            except BaseException:
                wait_for_steps_sync(control)
                raise
            if is_result(returned):
                return returned

        async def tracked() -> Any:
            self._async_task = asyncio.current_task()
            try:
                if control.stop is not None:  # the stop came before there was a task to cancel
                    raise asyncio.CancelledError
                return await await_value(
                    function.function(*args, **kwargs) if function.is_async else returned
                )
            except BaseException:
                await wait_for_steps(control)
                raise
            finally:
                self._async_task = None

        return runner.run(tracked(), context=contextvars.copy_context())

    def _failure_reply(self, function: Runnable, control: RunControl, error: BaseException) -> RunReply:
        wanted = _requested(control)
        if wanted is not None:
            return wanted
        if control.stop is not None:
            return FunctionStopped()
        try:
            return self._classified(function, error)
        except BaseException as fault:  # rules and classifiers are user code too
            return FunctionFailed(failure=undecidable_failure(function.spec, fault), rule=-1)

    def _classified(self, function: Runnable, error: BaseException) -> FunctionFailed:
        if isinstance(error, TaskStopped | TaskSuspended | RetryRequested):
            error = RuntimeError(f"{type(error).__name__} was raised by hand")
        from tidegate.policy.classify import classify  # imported late: most functions succeed

        spec = function.spec
        classified = classify(
            error,
            rules=spec.rules,
            now=time.time(),
            classifiers=self._app.classifiers,
            provider=spec.provider,
        )
        position = -1 if classified.rule is None else spec.rules.index(classified.rule)
        return FunctionFailed(failure=classified.failure, rule=position)

    def _report_progress(self, progress: Progress) -> None:
        """Send progress, at most a few times a second. The last report is sent when the function ends."""
        self._unsent_progress, now = progress, time.monotonic()
        if now - self._progress_sent_at >= PROGRESS_SECONDS:
            self._progress_sent_at, self._unsent_progress = now, None
            self._send(ProgressReported(progress.done, progress.total, progress.note))

    def _emit(self, data: bytes) -> bool:
        """Send a chunk. If the store cannot keep up, the full socket makes the function wait."""
        if data:
            self._send(ChunkEmitted(data))
        return True

    def _send(self, message: Any) -> None:
        with self._send_lock:
            try:
                self._sock.sendall(encode_message(message))
            except OSError:
                os._exit(1)  # the pool process is gone

    def _receive_loop(self) -> None:
        """Receive messages, in a separate thread, so that a busy function can be asked to stop."""
        read = _message_reader(self._sock)
        while (data := read()) is not None:
            message = decode_to_child(data)
            if isinstance(message, RunTask):
                self._control = self._make_control(message)
                self._runs.put((message, self._control))
            elif isinstance(message, StopTask):
                self._stop(message)
            else:
                self._steps.take(message)
        os._exit(0)

    def _make_control(self, run: RunTask) -> RunControl:
        control = RunControl(
            scratch_root=Path(run.scratch_root),
            scratch_name=f"{run.task_id}-{run.run}",
            clock=time.monotonic,
            ends_at=float("inf") if run.ends_at is None else run.ends_at,
            store_offset=run.store_offset,
            is_cancelling=CANCELLING_LABEL in run.labels,
        )
        control.on_progress = self._report_progress
        control.on_emit = self._emit
        control.events = self._app.events
        control.step_port = self._steps if run.records_steps else OlderPoolProcess()
        return control

    def _stop(self, message: StopTask) -> None:
        control, async_task, loop = self._control, self._async_task, self._loop
        if control is None:
            return
        control.stop = StopReason(message.why)
        if async_task is not None and loop is not None:
            loop.call_soon_threadsafe(async_task.cancel)


def main(application: str, fd: int, parent: int, umask: int | None) -> None:
    """Run tasks until the pool process closes the connection."""
    if umask is not None:
        os.umask(umask)
    ignore_group_signals()
    _die_with_parent(parent)
    set_up_logging(application, patience=LOG_WAIT_SECONDS)
    set_title("child: importing")
    app: Application = core_of(load_application(application))
    register_application_loggers(app.functions)
    ChildRuntime(app, socket.socket(fileno=fd)).serve()


def _die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the pool process dies, even if our code is stuck (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent died before the call above


def _make_context(control: RunControl, run: RunTask) -> Context:
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


def _requested(control: RunControl) -> RetryWanted | FunctionSuspended | None:
    """Return the reply if the function asked for another run or suspended itself."""
    if (retry := control.retry) is not None:
        return RetryWanted(after_seconds=retry.after_seconds, reason=retry.reason, charge=retry.charge)
    if (suspension := control.suspension) is not None:
        return FunctionSuspended(
            delay_seconds=suspension.delay_seconds,
            why=suspension.why,
            wait_keys=suspension.wait_keys,
            child_ids=suspension.child_ids,
            cache_waits=suspension.cache_waits,
        )
    return None


def _returned_message(function: Runnable, value: Any) -> FunctionReturned:
    return FunctionReturned(data=encode_return_value(function.spec.name, function.signature, value))


def _restore_process(function: str, snapshot: ProcessSnapshot) -> str:
    """Undo changes of the process state.

    Return why the process must not run another task; empty if it may.
    """
    restored, lost = snapshot.restore()
    report.process_state_changed(function, restored, lost)
    return f"its task changed {', '.join(lost)}" if lost else ""


def _undeclared_function_failure(function: str) -> Failure:
    """Return the failure of a task whose function the code of this child process does not declare."""
    return Failure(
        Verdict.UNKNOWN,
        Reason.UNKNOWN,
        message=f"{function} is not declared where the child process imported the application",
        error_class="tidegate.errors.ConfigError",
        evidence=FUNCTION_NOT_DECLARED,
    )


def _message_reader(sock: socket.socket) -> Callable[[], bytes | None]:
    """Return a function that reads the payload of one message; None at the end of the stream."""
    stream = sock.makefile("rb")

    def read() -> bytes | None:
        try:
            header = stream.read(HEADER_BYTES)
            if len(header) < HEADER_BYTES:
                return None
            payload = stream.read(int.from_bytes(header, "big"))
        except OSError:
            return None
        return payload

    return read


async def _await_hook(started: Any) -> None:
    await started


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]) if sys.argv[4] else None)
