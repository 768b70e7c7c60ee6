"""The worker's side of a run.

Through this object the worker asks the function to stop, and reads what the function reported.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.domain.calls import CallLog

if TYPE_CHECKING:  # imported by the first step
    from tidegate.events import EventBus
    from tidegate.steps import RunSteps, StepPort


class StopReason(StrEnum):
    """Why the worker asks a function to stop."""

    CANCEL = "cancelled on request"
    TIMEOUT = "timeout"
    DEADLINE = "deadline"
    """The total timeout or the deadline of the whole task."""
    RELEASE = "released by shutdown"
    LOST = "lease lost"


@dataclass(frozen=True, slots=True)
class RetryRequest:
    """The retry that a function requested with `ctx.retry`."""

    after_seconds: float | None
    reason: str
    charge: bool


@dataclass(frozen=True, slots=True)
class SuspensionRequest:
    """The wait for which a function suspended itself."""

    delay_seconds: float | None
    """None: until something other than the time wakes the task."""
    why: str
    wait_keys: tuple[str, ...] = ()
    """Its waits for events."""
    child_ids: tuple[str, ...] = ()
    """The tasks that the run's task waits for."""
    cache_waits: tuple[tuple[str, float], ...] = ()
    """The awaited results of other tasks: digests, each with the greatest age in seconds."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress that a function reported."""

    done: float
    total: float | None
    note: str


def _ignore_progress(_: Progress) -> None:
    return None


def _ignore_chunk(_: bytes) -> bool:
    return True


@dataclass(slots=True)
class RunControl:
    """Shared by the worker and one run of a function. One side writes each field, the other reads it."""

    scratch_root: Path
    scratch_name: str
    clock: Callable[[], float]
    """Monotonic seconds."""
    started_at: float = 0.0
    """When the worker started this run, by `clock`."""
    ends_at: float = float("inf")
    """When a time limit will stop this run, by `clock`."""
    is_over: bool = False
    """Whether the run has ended. Code that the run left running must make no further call."""
    is_ending: bool = False
    """Whether the function has failed, and only its steps in flight go on. No other step may begin."""
    retry: RetryRequest | None = None
    """Set once the function called `ctx.retry`. This is the outcome, even if the function continues."""
    suspension: SuspensionRequest | None = None
    """Set once the function suspended itself. This is the outcome, even if the function continues."""
    store_offset: float | None = None
    """What to add to `clock` to get the time of the store; None in a plain call. It cannot be suspended."""
    on_progress: Callable[[Progress], None] = field(default=_ignore_progress)
    """Called with each progress that the function reports."""
    on_emit: Callable[[bytes], bool] = field(default=_ignore_chunk)
    """Called with each encoded chunk; returns whether there is room. An empty chunk stores nothing."""
    scratch_used: bool = False
    calls: CallLog = field(default_factory=CallLog)
    """Written by the transports that the function uses."""
    step_port: StepPort | None = None
    """Records the steps of this run; None in a plain call, whose steps are not kept."""
    steps: RunSteps | None = None
    """The steps of this run; None until its first step."""
    events: EventBus | None = None
    """Where the events of its steps go; None in a plain call."""
    records_calls: bool | None = None
    """Whether the calls of its function are recorded; None: as their upstream says."""
    replacement_reason: str = ""
    """Why this process must be replaced after the run; empty if the task did not ask for it."""
    is_stop_raised: bool = False
    """Whether the stop has already cut off a blocking call. Later calls of the function are not cut off."""
    is_cancelling: bool = False
    """Whether this run only cancels the provider jobs of its task, which ends with it."""
    _stop: StopReason | None = field(default=None, init=False)
    _aborts: dict[object, Callable[[], None]] = field(default_factory=dict, init=False)

    @property
    def stop(self) -> StopReason | None:
        """Why the function is asked to stop; None if it is not. Setting it cuts off the calls that block."""
        return self._stop

    @stop.setter
    def stop(self, reason: StopReason | None) -> None:
        self._stop = reason
        for abort in tuple(self._aborts.values()):
            abort()

    @contextmanager
    def abort_on_stop(self, abort: Callable[[], None]) -> Iterator[None]:
        """Call `abort`, in any thread, if the function is asked to stop within the block.

        Only once. A function that was cut off may make further calls, for example to clean up.
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
