"""An embedded worker evaluates alerts and sends them, with no other process about."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import FAST, until
from tidegate import Permanent, Tidegate
from webhook_receiver import receiving

pytestmark = pytest.mark.anyio

DEATHS = 40
SETTINGS = """
[alerts]
interval = "1s"
allow_hosts = ["127.0.0.1"]

[alerts.sinks.ops]
kind = "webhook"
url = "{url}/hook"
secret = "whsec_a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="
"""


async def test_a_surge_of_deaths_in_an_embedded_worker_reaches_the_webhook(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as receiver:
        (tmp_path / "tidegate.toml").write_text(SETTINGS.format(url=receiver.url))
        monkeypatch.chdir(tmp_path)
        app = Tidegate(store_url, timings=FAST)

        @app.task(name="ask")
        async def ask(number: int) -> None:
            raise Permanent(f"number {number} is broken", reason="server_error")

        async with app.worker():
            await ask.enqueue_many([(number,) for number in range(DEATHS)])
            alert = await until(lambda: receiver.opened("dead_surge"), within=30.0)
        await app.aclose()
    assert b"[critical] queue default: tasks that died in the last ten minutes: 40" in alert.body
