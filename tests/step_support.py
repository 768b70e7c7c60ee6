"""A port for steps without a worker, for tests of what a context does with them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from tidegate import Context
from tidegate.context import RunControl
from tidegate.domain.step import OnDoubt
from tidegate.steps import StepPort
from tidegate.store.event_rows import EventWait, WaitAnswer, WaitStatus
from tidegate.store.step_rows import (
    BeginStatus,
    BegunStep,
    EndedStep,
    EndStatus,
    StepBegin,
    StepEnd,
    StepRow,
)


class RecordingPort:
    """A port that answers as the store does for one run, and keeps what it was asked."""

    def __init__(self) -> None:
        self.begins: list[StepBegin] = []
        self.ends: list[StepEnd] = []
        self.answers: dict[str, BegunStep] = {}
        """What a begin of a step of this name answers instead of `begun`."""

    def begin(self, begin: StepBegin) -> Future[BegunStep]:
        self.begins.append(begin)
        failed = [end for end in self.ends if end.key == begin.key and end.status is EndStatus.IN_DOUBT]
        if failed and begin.on_doubt is not OnDoubt.REPEAT:
            return _now(BegunStep(BeginStatus.IN_DOUBT))
        return _now(self.answers.get(begin.name, BegunStep(BeginStatus.BEGUN)))

    def end(self, end: StepEnd) -> Future[EndedStep]:
        self.ends.append(end)
        return _now(EndedStep(end.status))

    def read(self, task_id: str) -> Future[list[StepRow]]:
        return _now([])

    def wait_for_event(self, wait: EventWait) -> Future[WaitAnswer]:
        return _now(WaitAnswer(WaitStatus.TIMED_OUT))


def _now(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def context_with(port: StepPort) -> Context:
    """Return the context of a run whose steps go to this port."""
    context = Context.detached()
    control: RunControl = context._control
    control.step_port = port
    return context
