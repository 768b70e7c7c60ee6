"""`tidegate metrics`."""

from __future__ import annotations

from cli_support import Workspace
from prometheus_client.parser import text_string_to_metric_families


def test_metrics_prints_what_prometheus_reads(workspace: Workspace) -> None:
    workspace.add(3, queue="batch")
    text = workspace.run("metrics").stdout
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["tidegate_queue_tasks", "batch", "blocked"] == 3
