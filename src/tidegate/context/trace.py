"""The trace that the present code belongs to."""

from __future__ import annotations

import sys
from typing import Any

from tidegate.context import current_context
from tidegate.domain.trace import TraceContext


def current_trace() -> TraceContext | None:
    """Return the trace of the present code: OpenTelemetry's current span, else the running task's trace.

    Without OpenTelemetry, the trace of a running task is the one that enqueued it.
    """
    span = current_span()
    if span is not None:
        return span
    run = current_context()
    return None if run is None else run.trace


def current_span() -> TraceContext | None:
    """Return OpenTelemetry's current span; None if there is none, or nothing here uses OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not hasattr(trace, "get_current_span"):  # not imported, or half
        return None
    return to_trace(trace.get_current_span().get_span_context())


def to_trace(span: Any) -> TraceContext | None:
    """Return OpenTelemetry's `SpanContext` as a trace; None if it is invalid."""
    if not span.is_valid:
        return None
    return TraceContext(
        f"{span.trace_id:032x}",
        f"{span.span_id:016x}",
        f"{int(span.trace_flags):02x}",
        span.trace_state.to_header() if span.trace_state else "",
    )


def continue_trace(trace: TraceContext) -> None:
    """Make a span of another process OpenTelemetry's current one, in the present `contextvars` context."""
    api, context = sys.modules.get("opentelemetry.trace"), sys.modules.get("opentelemetry.context")
    if api is not None and context is not None:
        context.attach(api.set_span_in_context(remote_span(api, trace)))


def remote_span(api: Any, trace: TraceContext) -> Any:
    """Return a span of another process for OpenTelemetry.

    Args:
        api: The module `opentelemetry.trace`.
        trace: The span.
    """
    return api.NonRecordingSpan(
        api.SpanContext(
            int(trace.trace_id, 16),
            int(trace.span_id, 16),
            is_remote=True,
            trace_flags=api.TraceFlags(int(trace.flags, 16)),
            trace_state=api.TraceState.from_header([trace.state]) if trace.state else None,
        )
    )
