"""`tidegate status`, `db` and `doctor`."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from cli_support import dead, retrying, succeeded

from tidegate.cli import status
from tidegate.cli.doctor import CheckLevel, check_sqlite
from tidegate.domain.spec import Window
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.store.live_workers import late_seconds
from tidegate.store.overview_rows import OverviewRow
from tidegate.store.sqlite.schema import known_migrations
from tidegate.store.transfer import source


def test_an_empty_database_prints_the_next_step(workspace):
    text = workspace.run("status").stdout

    assert "tidegate enqueue" in text
    assert "tidegate worker" in text
    assert workspace.json("status")["queues"] == []


def test_each_queue_is_counted_by_state(workspace):
    workspace.add()
    workspace.work(retrying)
    workspace.add()
    workspace.work(dead)
    workspace.add(2)
    workspace.work(succeeded)
    workspace.add()
    worker_id = workspace.work(lambda task: None)
    workspace.add(3)
    workspace.add(2, delay_seconds=600)
    workspace.add(queue="other")

    status = workspace.json("status")
    default, other = status["queues"]

    assert (default["queue"], other["queue"]) == ("default", "other")
    counts = {
        name: default[name] for name in ("ready", "running", "retrying", "scheduled", "dead", "blocked")
    }
    assert counts == {"ready": 3, "running": 1, "retrying": 1, "scheduled": 2, "dead": 1, "blocked": 0}
    assert default["done_last_10_minutes"] == 3
    assert default["drain"]["kind"] == "seconds"
    assert (other["drain"]["kind"], other["drain"]["seconds"]) == ("unknown", None)
    (busy,) = [worker for worker in status["workers"] if worker["worker_id"] == worker_id]
    assert (busy["live"], busy["running"], busy["name"]) == (True, 1, "w1")


def test_the_table_shows_queues_and_workers(workspace):
    workspace.add(3)
    workspace.work(lambda task: None, slots=1)

    head, line, _, worker_head, worker, *_ = workspace.run("status").stdout.splitlines()

    assert head.split()[:5] == ["QUEUE", "READY", "PACED", "BLOCKED", "RUNNING"]
    assert head.split()[5:8] == ["RETRYING", "SCHEDULED", "DEAD"]
    assert line.split()[:5] == ["default", "2", "0", "0", "1"]
    assert line.split()[-1] == "unknown"
    assert worker_head.split()[0] == "WORKER"
    assert worker.split()[:4] == ["w1", "default", "host:123", "1/1"]


def test_the_reasons_of_paced_and_blocked_tasks_are_printed_below_the_table(workspace):
    workspace.ask(
        lambda store: store.declare_limits(
            [LimitDeclaration(GateKind.UPSTREAM, "u", Limits(max_in_flight=1))]
        )
    )
    workspace.add(50, upstream="u")
    workspace.add(2, queue="lonely", function="gone:away")
    workspace.declare(workspace.greet)
    workspace.work(lambda task: None, functions=[workspace.greet])

    output = workspace.run("status").stdout
    default, lonely = workspace.json("status")["queues"]

    assert (default["ready"], default["paced"], default["blocked"]) == (0, 49, 0)
    assert (lonely["ready"], lonely["paced"], lonely["blocked"]) == (0, 0, 2)
    assert "49 paced in default: upstream u: limit: max_in_flight 1, 1 in flight" in output
    assert "2 blocked in lonely: no live worker that serves lonely declares the function gone:away" in output
    assert [wait["kind"] for wait in default["waits"] + lonely["waits"]] == ["paced", "blocked"]


def test_a_late_heartbeat_is_marked_and_a_clock_set_back_shows_no_future_heartbeat(workspace):
    workspace.add()
    workspace.work(lambda task: None)
    now = workspace.ask(lambda store: store.now())
    (worker,) = workspace.ask(lambda store: store.list_workers())

    def shown(at):
        beat = replace(worker, heartbeat_at=at, expires_at=at + 30.0)
        return status._heartbeat(beat, now), late_seconds(beat, now)

    assert shown(now - 10.0) == ("10 s ago", None)
    assert shown(now - 13.0) == ("none for 13 s", pytest.approx(13.0))
    assert shown(now + 3600.0) == ("0 s ago", None)
    assert workspace.json("status")["workers"][0]["late_seconds"] is None


def test_a_queue_whose_tasks_are_all_blocked_does_not_drain_in_0_seconds(workspace):
    workspace.add()

    (row,) = [line for line in workspace.run("status").stdout.splitlines() if line.startswith("default ")]
    assert row.endswith("  blocked")


def test_late_workers_are_counted_in_a_sentence(workspace, monkeypatch):
    monkeypatch.setattr(status, "late_seconds", lambda worker, at: 13.0)
    workspace.work(lambda task: None)
    one = "1 worker has missed a heartbeat; its tasks are requeued when the lease ends"
    assert one in workspace.run("status").stdout

    workspace.work(lambda task: None)
    two = "2 workers have missed a heartbeat; their tasks are requeued when the lease ends"
    assert two in workspace.run("status").stdout


def test_a_watch_opens_the_file_once(workspace, monkeypatch):
    class EnoughError(Exception):
        pass

    class Counted(source.Source):
        def __init__(self, path):
            opened.append(path)
            super().__init__(path)

    async def read_overview(store):
        if next(looks) > 5:
            raise EnoughError
        return OverviewRow(0.0, [], [], [])

    opened, looks = [], itertools.count(1)
    monkeypatch.setattr(source, "Source", Counted)
    monkeypatch.setattr(status, "read_overview", read_overview)
    monkeypatch.setattr(status, "_WATCH_SECONDS", 0.0)
    with pytest.raises(EnoughError):
        workspace.run("status", "--watch", "--json")
    assert len(opened) == 2, "to open the store, and to watch"


def test_db_upgrade_makes_the_database_and_is_safe_to_repeat(empty):
    assert empty.json("db", "upgrade")["applied"] == [each.name for each in known_migrations()]
    assert empty.json("db", "upgrade") == {"applied": []}
    assert "up to date" in empty.run("db", "upgrade").stderr


def test_db_check_finds_a_sound_database_sound(workspace):
    assert workspace.run("db", "check").stdout == "sound\n"
    assert workspace.json("db", "check") == {"sound": True, "faults": []}


def test_db_check_names_the_fix_for_runs_without_a_worker_and_repair_restores_the_worker(workspace):
    import apsw

    db = apsw.Connection(str(workspace.database))
    db.execute(
        "INSERT INTO running (task_id, run, worker_id, queue, priority, upstream, function, tenant, ready_at, "
        "started_at, crash_limit, crash_base_seconds, crash_max_seconds) "
        "VALUES (zeroblob(16), 1, 'gone', 'q', 1, '', 'f', '', 0, 0, 3, 1, 1)"
    )
    db.close()
    found = workspace.run("db", "check", code=1)
    assert "1 runs belong to no worker" in found.stdout
    assert "tidegate db check --repair" in found.stdout
    repaired = workspace.run("db", "check", "--repair", code=1)  # the row itself still belongs to no task
    assert "restored the rows of 1 worker: gone" in repaired.stdout
    assert "belong to no worker" not in repaired.stdout
    assert workspace.json("db", "check", "--repair", code=1)["restored"] == []


def test_a_newer_schema_is_reported(workspace):
    import apsw

    db = apsw.Connection(str(workspace.database))
    db.execute("INSERT INTO migration (number, name, applied_at) VALUES (999, '999_later', 0)")

    report = workspace.json("doctor")
    (finding,) = [check for check in report["checks"] if check["name"] == "database"]
    assert (report["healthy"], finding["level"]) == (True, "warn")
    assert (
        "newer than this version of Tidegate by 1 migration; this version can still use it"
        in finding["detail"]
    )
    workspace.run("status")

    db.execute("UPDATE compatible SET since = 999")
    db.close()

    assert "TG201" in workspace.run("status", code=78).stderr
    (finding,) = [
        check for check in workspace.json("doctor", code=1)["checks"] if check["name"] == "database"
    ]
    assert finding["level"] == "fail"
    assert "newer" in finding["detail"]


def levels(report):
    return {check["name"]: check["level"] for check in report["checks"]}


def test_a_doctor_finds_a_new_directory_healthy_with_warnings(empty):
    report = empty.json("doctor")

    assert report["healthy"] is True
    assert levels(report) == {
        "python": "ok", "sqlite": "ok", "config": "ok", "memory": "warn", "app": "warn", "database": "warn",
    }  # fmt: skip
    assert not empty.database.exists()


def test_a_doctor_finds_nothing_wrong_with_a_working_set_up(workspace):
    (workspace.directory / "tidegate.toml").write_text(
        f'app = "{workspace.app}"\n[pools.all]\nqueues = ["*"]\nmemory_limit = "2GiB"'
    )
    workspace.add()
    workspace.work(lambda task: None)

    report = workspace.json("doctor")
    text = workspace.run("doctor").stdout

    assert set(levels(report).values()) == {"ok"}
    assert levels(report).keys() >= {"clock", "workers", "disk", "file system", "database"}
    assert "task functions: 3" in text
    assert "ms for a durable commit" in text
    assert workspace.json("status")["queues"][0]["ready"] == 0


def test_a_doctor_leaves_nothing_behind(workspace):
    import apsw

    workspace.run("doctor")

    db = apsw.Connection(str(workspace.database))
    rows = [
        db.execute(f"SELECT count(*) FROM {table}").get
        for table in ("task", "payload", "enqueue_batch", "enqueue_batch_task")
    ]
    db.close()
    assert rows == [0, 0, 0, 0]


def test_a_doctor_fails_on_a_wrong_configuration_or_application(workspace):
    (workspace.directory / "tidegate.toml").write_text('app = "nowhere:app"')
    assert levels(workspace.json("doctor", code=1))["app"] == "fail"

    (workspace.directory / "tidegate.toml").write_text("apps = 1")
    report = workspace.json("doctor", code=1)
    assert report["healthy"] is False
    assert levels(report)["config"] == "fail"


def test_a_doctor_fails_on_a_file_that_is_no_database(workspace):
    workspace.database.write_bytes(b"no database, but long enough to be read as one" * 50)

    assert levels(workspace.json("doctor", code=1))["database"] == "fail"


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2", "3.52.0"])
def test_a_doctor_knows_which_sqlite_can_corrupt_files(version):
    assert check_sqlite(version).level is CheckLevel.FAIL


@pytest.mark.parametrize("version", ["3.51.3", "3.53.0", "3.54.1", "4.0.0"])
def test_a_doctor_knows_which_sqlite_is_sound(version):
    assert check_sqlite(version).level is CheckLevel.OK


def test_a_doctor_shows_where_limits_set_by_hand_differ_from_the_code(workspace):
    (workspace.directory / "declared_limits.py").write_text(
        "from tidegate import Tidegate\napp = Tidegate()\n"
        "app.upstream('openai', requests_per_minute=900, max_in_flight=5)\n"
    )
    minute = Window("requests_per_minute", 120, 60.0)
    stored = Limits((minute,), max_in_flight=5, retries_per_minute=7, set_by_person=("requests_per_minute",))
    workspace.ask(lambda store: store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "openai", stored)]))

    checks = workspace.json("doctor", "--app", "declared_limits:app")["checks"]

    set_by_person, later = [check for check in checks if check["name"] == "limits"]
    assert "openai, set by hand: requests_per_minute is 120, declared here as 900" in set_by_person["detail"]
    assert "tidegate upstreams set openai requests_per_minute=code" in set_by_person["fix"]
    assert "retries_per_minute is 7, declared here as not limited" in later["detail"]
    assert [set_by_person["level"], later["level"]] == ["warn", "warn"]
