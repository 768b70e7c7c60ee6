"""The metrics of OpenTelemetry, of this process. The metrics for Prometheus are in `monitor/catalogue.py`."""

from __future__ import annotations

import os
from collections import Counter

from opentelemetry import metrics

from tidegate._version import __version__
from tidegate.events import CallFinished, RunFinished
from tidegate.monitor import semconv
from tidegate.monitor.otel.attributes import call_attributes, operation_attributes, run_metric_attributes


class Metrics:
    """The instruments, and what each event adds to them."""

    def __init__(self) -> None:
        made = metrics.get_meter("tidegate", __version__)
        self._sent = made.create_counter(semconv.SENT_MESSAGES, "{message}", "Tasks that were enqueued.")
        self._consumed = made.create_counter(semconv.CONSUMED_MESSAGES, "{message}", "Runs that ended.")
        self._send_seconds = _durations(made, semconv.SEND_DURATION, "How long enqueues took.")
        self._process_seconds = _durations(made, semconv.PROCESS_DURATION, "How long runs took.")
        self._call_seconds = _durations(made, semconv.INFERENCE_DURATION, "How long calls of models took.")
        self._tokens = {
            field: made.create_counter(name, "{token}", "Tokens that responses stated.")
            for field, name in semconv.USED_TOKENS.items()
        }
        self._old = _OldMetrics(made) if semconv.GEN_AI_DUP in _opt_ins() else None

    def on_sent(self, sent: Counter[tuple[str, str]], seconds: float, error: BaseException | None) -> None:
        """Count the tasks of one enqueue."""
        queues = {queue for queue, _ in sent}
        found = operation_attributes(semconv.SEND)
        if len(queues) == 1:
            found[semconv.MESSAGING_DESTINATION_NAME] = next(iter(queues))
        if error is not None:
            found[semconv.ERROR_TYPE] = type(error).__qualname__
        self._send_seconds.record(seconds, found)
        if error is None:
            for (queue, function), count in sent.items():
                self._sent.add(
                    count,
                    operation_attributes(semconv.SEND)
                    | {semconv.MESSAGING_DESTINATION_NAME: queue, semconv.TASK_NAME: function},
                )

    def on_run_finished(self, event: RunFinished) -> None:
        """Count one run."""
        attributes = run_metric_attributes(event)
        self._consumed.add(1, attributes)
        self._process_seconds.record(event.seconds, attributes)

    def on_call_finished(self, event: CallFinished) -> None:
        """Count one call. Only calls of models have metrics."""
        if not (event.operation or event.model):
            return
        attributes = call_attributes(event)
        tokens = attributes | {semconv.GEN_AI_MODALITY: "unknown"}
        if event.failure is not None:
            attributes[semconv.ERROR_TYPE] = str(event.failure.reason)
        self._call_seconds.record(event.seconds, attributes)
        if event.usage is not None:
            for field, counter in self._tokens.items():
                if count := getattr(event.usage, field):
                    counter.add(count, tokens)
        if self._old is not None:
            self._old.on_call_finished(event)


class _OldMetrics:
    """Two metrics under the names that they had before the conventions of generative AI moved."""

    def __init__(self, made: metrics.Meter) -> None:
        self._seconds = _durations(made, semconv.OLD_OPERATION_DURATION, "How long calls of models took.")
        self._tokens = made.create_histogram(
            semconv.OLD_USAGE,
            "{token}",
            "Tokens that a response stated.",
            explicit_bucket_boundaries_advisory=semconv.OLD_USAGE_BUCKETS,
        )

    def on_call_finished(self, event: CallFinished) -> None:
        attributes = call_attributes(event)
        self._seconds.record(event.seconds, attributes)
        if event.usage is not None:
            for direction in ("input", "output"):
                self._tokens.record(
                    getattr(event.usage, f"{direction}_tokens"),
                    attributes | {semconv.GEN_AI_DIRECTION: direction},
                )


def _durations(made: metrics.Meter, name: str, text: str) -> metrics.Histogram:
    return made.create_histogram(
        name, "s", text, explicit_bucket_boundaries_advisory=semconv.DURATION_BUCKETS
    )


def _opt_ins() -> set[str]:
    return {word.strip() for word in os.environ.get(semconv.STABILITY_OPT_IN, "").split(",")}
