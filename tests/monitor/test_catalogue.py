"""The rules that every metric keeps."""

from __future__ import annotations

import pytest

from tidegate.monitor import catalogue
from tidegate.monitor.catalogue import METRICS, Metric, MetricKind

LABELS = {
    "queue",
    "function",
    "pool",
    "upstream",
    "key",
    "limit",
    "schedule",
    "version",
    "state",
    "reason",
    "outcome",
    "direction",
}
"""Names that applications declare or operators configure, and fixed words. No ids, no tenants, no messages."""
UNITS = {
    MetricKind.GAUGE: (
        "_seconds",
        "_tasks",
        "_doubts",
        "_slots",
        "_busy",
        "_info",
        "_state",
        "_paused",
        "_used",
        "_capacity",
        "_in_use",
        "workers",
    ),
    MetricKind.COUNTER: ("_total",),
    MetricKind.HISTOGRAM: ("_seconds",),
}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_has_help_a_unit_and_bounded_labels(metric: Metric) -> None:
    assert metric.name.startswith("tidegate_")
    assert metric.name.endswith(UNITS[metric.kind]), "the name ends with what it counts"
    assert len(metric.help) > 20
    assert metric.help.endswith(".")
    assert set(metric.labels) <= LABELS
    assert len(set(metric.labels)) == len(metric.labels)


def test_every_metric_of_the_catalogue_is_listed_once_and_exported() -> None:
    declared = [value for value in vars(catalogue).values() if isinstance(value, Metric)]
    assert sorted(declared, key=lambda each: each.name) == sorted(METRICS, key=lambda each: each.name)
    assert len({metric.name for metric in METRICS}) == len(METRICS)
