"""Alerts over HTTP: read, mute, and try a sink; and a web process evaluates them."""

from __future__ import annotations

from typing import Any

import pytest
from web_support import direct

from tidegate import Tidegate
from tidegate.alerts.evaluation import evaluate_if_due
from tidegate.alerts.settings import AlertSettings
from tidegate.internals import core_of
from tidegate.store.alert_rows import Episode, EpisodeState, PassResult, Severity

pytestmark = pytest.mark.anyio


async def open_alert(app: Tidegate) -> None:
    store = await core_of(app).opened_store()
    begun = await store.begin_alert_pass("test", interval_seconds=1.0)
    assert begun is not None
    episode = Episode(
        "e1", "drain", "main", EpisodeState.OPEN, Severity.CRITICAL, begun.at - 60.0, begun.at, None, begun.at,
        None, float("inf"), 300.0, "", is_notified=True,
    )  # fmt: skip
    assert await store.end_alert_pass(begun.number, PassResult(episodes=[episode]))


async def test_an_open_alert_is_listed_muted_and_unmuted(app: Tidegate) -> None:
    await open_alert(app)
    async with direct(app) as client:

        async def listed() -> Any:
            return (await client.get("/api/v1/alerts?ended=5")).json()

        (alert,) = (await listed())["alerts"]
        assert (alert["rule"], alert["subject"], alert["severity"], alert["muted"]) == (
            "drain",
            "main",
            "critical",
            False,
        )
        assert (alert["value"], alert["limit"]) == (None, 300.0)
        assert alert["text"].startswith("queue main: ")
        body = {"rule": "drain", "subject": "main", "seconds": 60, "why": "deploy"}
        assert (await client.post("/api/v1/alerts/mute", json=body)).json()["answer"] == "muted"
        found = await listed()
        assert found["alerts"][0]["muted"]
        assert (found["mutes"][0]["why"], found["mutes"][0]["subject"]) == ("deploy", "main")
        body = {"rule": "drain", "subject": "main"}
        assert (await client.post("/api/v1/alerts/unmute", json=body)).json()["answer"] == "unmuted"
        assert (await client.post("/api/v1/alerts/unmute", json=body)).json()["answer"] == "was not muted"
        unknown = await client.post("/api/v1/alerts/mute", json={"rule": "drian"})
        assert (unknown.status_code, "no such rule" in unknown.text) == (422, True)
        tried = (await client.post("/api/v1/alerts/test", json={})).json()
        assert tried == {"sinks": [{"sink": "log", "target": "the log", "error": None}]}
    entries = await (await core_of(app).opened_store()).list_audit_entries()
    assert [entry.action for entry in reversed(entries)] == [
        "alert muted",
        "alert unmuted",
        "alert unmuted",
        "alert sink tried",
    ]


async def test_the_python_api_lists_and_mutes_too(app: Tidegate) -> None:
    await open_alert(app)
    (alert,) = await app.admin.alerts.list()
    assert (alert.rule, alert.subject, alert.is_muted) == ("drain", "main", False)
    await app.admin.alerts.mute("*", span="1h", why="deploy")
    assert (await app.admin.alerts.list())[0].is_muted
    assert await app.admin.alerts.unmute("*")
    store = await core_of(app).opened_store()
    done = await evaluate_if_due(store, AlertSettings(interval=0.001), evaluator="test", make_id=lambda: "e2")
    assert done is not None
