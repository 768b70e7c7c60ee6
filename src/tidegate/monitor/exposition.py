"""Writes the metrics in Prometheus' text format, or in OpenMetrics if the client asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from tidegate.monitor.catalogue import METRICS, Metric, MetricKind
from tidegate.monitor.reading import Reading
from tidegate.monitor.samples import distributions_of, samples_of


class Exposition(NamedTuple):
    """The metrics as text."""

    body: bytes
    content_type: str


def expose(reading: Reading, accept: str = "") -> Exposition:
    """Return the metrics as text.

    Args:
        reading: The values that were read from the store.
        accept: The `Accept` header of the client, which chooses the format.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ReadingCollector(reading))
    encode, content_type = choose_encoder(accept)
    return Exposition(encode(registry), content_type)


class _ReadingCollector(Collector):
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def collect(self) -> Iterator[Family]:
        families: dict[str, Any] = {each.name: _FAMILIES[each.kind](each) for each in METRICS}
        for sample in samples_of(self._reading):
            families[sample.metric.name].add_metric(sample.labels, float(sample.value))
        for each in distributions_of(self._reading):
            buckets = [
                ("+Inf" if math.isinf(bound) else str(bound), float(count)) for bound, count in each.buckets
            ]
            families[each.metric.name].add_metric(each.labels, buckets, each.sum)
        yield from families.values()

    def describe(self) -> Iterable[Family]:
        """Return nothing, so that registering does not compute all values."""
        return ()


_FAMILIES: Mapping[MetricKind, Callable[[Metric], Family]] = {
    MetricKind.GAUGE: lambda metric: GaugeMetricFamily(metric.name, metric.help, labels=metric.labels),
    MetricKind.COUNTER: lambda metric: CounterMetricFamily(metric.name, metric.help, labels=metric.labels),
    MetricKind.HISTOGRAM: lambda metric: HistogramMetricFamily(
        metric.name, metric.help, labels=metric.labels
    ),
}
