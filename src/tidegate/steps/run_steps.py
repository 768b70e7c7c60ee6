"""The steps of one run: their identities, and the results that earlier runs have recorded."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

from tidegate.domain.outcome import Fence
from tidegate.domain.step import step_digest, step_key
from tidegate.events import EventBus, StepFinished, StepOutcome, StepStarted
from tidegate.steps.port import StepPort
from tidegate.steps.waits import RunWaits
from tidegate.store.step_rows import StepRow

_log = logging.getLogger("tidegate.steps")

MOST_THREADS = 32
"""The most plain functions that the steps of one run call at once: each has a thread."""
_NAMES_SHOWN = 5


class RunSteps:
    """The records of a run's steps, as the run knows them. May be used from several threads.

    Args:
        fence: The run.
        function: The task function, for log records.
        port: Where steps are recorded.
        upstream: The upstream of the task; empty if it has none. Until a step has made a call, it is taken to
            call this one.
        tenant: The tenant of the task.
        events: Where the events of steps go; None: they have none.
    """

    def __init__(
        self,
        fence: Fence,
        function: str,
        port: StepPort,
        upstream: str = "",
        tenant: str = "",
        events: EventBus | None = None,
    ) -> None:
        self.fence = fence
        self.tenant = tenant
        self._events = events
        self.upstream = upstream
        self.port = port
        self.waits = RunWaits()
        self.function = function
        self.is_cancelling = False
        """Whether the run only cancels provider jobs: it begins no step that is not recorded."""
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._released: dict[str, list[int]] = {}
        """Numbers of steps without a result, by digest; each list is a heap."""
        self._thread_slots: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
        self._attempts: Counter[str] = Counter()
        self._under_way: dict[str, Future[None]] = {}
        """Steps that are done now, by key."""
        self._begun_names: Counter[str] = Counter()
        self._loading: Future[list[StepRow]] | None = None
        self._recorded: dict[str, StepRow] | None = None if fence.run > 1 else {}
        """The records by key; None until they are read. A task's first run has none."""
        self._unmet: set[str] = set()
        """Keys of recorded steps that this run has not come to."""
        self._passed_over: set[str] = set()
        """Keys of steps that this run does not need to come to."""
        self._has_warned = False

    def load(self) -> Future[list[StepRow]] | None:
        """Return the read of the recorded steps, started once; None if they are known."""
        if self._recorded is not None:
            return None
        with self._lock:
            if self._loading is None:
                self._loading = self.port.read(self.fence.task_id)
            return self._loading

    def take(self, rows: list[StepRow]) -> None:
        """Take the recorded steps, once."""
        with self._lock:
            if self._recorded is None:
                self._recorded = {row.key: row for row in rows}
                self._unmet = self._recorded.keys() - self._passed_over

    def emit_started(self, name: str, key: str) -> None:
        """Emit that the function of a step is called now."""
        if self._events is not None and self._events.wants(StepStarted):
            self._events.emit(StepStarted(**self._facts(name, key)))

    def emit_finished(self, name: str, key: str, outcome: StepOutcome, **how: Any) -> None:
        """Emit that a step has ended.

        Args:
            name: The step's name.
            key: Its identity.
            outcome: How it ended.
            how: The other fields of the event.
        """
        if self._events is not None and self._events.wants(StepFinished):
            how = {"seconds": 0.0} | how
            self._events.emit(StepFinished(**self._facts(name, key), outcome=outcome, **how))

    def _facts(self, name: str, key: str) -> dict[str, Any]:
        return {
            "task_id": self.fence.task_id,
            "run": self.fence.run,
            "function": self.function,
            "tenant": self.tenant,
            "step": name,
            "key": key,
        }

    def identify(self, name: str, fingerprint: bytes, *, has_key: bool = False) -> str:
        """Return the key of the next step with this name and fingerprint.

        Args:
            name: The step's name.
            fingerprint: Its arguments, or its explicit key.
            has_key: Whether the step has an explicit key. A step with a key is the same step each time.
        """
        digest = step_digest(name, fingerprint)
        if has_key:
            return step_key(digest, 1)
        with self._lock:
            if released := self._released.get(digest):
                return step_key(digest, heappop(released))
            self._counts[digest] += 1
            return step_key(digest, self._counts[digest])

    def release(self, key: str) -> None:
        """Give the number of a step that has no result to the next equal step, which repeats it.

        Otherwise a later run would do the step again, and then come to the recorded result of the repeat.
        """
        digest, _, position = key.partition(":")
        with self._lock:
            heappush(self._released.setdefault(digest, []), int(position))

    def thread_slots(self) -> asyncio.Semaphore:
        """Return what limits the plain functions of steps that this run calls at once in this event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            return self._thread_slots.setdefault(loop, asyncio.Semaphore(MOST_THREADS))

    def pass_over(self, key: str) -> None:
        """Note that the run does not need to come to a step, because what follows the step is recorded."""
        with self._lock:
            self._passed_over.add(key)
            self._unmet.discard(key)

    def recorded(self, key: str, name: str) -> StepRow | None:
        """Return what is recorded of a step that the run has come to; None if nothing is.

        The step's result is not kept afterwards, so that a run holds only results that it has not come to
        yet.
        """
        with self._lock:
            assert self._recorded is not None
            row = self._recorded.get(key)
            if row is not None and row.data is not None:
                self._recorded[key] = replace(row, data=None)
            self._unmet.discard(key)
            self._begun_names[name] += 1
            warn = row is None and self._is_all_new(name)
        if warn:
            _log.warning(
                "%s %s: run %d does step %r, but none of the steps of that name that earlier runs recorded, "
                "because their arguments differ. Pass the step nothing that changes from run to run, such as "
                "the time or a new id, or give it a key=",
                self.function,
                self.fence.task_id,
                self.fence.run,
                name,
            )
        return row

    def enter(self, key: str) -> Future[None] | None:
        """Begin to do a step; if it is done at this moment elsewhere in the run, return what ends with it."""
        with self._lock:
            under_way = self._under_way.get(key)
            if under_way is None:
                self._under_way[key] = Future()
            return under_way

    def leave(self, key: str) -> None:
        """End a step that `enter` began."""
        with self._lock:
            ended = self._under_way.pop(key)
        ended.set_result(None)

    def next_attempt(self, key: str) -> int:
        """Return how often this run has now begun the step."""
        with self._lock:
            self._attempts[key] += 1
            return self._attempts[key]

    def report_unmet(self) -> None:
        """Log the recorded steps that the run has not come to. Call this when the function has returned."""
        with self._lock:
            rows = self._recorded or {}
            names = Counter(rows[key].name for key in self._unmet)
        if names:
            most = sorted(names.items(), key=lambda named: (-named[1], named[0]))[:_NAMES_SHOWN]
            shown = ", ".join(f"{name} ({count})" for name, count in most)
            _log.warning(
                "%s %s: run %d did not come to %d steps that earlier runs recorded: %s. The code, or what it "
                "passes to its steps, has changed since",
                self.function,
                self.fence.task_id,
                self.fence.run,
                names.total(),
                shown,
            )

    def _is_all_new(self, name: str) -> bool:
        """Whether the run has come to as many steps of a name as are recorded, and to none of those."""
        rows = self._recorded or {}
        if self._has_warned or not rows:
            return False
        keys = {key for key, row in rows.items() if row.name == name}
        if not keys or not keys <= self._unmet or self._begun_names[name] < len(keys):
            return False
        self._has_warned = True
        return True
