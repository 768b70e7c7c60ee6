"""OpenTelemetry with exporters in memory, for the time of one test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.metrics import _internal as metrics_internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util._once import Once


class Telemetry:
    """What a program's OpenTelemetry recorded in one test."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.metrics = MeterProvider([self._reader])

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Return the spans that have ended, in that order; only those whose name begins so."""
        return [span for span in self._spans.get_finished_spans() if span.name.startswith(name)]

    def points(self, name: str) -> list[Any]:
        """Return the data points of a metric."""
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else [])
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Telemetry]:
    """Set OpenTelemetry's global providers, which a program can set only once, for one test."""
    made = Telemetry()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER", None)
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER_SET_ONCE", Once())
    trace.set_tracer_provider(made.tracers)
    metrics.set_meter_provider(made.metrics)
    yield made
    made.tracers.shutdown()
    made.metrics.shutdown()
