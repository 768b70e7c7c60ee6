"""Spans and metrics for OpenTelemetry. Needs `opentelemetry-api`, the extra `otel`; the SDK is the user's.

`start` subscribes to the events of an application, `spans` and `metrics` make what is recorded. Every name is
in `monitor/semconv.py`. Prompts, arguments, results and responses are never recorded.
"""
