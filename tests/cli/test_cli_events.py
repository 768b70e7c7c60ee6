"""`tidegate events send`: data as JSON or text, and how many tasks waited."""

from __future__ import annotations

import pytest
from cli_support import Workspace


def sent(workspace: Workspace) -> list[tuple[object, ...]]:
    rows = workspace.ask(
        lambda store: store._read(lambda db: db.rows("SELECT tenant, name, data FROM event ORDER BY at"))  # type: ignore[attr-defined]
    )
    return [tuple(row) for row in rows]


@pytest.mark.parametrize(
    ("data", "stored"), [([], b"null"), (['{"cents": 5}'], b'{"cents":5}'), (["Ada"], b'"Ada"')]
)
def test_an_event_is_stored_with_its_data(workspace: Workspace, data: list[str], stored: bytes) -> None:
    printed = workspace.run("events", "send", "order:1:paid", *data).stderr
    assert "event order:1:paid: 0 tasks waited for it" in printed
    assert sent(workspace) == [("", "order:1:paid", stored)]


def test_the_tenant_and_the_key_are_kept(workspace: Workspace) -> None:
    for _ in range(2):
        answer = workspace.json("events", "send", "paid", "--tenant", "acme", "--key", "evt_1")
        assert answer == {"name": "paid", "delivered": 0}
    assert sent(workspace) == [("acme", "paid", b"null")]
