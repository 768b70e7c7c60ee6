"""`tidegate queues` and `tidegate functions`: pause, resume, drain, and where a pause is shown."""

from __future__ import annotations

import threading

import pytest
from cli_support import Workspace, succeeded

from tidegate.domain.outcome import Outcome
from tidegate.store.rows import ClaimedTask


def declare(workspace: Workspace) -> None:
    """Store what the application declares, as its worker would."""
    manifest = {"functions": {workspace.greet: {}}}
    workspace.ask(lambda store: store.save_manifest(workspace.app, manifest))


def test_a_paused_queue_is_shown_by_status_by_why_and_in_the_audit_log(workspace: Workspace) -> None:
    (task_id, _) = workspace.add(2, queue="batch")
    message = workspace.run("queues", "pause", "batch", "--why", "bad prompt").stderr
    assert "batch: paused; 2 tasks waiting, 0 still running" in message

    status = workspace.run("status").stdout
    assert "queue batch: paused" in status
    assert "(command line) (bad prompt)" in status
    assert "queue batch: paused" in workspace.run("tasks", "why", task_id).stdout
    (queue,) = workspace.json("status")["queues"]
    assert (queue["ready"], queue["blocked"], queue["pause"]["why"]) == (0, 2, "bad prompt")
    (entry,) = workspace.ask(lambda store: store.list_audit_entries())
    assert (entry.action, entry.target, entry.answer, entry.why) == (
        "queue paused",
        "batch",
        "paused",
        "bad prompt",
    )

    assert "batch: resumed" in workspace.run("queues", "resume", "batch").stderr
    assert "batch: it was not paused" in workspace.run("queues", "resume", "batch").stderr
    assert "paused" not in workspace.run("status").stdout


def test_a_second_pause_names_who_paused_the_queue_first(workspace: Workspace) -> None:
    workspace.add(queue="batch")
    workspace.run("queues", "pause", "batch")
    assert "it was paused already, by" in workspace.run("queues", "pause", "batch").stderr


def test_pausing_a_queue_that_never_had_tasks_asks_to_check_the_spelling(workspace: Workspace) -> None:
    workspace.add(queue="batch")
    assert "check the spelling" in workspace.run("queues", "pause", "bacth").stderr


def test_a_paused_function_is_listed_and_shown_by_status(workspace: Workspace) -> None:
    declare(workspace)
    workspace.add()
    workspace.run("functions", "pause", workspace.greet, "--why", "costs too much")
    assert "costs too much" in workspace.run("functions", "ls").stdout
    assert f"function {workspace.greet}: paused" in workspace.run("status").stdout
    (row,) = workspace.lines("functions", "ls")
    assert (row["function"], row["pause"]["why"]) == (workspace.greet, "costs too much")
    assert "resumed" in workspace.run("functions", "resume", workspace.greet).stderr
    (row,) = workspace.lines("functions", "ls")
    assert row["pause"] is None


def test_pausing_an_undeclared_function_is_refused_and_names_similar_ones(workspace: Workspace) -> None:
    declare(workspace)
    error = workspace.run("functions", "pause", workspace.greet + "s", code=3).stderr
    assert f"did you mean {workspace.greet}?" in error


def test_drain_returns_at_once_if_the_queue_has_only_scheduled_tasks(workspace: Workspace) -> None:
    workspace.add(queue="batch", delay_seconds=600.0)
    assert "batch: empty" in workspace.run("queues", "drain", "batch").stderr


def test_drain_waits_until_the_last_task_has_ended(workspace: Workspace) -> None:
    workspace.add(2, queue="batch")

    def work() -> None:
        def end(task: ClaimedTask) -> Outcome:
            return succeeded(task)

        workspace.work(end, functions=[workspace.greet])

    thread = threading.Timer(0.5, work)
    thread.start()
    shown = workspace.run("queues", "drain", "batch", "--timeout", "60s").stderr
    thread.join()
    assert "batch: 2 tasks waiting, 0 running" in shown
    assert shown.strip().endswith("batch: empty")


def test_drain_gives_up_after_its_timeout(workspace: Workspace) -> None:
    workspace.add(queue="batch")
    error = workspace.run("queues", "drain", "batch", "--timeout", "100ms", code=124).stderr
    assert "still has 1 tasks" in error


def test_drain_of_a_paused_queue_is_refused(workspace: Workspace) -> None:
    workspace.add(queue="batch")
    workspace.run("queues", "pause", "batch")
    error = workspace.run("queues", "drain", "batch", code=4).stderr
    assert "tidegate queues resume batch" in error


@pytest.mark.parametrize("command", ["queues", "functions"])
def test_ls_of_an_empty_store_explains_what_fills_it(workspace: Workspace, command: str) -> None:
    workspace.ask(lambda store: store.now())
    result = workspace.run(command, "ls")
    assert "yet" in result.stdout + result.stderr
