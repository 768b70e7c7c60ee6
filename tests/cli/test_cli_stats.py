"""`tidegate stats`: what happened to tasks."""

from __future__ import annotations

from tidegate.domain.failure import Failure, Reason, Verdict


def test_counts_are_shown_by_time_and_by_name(workspace):
    workspace.die(2)
    workspace.die(failure=Failure(Verdict.TRANSIENT, Reason.CRASH, "killed"), queue="vip", tenant="acme")
    workspace.run("dead", "purge", "--all", "--yes")

    by_time = workspace.run("stats", "--step", "day").stdout.splitlines()
    by_queue = workspace.run("stats", "--by", "queue").stdout.splitlines()
    by_tenant = workspace.run("stats", "--by", "tenant").stdout.splitlines()

    assert by_time[0].split()[:6] == ["FROM", "(UTC)", "ENQUEUED", "STARTED", "SUCCEEDED", "DEAD"]
    assert by_time[1].split()[1:5] == ["3", "3", "0", "3"]
    assert {line.split()[0]: line.split()[4] for line in by_queue[1:]} == {"default": "2", "vip": "1"}
    assert [line.split()[:3] for line in by_tenant[1:]] == [["acme", "1", "1"]]


def test_json_has_a_line_for_each_channel_and_period(workspace):
    workspace.die()

    (row,) = workspace.lines("stats", "--queue", "default")
    (tenant,) = (workspace.die(tenant="acme"), workspace.lines("stats", "--by", "tenant"))[1]

    assert (row["queue"], row["dead"], row["started"]) == ("default", 1, 1)
    assert 0.0 <= row["run_p50"] <= row["run_p95"]
    assert (tenant["tenant"], tenant["dead"]) == ("acme", 1)


def test_a_time_without_tasks_is_reported(workspace):
    workspace.die()

    assert "nothing happened" in workspace.run("stats", "--until", "1h").stderr
    assert "no task of a tenant" in workspace.run("stats", "--by", "tenant").stderr


def test_tenants_are_not_counted_by_queue(workspace):
    assert "not counted" in workspace.run("stats", "--by", "tenant", "--queue", "a", code=2).stderr
