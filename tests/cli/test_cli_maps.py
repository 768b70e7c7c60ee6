"""`tidegate maps`: list, show, cancel and retry."""

from __future__ import annotations

from typing import Any

from cli_support import dead

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.spec import Priority
from tidegate.maps.runner import MapRunner
from tidegate.store.map_rows import NewMap
from tidegate.store.protocol import Store
from tidegate.store.rows import NewTask


def make(workspace: Any, count: int = 3, **changes: Any) -> tuple[str, list[str]]:
    """Store a map; return its id and those of its items."""
    make_id = workspace._make_id
    values = {"args": b'{"a":[],"k":{"name":"Ada"}}', "codec_tag": "json/1", "priority": Priority.NORMAL}
    tasks = [NewTask(make_id(), workspace.greet, "default", **values) for _ in range(count)]
    new = NewMap(make_id(), "nightly", workspace.greet, count, **changes)

    async def store_map(store: Store) -> None:
        await store.enqueue_map_part(new.id, new.id, tasks)
        await store.commit_map(new, new.id)
        await store.release_batches()

    workspace.ask(store_map)
    return new.id, [task.id for task in tasks]


def test_maps_are_listed_shown_and_cancelled(workspace):
    assert "no map yet" in workspace.run("maps", "ls").stderr
    map_id, ids = make(workspace)
    other, _ = make(workspace, tenant="acme")

    lines = workspace.run("maps", "ls").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", other, map_id]
    assert [row["map"] for row in workspace.lines("maps", "ls", "--tenant", "acme")] == [other]
    assert [row["map"] for row in workspace.lines("maps", "ls", "--after", other)] == [map_id]

    [row, _] = workspace.lines("maps", "ls")
    assert row["cancelled_at"] is row["ended_at"] is None

    shown = workspace.run("maps", "show", map_id, "--items", "--limit", "2")
    assert "unknown: no item ended" in shown.stdout
    assert ids[1] in shown.stdout
    assert ids[2] not in shown.stdout
    assert "--after 1" in shown.stderr

    cancelled = workspace.run("maps", "cancel", map_id, "--why", "wrong list")
    assert "3 of 3 items cancelled" in cancelled.stdout
    assert "already" in workspace.run("maps", "cancel", map_id).stderr
    workspace.ask(lambda store: MapRunner(store).run_once())
    found = workspace.json("maps", "show", map_id, "--items")
    assert (found["state"], found["cancelled"], found["cancel_why"]) == ("ended", 3, "wrong list")
    assert [item["state"] for item in found["list"]] == ["cancelled"] * 3


def test_dead_items_are_retried_without_those_in_doubt(workspace):
    map_id, ids = make(workspace, 2)
    reasons = dict(zip(ids, (Reason.INVALID_REQUEST, Reason.IN_DOUBT), strict=True))
    workspace.work(
        lambda task: dead(
            task, Failure(Verdict.PERMANENT, reasons[task.fence.task_id], "no", "builtins.OSError")
        )
    )

    retried = workspace.run("maps", "retry", map_id)
    assert "1 dead item sent" in retried.stdout
    assert "--repeat-doubts" in retried.stderr
    answer = workspace.json("maps", "retry", map_id, "--repeat-doubts")
    assert (answer["sent"], answer["in_doubt"]) == (1, 0)


def test_an_unknown_map_is_refused(workspace):
    refused = workspace.run("maps", "show", "0191ffff", code=3)
    assert "TG125" in refused.stderr
