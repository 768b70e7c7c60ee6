"""Named events, which the engine emits and to which logs, metrics and traces subscribe.

Subscribe with `app.on_event(RunFinished)`. A subscriber is called in the process, thread and `contextvars`
context in which the event happens, so it must return quickly.
"""

from tidegate.events.bus import EventBus
from tidegate.events.values import (
    CallFinished,
    CallStarted,
    Event,
    GateOpened,
    GateParked,
    RunFinished,
    RunOutcome,
    RunStarted,
    StepFinished,
    StepOutcome,
    StepStarted,
    TaskDied,
    TaskEnqueued,
    WorkerStarted,
    WorkerStopped,
)

EVENTS: tuple[type[Event], ...] = (
    TaskEnqueued,
    RunStarted,
    RunFinished,
    TaskDied,
    StepStarted,
    StepFinished,
    CallStarted,
    CallFinished,
    GateParked,
    GateOpened,
    WorkerStarted,
    WorkerStopped,
)
"""The types that `app.on_event(…)` takes."""

__all__ = [
    "EVENTS",
    "CallFinished",
    "CallStarted",
    "Event",
    "EventBus",
    "GateOpened",
    "GateParked",
    "RunFinished",
    "RunOutcome",
    "RunStarted",
    "StepFinished",
    "StepOutcome",
    "StepStarted",
    "TaskDied",
    "TaskEnqueued",
    "WorkerStarted",
    "WorkerStopped",
]
