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


def test_autoscale_shows_the_workers_that_each_pool_should_have_and_why(workspace: Workspace) -> None:
    workspace.add(250, queue="batch")
    (line,) = workspace.lines("autoscale", "--app", workspace.app, "--max", "2")
    assert (line["pool"], line["workers"], line["bound"]) == ("default", 2, "max_workers")
    assert "max_workers is 2" in workspace.run("autoscale", "--max", "2").stdout
    message = workspace.run("autoscale", "gpu", code=2).stderr
    assert "there is no pool gpu" in message
    assert "the pools are: default" in message
