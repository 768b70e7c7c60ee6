"""`tidegate worker quiet|resume|reload`, `tidegate pools` and `tidegate limits`."""

from __future__ import annotations

import pytest
from cli_support import Workspace

from tidegate.domain.spec import Window
from tidegate.store.controls import ControlKind, ControlReport
from tidegate.store.worker_rows import NewWorker

WORKER = NewWorker("1" * 36, "w1", "gpu", "host", 123, ("*",), 4, lease_seconds=60.0)


@pytest.fixture
def worker(workspace: Workspace) -> Workspace:
    """A workspace with a live worker that applies nothing by itself."""
    workspace.ask(lambda store: store.add_worker(WORKER))
    return workspace


def answered(workspace: Workspace, kind: ControlKind, name: str, reporter: str, answer: str) -> None:
    """Report version 1 of a row before it is wanted, so that the command finds the answer."""
    report = ControlReport(kind, name, reporter, 1, answer)
    workspace.ask(lambda store: store.report_controls([report]))


def test_quiet_prints_each_process_that_has_applied_it(worker: Workspace) -> None:
    answered(worker, ControlKind.QUIET, "w1", WORKER.id, "applied")
    output = worker.run("worker", "quiet", "w1", "--why", "a hot GPU").stdout
    assert output == "worker w1, pool gpu, process host:123: applied\n"
    (row,) = worker.ask(lambda store: store.list_controls())
    assert (row.kind, row.name, row.value, row.why) == (ControlKind.QUIET, "w1", 1, "a hot GPU")
    (entry,) = worker.ask(lambda store: store.list_audit_entries())
    assert (entry.action, entry.target, entry.why) == ("worker quieted", "w1", "a hot GPU")
    assert worker.lines("pools", "ls")[0]["quiet"] == 1
    assert "worker w1: quiet" in worker.run("status").stdout


def test_a_worker_that_does_not_answer_in_time_is_named_with_exit_code_124(worker: Workspace) -> None:
    output = worker.run("worker", "quiet", "w1", "--wait", "100ms", code=124).stdout
    assert "process host:123: not applied yet" in output


def test_resume_by_name_also_resumes_its_quiet_processes(worker: Workspace) -> None:
    worker.run("worker", "quiet", WORKER.id, "--wait", "0")
    worker.run("worker", "resume", "w1", "--wait", "0")
    rows = worker.ask(lambda store: store.list_controls())
    assert {row.name: row.value for row in rows} == {WORKER.id: 0, "w1": 0}


@pytest.mark.parametrize("command", ["quiet", "resume", "reload"])
def test_an_unknown_worker_is_refused_and_known_ones_are_named(worker: Workspace, command: str) -> None:
    error = worker.run("worker", command, "w2", code=4).stderr
    assert "no live worker is named 'w2'" in error
    assert "workers: w1" in error


def test_reload_succeeds_if_every_worker_restarted_its_processes(worker: Workspace) -> None:
    answered(worker, ControlKind.RELOAD, "*", "w1@host", "every process has restarted")
    assert "worker w1 on host: every process has restarted" in worker.run("worker", "reload").stdout


def test_reload_fails_if_the_new_code_cannot_be_loaded(worker: Workspace) -> None:
    answered(worker, ControlKind.RELOAD, "w1", "w1@host", "the new code cannot be loaded")
    assert "cannot be loaded" in worker.run("worker", "reload", "w1", code=1).stdout


def test_the_concurrency_of_a_pool_is_set_and_given_back_to_the_code(worker: Workspace) -> None:
    answered(worker, ControlKind.CONCURRENCY, "gpu", WORKER.id, "applied")
    assert "applied" in worker.run("pools", "set", "gpu", "--concurrency", "2").stdout
    assert "2, set by" in worker.run("pools", "ls").stdout
    worker.run("pools", "set", "gpu", "--concurrency", "code", "--wait", "0")
    assert "as in the code" in worker.run("pools", "ls").stdout


def test_a_concurrency_that_is_no_number_or_a_pool_nobody_has_is_refused(worker: Workspace) -> None:
    worker.run("pools", "set", "gpu", "--concurrency", "many", code=2)
    worker.run("pools", "set", "gpu", "--concurrency", "0", code=2)
    assert "pools: gpu" in worker.run("pools", "set", "gpus", "--concurrency", "2", code=4).stderr


def test_a_rate_limit_is_set_removed_and_given_back_to_the_code(workspace: Workspace) -> None:
    manifest = {"functions": {workspace.greet: {"rate_limit": [5, 1.0]}}}
    workspace.ask(lambda store: store.save_manifest(workspace.app, manifest))
    limits = [
        ("80/min", "80 in 1 min", Window("rate_limit", 80, 60.0)),
        ("none", "not limited", None),
        ("code", "as in the code: 5 in 1 s", Window("rate_limit", 5, 1.0)),
    ]
    for rate, words, window in limits:
        assert words in workspace.run("limits", "set", workspace.greet, rate).stderr
        (gate,) = workspace.ask(lambda store: store.list_gates())
        assert gate.limits.window("rate_limit") == window
        by_hand = "" if rate == "code" else " (set by hand)"
        assert words.removeprefix("as in the code: ") + by_hand in workspace.run("limits", "ls").stdout
    assert len(workspace.ask(lambda store: store.list_audit_entries())) == 3


def test_a_rate_that_cannot_be_read_or_an_unknown_function_is_refused(workspace: Workspace) -> None:
    manifest = {"functions": {workspace.greet: {}}}
    workspace.ask(lambda store: store.save_manifest(workspace.app, manifest))
    workspace.run("limits", "set", workspace.greet, "fast", code=2)
    workspace.run("limits", "set", "app:nobody", "80/min", code=3)
