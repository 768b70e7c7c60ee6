"""What encloses each enqueue of an application: its tasks join the present trace, and an event names each."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from tidegate.context.trace import current_trace
from tidegate.domain.trace import TRACEPARENT_LABEL, TraceContext
from tidegate.events import EventBus, TaskEnqueued
from tidegate.store.rows import EnqueueResult, NewTask


class SendSpan(Protocol):
    """The span of one enqueue."""

    @property
    def trace(self) -> TraceContext | None:
        """The span that its tasks continue; None if it is not recorded and has no id."""
        ...

    def end(self, sent: Counter[tuple[str, str]], task_id: str, error: BaseException | None) -> None:
        """End the span.

        Args:
            sent: How many tasks of each queue and function were enqueued.
            task_id: The id of the only task; empty if there are several.
            error: What the enqueue raised; None if it succeeded.
        """
        ...


class SendTracer(Protocol):
    """Starts the spans of enqueues."""

    def start(self, parent: TraceContext | None) -> SendSpan:
        """Start the span of an enqueue, under this span of another process or under the current span."""
        ...


class Sending:
    """One enqueue in progress.

    Args:
        trace: The span that the enqueued tasks continue; None for no trace.
        replaces: Whether tasks that name a trace already join this one, which continues theirs.
        keeps_tasks: Whether the tasks are kept for `TaskEnqueued`.
    """

    def __init__(self, trace: TraceContext | None, *, replaces: bool, keeps_tasks: bool) -> None:
        self._labels = {} if trace is None else trace.labels()
        self._replaces = replaces
        self._keeps_tasks = keeps_tasks
        self.tasks: list[NewTask] = []
        """The tasks so far, without arguments; empty unless they are kept."""
        self.sent: Counter[tuple[str, str]] = Counter()
        """How many tasks of each queue and function there are so far."""

    def traced(self, task: NewTask) -> NewTask:
        """Return a task as it will be stored: with this trace, unless the task names one."""
        self.sent[task.queue, task.function] += 1
        if self._labels and (self._replaces or TRACEPARENT_LABEL not in task.labels):
            task = replace(task, labels={**task.labels, **self._labels})
        if self._keeps_tasks:
            self.tasks.append(replace(task, args=b""))
        return task

    def all_traced(self, tasks: Iterable[NewTask]) -> Iterator[NewTask]:
        """Yield many tasks as they are to be stored."""
        return map(self.traced, tasks)

    def each_traced(
        self, tasks: Iterable[NewTask] | AsyncIterable[NewTask]
    ) -> Iterable[NewTask] | AsyncIterable[NewTask]:
        """Yield many tasks of a sync or async iterable as they are to be stored."""
        if isinstance(tasks, AsyncIterable):
            return (self.traced(task) async for task in tasks)
        return self.all_traced(tasks)


class TaskSender:
    """Encloses the enqueues of one application.

    Args:
        events: Passes events to their subscribers.
    """

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self.tracer: SendTracer | None = None
        """Starts the spans of enqueues; None: they have none."""

    @contextmanager
    def sending(self, only: NewTask | None = None) -> Iterator[Sending]:
        """Enclose one enqueue: its tasks pass through the value that this yields.

        Args:
            only: The only task; None for many.
        """
        keeps_tasks = self._events.wants(TaskEnqueued)
        if self.tracer is None:
            yield Sending(current_trace(), replaces=False, keeps_tasks=keeps_tasks)
            return
        span = self.tracer.start(None if only is None else TraceContext.of_labels(only.labels))
        sending = Sending(span.trace, replaces=only is not None, keeps_tasks=keeps_tasks)
        try:
            yield sending
        except BaseException as error:
            span.end(sending.sent, "", error)
            raise
        span.end(sending.sent, "" if only is None else only.id, None)

    def stored(self, sending: Sending, answers: Sequence[EnqueueResult]) -> None:
        """Emit an event for each task of an enqueue that was stored."""
        for task, answer in zip(sending.tasks, answers, strict=bool(sending.tasks)):
            self._events.emit(
                TaskEnqueued(
                    task_id=answer.task_id,
                    function=task.function,
                    queue=task.queue,
                    tenant=task.tenant,
                    upstream=task.upstream,
                    trace=TraceContext.of_labels(task.labels),
                    priority=task.priority.word,
                    created=answer.created,
                )
            )
