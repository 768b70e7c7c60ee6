"""Controls one pool process from the supervisor: start it, send it messages, wait for its end."""

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
from collections.abc import Callable

from tidegate.domain.outcome import Fence
from tidegate.store.controls import WantedSettings
from tidegate.worker import scratch
from tidegate.worker.children import process_tree
from tidegate.worker.control import ControlConnection, Message
from tidegate.worker.engine.current_task import NO_CULPRIT, CurrentTaskSlot
from tidegate.worker.engine.pool_main import PoolProcessOptions, options_to_json
from tidegate.worker.settings import Pool, Timings

log = logging.getLogger("tidegate.supervisor")

OVERDUE = "did not end within its grace time"
"""Why a process that was asked to end is killed. No task is to blame unless one blocks the event loop."""


class PoolProcess:
    """One pool process, from its start to its end. Each process has its own `PoolProcess` and worker id.

    Args:
        application: `module:attribute` that the process imports.
        pool: The pool that it serves.
        timings: The timings that the process uses.
        database_url: Overrides the application's own.
    """

    def __init__(self, *, application: str, pool: Pool, timings: Timings, database_url: str | None) -> None:
        self.worker_id = str(uuid.uuid4())
        self.pool = pool
        self._timings = timings
        self._application = application
        self._database_url = database_url
        self._process: asyncio.subprocess.Process | None = None
        self._connection: ControlConnection | None = None
        self._loop = asyncio.get_running_loop()
        self._ready_at: float | None = None
        self._answered_at = time.monotonic()
        self._pinged_at: float | None = None
        self._current_task = CurrentTaskSlot()
        self.is_registered = False
        """Whether the store has the row of this process. Until then there is no lease to renew."""
        self.good_until = 0.0
        """Until when the lease holds, by the monotonic clock."""
        self.busy = 0
        """How many tasks the process runs, by its last report."""
        self.on_ready: Callable[[PoolProcess], None] = lambda process: None
        """Called in the loop when the process is ready."""
        self.drain_reason = ""
        """Why the process takes no more tasks; empty if it takes tasks."""
        self.is_over_memory = False
        """Whether the process drains because of its memory."""
        self.problem = ""
        """Why some tasks cannot run in this process, by its last report; empty if all can."""
        self.children_killed = 0
        """How many child processes the process had to kill because their tasks did not stop."""
        self.kill_reason = ""
        """Why the supervisor killed the process; empty if it did not."""
        self.wanted = WantedSettings()
        """The requested settings that were sent last."""
        self.slots = pool.slots
        """How many tasks the process may run at once, by its last report."""
        self.code = ""
        """The version of the code that the process has loaded; empty until it is ready."""
        self._sent_settings = 0
        self._confirmed_settings = 0
        self.culprit: Fence | None = None
        """After the end of the process: the run that was on its event loop; `NO_CULPRIT` if it ended on
        request."""

    @property
    def pid(self) -> int:
        """The process id of this process; 0 before the start."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_ready(self) -> bool:
        """Whether the process has imported the application and started its engine."""
        return self._ready_at is not None

    def stalled_seconds(self) -> float:
        """Return for how many seconds the process has not answered; 0 while it is still importing."""
        if self._ready_at is None or self._pinged_at is None or self._answered_at >= self._pinged_at:
            return 0.0
        return time.monotonic() - self._pinged_at

    def discount(self, seconds: float) -> None:
        """Do not count these seconds as time without an answer."""
        if self._pinged_at is not None and self._answered_at < self._pinged_at:
            self._pinged_at = min(time.monotonic(), self._pinged_at + seconds)

    async def start(self) -> None:
        """Start the interpreter in a new session, with a socket pair for control messages."""
        ours, theirs = socket.socketpair()
        options = PoolProcessOptions(
            application=self._application,
            worker_id=self.worker_id,
            control_fd=theirs.fileno(),
            current_task_fd=self._current_task.fd,
            pool=self.pool,
            timings=self._timings,
            database_url=self._database_url,
        )
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tidegate.worker.engine.pool_main",
                options_to_json(options),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), self._current_task.fd],
                env=os.environ | {process_tree.MARK: self.worker_id},
                start_new_session=True,
            )
        self._connection = ControlConnection(ours, self._on_message, lambda: None)
        self._connection.start()

    def extend_lease(self, good_until: float) -> None:
        """Send the process the moment until which its lease holds, by the monotonic clock. It must answer."""
        self.good_until = good_until
        self._request(beat=good_until)

    def set(self, wanted: WantedSettings) -> None:
        """Send the process the requested settings. The process confirms once they are applied."""
        self.wanted = wanted
        self._sent_settings += 1
        self.slots = wanted.concurrency or self.pool.slots
        concurrency = wanted.concurrency or self.pool.concurrency
        self._send(set=self._sent_settings, concurrency=concurrency, quiet=wanted.is_quiet)

    @property
    def has_confirmed(self) -> bool:
        """Whether the process has applied the settings last sent; true if none were sent yet."""
        return self._confirmed_settings == self._sent_settings

    def ping(self) -> None:
        """Send a ping, which it must answer."""
        self._request(ping=True)

    def drain(self, grace: float, why: str) -> None:
        """Ask the process to claim nothing more and to end within `grace` seconds.

        The first reason counts.
        """
        self._send(drain=grace)
        if not self.drain_reason:
            self.drain_reason = why
            log.info("pool %s: process %d takes no more tasks: %s", self.pool.name, self.pid, why)

    def release(self) -> None:
        """Ask the process to release its tasks and end now."""
        self.drain_reason = self.drain_reason or "asked to release its tasks"
        self._send(release=True)

    def send_signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                self._process.send_signal(number)

    def notify_lease_lost(self) -> None:
        """Notify the process that its lease is lost."""
        self._send(lost=True)

    def kill(self, why: str) -> None:
        """Kill the process and every process of its session."""
        self.kill_reason = self.kill_reason or why
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def wait_ended(self) -> int:
        """Wait until the process ends, kill those it left behind, and return its exit code (-n: signal n)."""
        assert self._process is not None
        code = await self._process.wait()
        was_asked_for = self.kill_reason == OVERDUE if self.kill_reason else code == 0 and self.drain_reason
        self.culprit = self._current_task.read() or (NO_CULPRIT if was_asked_for else None)
        self._current_task.close()
        if code != 0 or not self.drain_reason:
            process_tree.kill_tree(self._process.pid, self.worker_id)
        if self._connection is not None:
            self._connection.close()
        # in a thread, because removal may block the loop
        await asyncio.to_thread(scratch.remove, self.worker_id)
        return code

    def describe_end(self, code: int) -> str:
        """Return why the process ended, as text for people."""
        if self.kill_reason:
            return self.kill_reason
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"killed by signal {-code} ({signal.Signals(-code).name})"
        return f"exit code {code}"

    def _request(self, **message: object) -> None:
        if self._pinged_at is None or self._answered_at >= self._pinged_at:
            self._pinged_at = time.monotonic()
        self._send(**message)

    def _send(self, **message: object) -> None:
        if self._connection is not None:
            self._connection.send(**message)

    def _on_message(self, message: Message) -> None:
        """Apply one message; runs in the control thread."""
        self._answered_at = time.monotonic()
        self.busy = message.get("busy", self.busy)
        self.slots = message.get("slots", self.slots)
        self.problem = message.get("problem", self.problem)
        self.code = message.get("code", self.code)
        self._confirmed_settings = message.get("was_set", self._confirmed_settings)
        self.children_killed = message.get("killed", self.children_killed)
        self.drain_reason = self.drain_reason or message.get("leaving", "")
        if "ready" in message:
            self._ready_at = self._answered_at
            with contextlib.suppress(RuntimeError):  # the event loop has ended, and so has the worker
                self._loop.call_soon_threadsafe(self._notify_ready)

    def _notify_ready(self) -> None:
        self.on_ready(self)
