"""The spans: `send QUEUE` of an enqueue, `process QUEUE` of a run, `step NAME`, `chat MODEL` of a call."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from tidegate._version import __version__
from tidegate.context.trace import remote_span, to_trace
from tidegate.domain.failure import Failure
from tidegate.domain.trace import TraceContext
from tidegate.events import (
    CallFinished,
    CallStarted,
    RunFinished,
    RunOutcome,
    RunStarted,
    StepFinished,
    StepStarted,
)
from tidegate.monitor import semconv
from tidegate.monitor.otel.attributes import (
    answer_attributes,
    error_type,
    run_attributes,
    send_attributes,
    started_call_attributes,
    step_attributes,
)
from tidegate.monitor.otel.metrics import Metrics
from tidegate.monitor.otel.settings import RunSpans


def _tracer() -> trace.Tracer:
    return trace.get_tracer("tidegate", __version__)


class SendSpans:
    """Starts the spans of enqueues. Each span is the creation context of its tasks.

    Args:
        metrics: Counts the enqueued tasks.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._tracer = _tracer()

    def start(self, parent: TraceContext | None) -> SendSpan:
        """Start the span of an enqueue, under this span of another process or under the current span."""
        context = None if parent is None else _context_of(parent)
        span = self._tracer.start_span(semconv.SEND, context, kind=SpanKind.PRODUCER)
        return SendSpan(span, self._metrics)


class SendSpan:
    """The span of one enqueue.

    Args:
        span: The span.
        metrics: Counts the enqueued tasks.
    """

    def __init__(self, span: Span, metrics: Metrics) -> None:
        self._span = span
        self._metrics = metrics
        self._started_at = time.monotonic()

    @property
    def trace(self) -> TraceContext | None:
        """The span that the enqueued tasks continue; None if it is not recorded and has no id."""
        return to_trace(self._span.get_span_context())

    def end(self, sent: Counter[tuple[str, str]], task_id: str, error: BaseException | None) -> None:
        """End the span.

        Args:
            sent: How many tasks of each queue and function were enqueued.
            task_id: The id of the only task; empty if there are several.
            error: What the enqueue raised; None if it succeeded.
        """
        queues = {queue for queue, _ in sent}
        if len(queues) == 1:
            self._span.update_name(f"{semconv.SEND} {next(iter(queues))}")
        self._span.set_attributes(send_attributes(sent, task_id))
        if error is not None:
            self._span.set_attribute(semconv.ERROR_TYPE, type(error).__qualname__)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()
        self._metrics.on_sent(sent, time.monotonic() - self._started_at, error)


class TaskSpans:
    """Records one span for each run.

    The span is the current span of the function, so the spans of the function join it.

    Args:
        run_spans: Whether the span joins the trace that enqueued the task, or is linked to that trace.
    """

    def __init__(self, run_spans: RunSpans) -> None:
        self._run_spans = run_spans
        self._tracer = _tracer()
        self._open: dict[tuple[str, int], Span] = {}

    def on_started(self, event: RunStarted) -> None:
        """Start the span of a run, and make it the current one in the run's own context."""
        span = self._start(event)
        self._open[event.task_id, event.run] = span
        otel_context.attach(trace.set_span_in_context(span))  # the context ends with the run

    def on_finished(self, event: RunFinished) -> None:
        """End the span of a run. The span of a run whose function did not start begins and ends here."""
        span = self._open.pop((event.task_id, event.run), None)
        if span is None:
            span = self._start(event, time.time_ns() - int(event.seconds * 1e9))
        span.set_attribute(semconv.OUTCOME, str(event.outcome))
        if event.charge:
            span.set_attribute(semconv.CHARGE, event.charge)
        if event.outcome is RunOutcome.RETRYING:
            span.set_attribute(semconv.RETRY_REASON, event.why)
            span.set_attribute(semconv.RETRY_DELAY, event.retry_seconds or 0.0)
        if event.failure is not None:
            span.set_attribute(semconv.VERDICT, str(event.failure.verdict))
            _record_failure(span, event.failure)
        span.end()

    def _start(self, event: RunStarted | RunFinished, start_time: int | None = None) -> Span:
        context, links = Context(), []
        if event.trace is not None:
            context = _context_of(event.trace)
            if self._run_spans is RunSpans.LINK:
                links = [Link(trace.get_current_span(context).get_span_context())]
                context = Context()
        return self._tracer.start_span(
            f"{semconv.PROCESS} {event.queue}",
            context,
            kind=SpanKind.CONSUMER,
            attributes=run_attributes(event),
            links=links,
            start_time=start_time,
        )


class StepSpans:
    """Records one span for each step whose function is called, under the span of its run.

    The span is the current span of that function. Steps that an earlier run or another task has done have no
    span: a run may come to thousands of them at once.
    """

    def __init__(self) -> None:
        self._tracer = _tracer()
        self._open: dict[tuple[str, int, str], Span] = {}

    def on_started(self, event: StepStarted) -> None:
        """Start the span of a step, and make it the current one in the context of the step's function."""
        span = self._tracer.start_span(f"{semconv.STEP} {event.step}", attributes=step_attributes(event))
        self._open[event.task_id, event.run, event.key] = span
        otel_context.attach(trace.set_span_in_context(span))  # the context ends with the step

    def on_finished(self, event: StepFinished) -> None:
        """End the span of a step."""
        span = self._open.pop((event.task_id, event.run, event.key), None)
        if span is None:
            return
        span.set_attribute(semconv.STEP_OUTCOME, str(event.outcome))
        if event.error_class:
            span.set_attribute(semconv.ERROR_TYPE, event.error_class)
            span.set_status(Status(StatusCode.ERROR, event.message[:200]))
        span.end()


class CallSpans:
    """Records one span for each call to an upstream, under the span of its run or its step."""

    def __init__(self) -> None:
        self._tracer = _tracer()
        self._open: dict[int, Span] = {}

    def on_started(self, event: CallStarted) -> None:
        """Start the span of a call."""
        name = f"{event.operation or 'call'} {event.model or event.upstream}"
        self._open[event.call] = self._tracer.start_span(
            name, kind=SpanKind.CLIENT, attributes=started_call_attributes(event)
        )

    def on_finished(self, event: CallFinished) -> None:
        """End the span of a call."""
        span = self._open.pop(event.call, None)
        if span is None:  # the call was sent before this object subscribed
            return
        span.set_attributes(answer_attributes(event))
        if event.failure is not None:
            _record_failure(span, event.failure)
        span.end()


def _record_failure(span: Span, failure: Failure) -> None:
    """Record a failure, whose texts have their secrets masked."""
    span.set_attribute(semconv.ERROR_TYPE, error_type(failure))
    details: dict[str, Any] = {
        semconv.EXCEPTION_TYPE: failure.error_class or str(failure.reason),
        semconv.EXCEPTION_MESSAGE: failure.message,
    }
    if failure.traceback:
        details[semconv.EXCEPTION_STACKTRACE] = failure.traceback
    span.add_event(semconv.EXCEPTION, details)
    span.set_status(Status(StatusCode.ERROR, failure.message[:200]))


def _context_of(parent: TraceContext) -> Context:
    return trace.set_span_in_context(remote_span(trace, parent), Context())
