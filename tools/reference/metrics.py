"""The reference page of the metrics, from their catalogue."""

from __future__ import annotations

from tidegate.monitor.catalogue import METRICS

_INTRODUCTION = """# Metrics

`GET /metrics` of `tidegate web` and `tidegate metrics` show these, for the whole installation.
[Watch it with Prometheus and scale it](../how-to/watch-and-scale.md) shows how to use them.

Counters and histograms count since the store was made (or since migration 009). They never fall: restarts,
redrives, purges and the retention of the history change nothing. Labels hold names that an application
declares or an operator configures, and fixed words: never the id of a task or worker, and no tenants.

| metric | type | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """Return the page."""
    rows = []
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return _INTRODUCTION + "\n".join(rows) + "\n"
