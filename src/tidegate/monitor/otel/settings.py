"""The settings of OpenTelemetry."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TelemetryMode(StrEnum):
    """When spans and metrics are recorded."""

    AUTO = "auto"
    """Record if the program has configured an SDK of OpenTelemetry."""
    ON = "on"
    """Always record; `opentelemetry-api` must be installed."""
    OFF = "off"


class RunSpans(StrEnum):
    """How the span of a run belongs to the trace that enqueued its task."""

    LINK = "link"
    """The span begins a trace of its own, with a link to the span that enqueued the task."""
    PARENT = "parent"
    """The span is part of the trace that enqueued the task."""


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """What OpenTelemetry records."""

    opentelemetry: TelemetryMode = TelemetryMode.AUTO
    """`auto`: record spans and metrics if the program has configured an SDK of OpenTelemetry; `on`; `off`."""
    run_spans: RunSpans = RunSpans.LINK
    """`link`: the span of a run begins a trace, with a link to the span that enqueued the task. `parent`: the
    span is part of the trace that enqueued the task."""
    call_spans: bool = True
    """Whether each call to an upstream has a span. Turn this off if an instrumentation also makes such
    spans."""
