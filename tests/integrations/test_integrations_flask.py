"""Flask: the extension, and a blueprint that shows nobody more than it may see."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from starlette.testclient import TestClient

from support import make_app
from tidegate import ConfigError, StoreBusyError, Tidegate
from tidegate.integrations.flask import accepted, init_app, queue, tasks_blueprint
from tidegate.internals import core_of
from tidegate.web import WebSettings, create_app


@pytest.fixture
def tidegate(tmp_path: Path) -> Iterator[Tidegate]:
    app = make_app(tmp_path)
    yield app
    app.close()


@pytest.fixture
def site(tidegate: Tidegate) -> Flask:
    @tidegate.task(name="site:add")
    async def add(a: int, b: int) -> dict[str, int]:
        return {"sum": a + b}

    site = Flask(__name__)
    init_app(site, tidegate)
    site.register_blueprint(tasks_blueprint(lambda row: row.labels.get("user") == "ada"), url_prefix="/tasks")

    @site.post("/add/<user>")
    def submit(user: str) -> Any:
        return accepted(add.using(labels={"user": user}).enqueue_sync(1, 2))

    return site


def test_a_view_enqueues_and_its_page_follows(site: Flask, tidegate: Tidegate) -> None:
    client = site.test_client()
    made = client.post("/add/ada")
    assert (made.status_code, made.headers["Retry-After"]) == (202, "1")
    where = made.headers["Location"]
    assert client.get(where).get_json()["state"] == "ready"
    assert client.get(f"{where}/result").status_code == 202
    run_all(tidegate, made.get_json()["task_id"])
    assert client.get(f"{where}/result").get_json() == {
        "task_id": made.get_json()["task_id"], "state": "succeeded", "result": {"sum": 3},
    }  # fmt: skip
    assert client.post(f"{where}/cancel").get_json()["answer"] == "finished"


def test_what_may_not_be_seen_is_not_found_by_any_route(site: Flask, tidegate: Tidegate) -> None:
    client = site.test_client()
    where = client.post("/add/bob").headers["Location"]
    task_id = where.rpartition("/")[2]
    for answer in (client.get(where), client.get(f"{where}/result"), client.post(f"{where}/cancel")):
        assert answer.status_code == 404
    assert client.get("/tasks/unknown").status_code == 404
    assert tidegate.status_sync(task_id).state.value == "ready"


def test_an_unavailable_store_is_a_503_and_a_missing_queue_is_reported(
    site: Flask, tidegate: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(_: Any) -> Any:
        raise StoreBusyError("busy")

    monkeypatch.setattr(core_of(tidegate).store, "enqueue", busy)
    answer = site.test_client().post("/add/ada")
    assert (answer.status_code, answer.get_json()["code"], answer.headers["Retry-After"]) == (
        503,
        "TG302",
        "2",
    )
    with site.app_context():
        assert queue() is tidegate
    with Flask("other").app_context(), pytest.raises(ConfigError, match="init_app"):
        queue()


def test_a_page_gets_a_result_as_the_http_api_gives_it(site: Flask, tidegate: Tidegate) -> None:
    @tidegate.task(name="site:rich")
    async def rich(kind: str) -> Any:
        return {
            "bytes": b"\x00\xff",
            "set": {3},
            "span": timedelta(minutes=90),
            "large": 2**60,
            "tuple": (1, Decimal("1.50")),
            "nothing": None,
            "object": object(),
        }[kind]

    api = create_app(tidegate, settings=WebSettings(open_without_tokens=True))
    client, direct = site.test_client(), TestClient(api)
    for kind in ("bytes", "set", "span", "large", "tuple", "nothing", "object"):
        task = rich.using(labels={"user": "ada"}).enqueue_sync(kind)
        run_all(tidegate, task.id)
        ours = client.get(f"/tasks/{task.id}/result")
        theirs = direct.get(f"/api/v1/tasks/{task.id}/result").json()
        assert ours.status_code == 200
        assert ours.get_json() == {
            name: theirs[name]
            for name in ("task_id", "state", "result", "unstorable")
            if name != "unstorable" or theirs[name]
        }


def run_all(tidegate: Tidegate, task_id: str) -> None:
    from tidegate.threads.bridge import run_sync

    async def work() -> None:
        async with tidegate.worker():
            await tidegate.result(task_id, 20)

    run_sync(work())
