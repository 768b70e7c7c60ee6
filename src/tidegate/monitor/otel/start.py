"""Subscribes OpenTelemetry to the events of an application, once it is known to be used."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tidegate.errors import ConfigError
from tidegate.events import (
    CallFinished,
    CallStarted,
    EventBus,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
)
from tidegate.monitor.otel.settings import TelemetryMode, TelemetrySettings

if TYPE_CHECKING:
    from tidegate.monitor.otel.spans import SendSpans


def is_used(mode: TelemetryMode) -> bool:
    """Return whether to record spans and metrics. The check costs next to nothing.

    With `auto` they are recorded once the program has set a provider of OpenTelemetry's SDK, or named one in
    the environment, as `opentelemetry-instrument` does.
    """
    if mode is not TelemetryMode.AUTO:
        return mode is TelemetryMode.ON
    trace, metrics = sys.modules.get("opentelemetry.trace"), sys.modules.get("opentelemetry.metrics")
    return _has_provider(trace, "get_tracer_provider", "ProxyTracerProvider") or _has_provider(
        metrics, "get_meter_provider", "_ProxyMeterProvider"
    )


def _has_provider(api: object, getter: str, placeholder: str) -> bool:
    """Return whether a provider is set: until then, the API returns a placeholder."""
    get = getattr(api, getter, None)  # None while the module is being imported
    return get is not None and type(get()).__name__ != placeholder


def _flush_providers() -> None:
    from opentelemetry import metrics, trace

    for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
        if flush := getattr(provider, "force_flush", None):  # providers of the SDK have this attribute
            flush()


def start(events: EventBus, settings: TelemetrySettings) -> SendSpans:
    """Subscribe to the events; return the recorder of the spans of enqueues.

    Raises:
        ConfigError: `opentelemetry-api` is not installed.
    """
    try:
        from tidegate.monitor.otel.metrics import Metrics
        from tidegate.monitor.otel.spans import CallSpans, SendSpans, StepSpans, TaskSpans
    except ImportError as error:
        raise ConfigError(
            "opentelemetry = on, but opentelemetry-api is not installed", fix='pip install "tidegate[otel]"'
        ) from error
    metrics = Metrics()
    runs = TaskSpans(settings.run_spans)
    events.subscribe(RunStarted, runs.on_started)
    events.subscribe(RunFinished, runs.on_finished)
    events.subscribe(RunFinished, metrics.on_run_finished)
    steps = StepSpans()
    events.subscribe(StepStarted, steps.on_started)
    events.subscribe(StepFinished, steps.on_finished)
    if settings.call_spans:
        calls = CallSpans()
        events.subscribe(CallStarted, calls.on_started)
        events.subscribe(CallFinished, calls.on_finished)
    events.subscribe(CallFinished, metrics.on_call_finished)
    events.exporters.add(_flush_providers)
    return SendSpans(metrics)
