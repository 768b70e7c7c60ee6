"""The page on metrics and scaling: its queries name metrics that exist, and its manifests what the API and the store have."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from pages import ROOT, blocks

from pgserver import Server
from postgres_support import SCHEMA, prepared
from tidegate import Tidegate
from tidegate.monitor.catalogue import METRICS, MetricKind
from tidegate.store.postgres.roles import role
from tidegate.web import create_app
from tidegate.web.scaling_schemas import ScalingOut

yaml: Any = importlib.import_module("yaml")
PAGE = ROOT / "docs" / "how-to" / "watch-and-scale.md"
MANIFESTS = [yaml.safe_load(block.text) for block in blocks(PAGE, "yaml")]
TRIGGERS = {
    manifest["spec"]["triggers"][0]["type"]: manifest["spec"]["triggers"][0]["metadata"]
    for manifest in MANIFESTS
    if manifest.get("kind") == "ScaledObject"
}
SERIES = {
    name: metric
    for metric in METRICS
    for name in (
        [f"{metric.name}_{part}" for part in ("bucket", "sum", "count")]
        if metric.kind is MetricKind.HISTOGRAM
        else [metric.name]
    )
}


def _queries() -> list[str]:
    """Return the queries of the table, the rules and the manifests."""
    table = re.findall(r"^\| [^|]+\? \| `(.+)` \|$", PAGE.read_text(encoding="utf-8"), re.M)
    rules = [
        rule["expr"] for part in MANIFESTS for group in part.get("groups", []) for rule in group["rules"]
    ]
    return [*table, *rules, TRIGGERS["prometheus"]["query"]]


@pytest.mark.parametrize("query", _queries())
def test_a_query_names_metrics_and_labels_that_exist(query: str) -> None:
    found = re.findall(r"(tidegate_\w+)(?:\{(.*?)\})?", query)
    assert found or query.startswith("up{")
    for name, matchers in found:
        for label, value in re.findall(r'(\w+)!?="(\w+)"', matchers):
            assert label in SERIES[name].labels
            assert value in SERIES[name].help or label == "pool" or value == "flowing"
    for labels in re.findall(r"by \((.+?)\)", query):
        known = {label for name, _ in found for label in SERIES[name].labels} | {"le"}
        assert set(labels.split(", ")) <= known


@pytest.mark.anyio
async def test_keda_reads_a_route_and_a_field_of_the_api(app: Tidegate) -> None:
    trigger = TRIGGERS["metrics-api"]
    path = urlsplit(trigger["url"]).path
    assert path.rpartition("/")[0] + "/{pool}" in create_app(app).openapi()["paths"]
    assert trigger["valueLocation"] in ScalingOut.__struct_fields__


def test_keda_queries_postgresql_as_the_role_that_only_reads(postgres: Server) -> None:
    prepared(postgres)
    with postgres.connect(user=role(SCHEMA, "reader")) as reader:
        ((number,),) = reader.execute(TRIGGERS["postgresql"]["query"]).fetchall()
    assert isinstance(number, int)


def test_every_threshold_is_one_worker_and_a_lost_prometheus_scales_nothing_in() -> None:
    assert {trigger.get(name) for trigger in TRIGGERS.values() for name in trigger if name in (
        "targetValue", "targetQueryValue", "threshold"
    )} == {"1"}  # fmt: skip
    assert TRIGGERS["prometheus"]["ignoreNullValues"] == "false"


def test_the_script_for_ecs_reads_a_field_that_the_command_prints() -> None:
    (script,) = blocks(PAGE, "sh")
    (field,) = re.findall(r"jq \.(\w+)", script.text)
    from tidegate.cli.output import jsonable
    from tidegate.policy.autoscale import PoolScaling, desired_workers

    assert field in json.loads(json.dumps(jsonable(desired_workers([], PoolScaling()))))
