"""What `docs/how-to/enqueue-from-web-frameworks.md` shows works as pasted."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import ROOT, blocks
from starlette.testclient import TestClient


def test_the_fastapi_block_as_pasted_submits_and_answers_in_development(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [block] = [
        one
        for one in blocks(ROOT / "docs/how-to/enqueue-from-web-frameworks.md", "python")
        if "FastAPI(" in one.text
    ]
    names: dict[str, object] = {"__name__": "pasted"}
    exec(compile(block.text, block.name, "exec"), names)

    with TestClient(names["site"]) as client:  # type: ignore[arg-type]
        made = client.post("/signup?mail=ada@example.com").json()
        shown = client.get(f"/tidegate/api/v1/tasks/{made['task_id']}")
        direct = client.post("/tidegate/api/v1/tasks", json={"task": "welcome", "args": ["bob@example.com"]})

    assert (shown.status_code, shown.json()["state"]) == (200, "ready")
    assert direct.status_code == 202
