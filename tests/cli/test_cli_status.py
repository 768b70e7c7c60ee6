"""`tidegate status`, `db` and `doctor`."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from cli_support import dead, retrying, succeeded

from tidegate.cli import status
from tidegate.cli.doctor import Level, check_sqlite
from tidegate.domain.upstream import Declared, GateKind, Limits, Window
from tidegate.store.figures import drain_of
from tidegate.store.moving import source
from tidegate.store.rows import QueueStats
from tidegate.store.serving import late_seconds


def test_an_empty_database_says_how_to_go_on(place):
    text = place.run("status").stdout

    assert "tidegate enqueue" in text
    assert "tidegate worker" in text
    assert place.json("status")["queues"] == []


def test_each_queue_is_counted_by_state(place):
    place.add()
    place.work(retrying)
    place.add()
    place.work(dead)
    place.add(2)
    place.work(succeeded)
    place.add()
    worker_id = place.work(lambda task: None)
    place.add(3)
    place.add(2, delay_seconds=600)
    place.add(queue="other")

    status = place.json("status")
    default, other = status["queues"]

    assert (default["queue"], other["queue"]) == ("default", "other")
    counts = {
        name: default[name] for name in ("ready", "running", "retrying", "scheduled", "dead", "blocked")
    }
    assert counts == {"ready": 3, "running": 1, "retrying": 1, "scheduled": 2, "dead": 1, "blocked": 0}
    assert default["done_last_10_minutes"] == 3
    assert default["drain"]["kind"] == "seconds"
    assert other["drain"] == {"kind": "unknown", "seconds": None}
    (busy,) = [worker for worker in status["workers"] if worker["worker_id"] == worker_id]
    assert (busy["live"], busy["running"], busy["name"]) == (True, 1, "w1")


def test_the_table_shows_queues_and_workers(place):
    place.add(3)
    place.work(lambda task: None, slots=1)

    head, line, _, worker_head, worker, *_ = place.run("status").stdout.splitlines()

    assert head.split()[:5] == ["QUEUE", "READY", "PACED", "BLOCKED", "RUNNING"]
    assert head.split()[5:8] == ["RETRYING", "SCHEDULED", "DEAD"]
    assert line.split()[:5] == ["default", "2", "0", "0", "1"]
    assert line.split()[-1] == "unknown"
    assert worker_head.split()[0] == "WORKER"
    assert worker.split()[:4] == ["w1", "default", "host:123", "1/1"]


def test_what_holds_paced_and_blocked_tasks_is_said_below_the_table(place):
    place.ask(lambda store: store.declare([Declared(GateKind.UPSTREAM, "u", Limits(max_in_flight=1))]))
    place.add(50, upstream="u")
    place.add(2, queue="lonely", function="gone:away")
    place.declare(place.greet)
    place.work(lambda task: None, functions=[place.greet])

    output = place.run("status").stdout
    default, lonely = place.json("status")["queues"]

    assert (default["ready"], default["paced"], default["blocked"]) == (0, 49, 0)
    assert (lonely["ready"], lonely["paced"], lonely["blocked"]) == (0, 0, 2)
    assert "49 paced in default: upstream u: limit: max_in_flight 1, 1 in flight" in output
    assert "2 blocked in lonely: no live worker that serves lonely declares the function gone:away" in output
    assert [wait["kind"] for wait in default["waits"] + lonely["waits"]] == ["paced", "blocked"]


def test_a_worker_that_misses_its_beat_is_marked_and_a_clock_set_back_shows_no_beat_to_come(place):
    place.add()
    place.work(lambda task: None)
    now = place.ask(lambda store: store.now())
    (worker,) = place.ask(lambda store: store.workers())

    def shown(at):
        beat = replace(worker, beat_at=at, expires_at=at + 30.0)
        return status._beat(beat, now), late_seconds(beat, now)

    assert shown(now - 10.0) == ("10 s ago", None)
    assert shown(now - 13.0) == ("no beat for 13 s", pytest.approx(13.0))
    assert shown(now + 3600.0) == ("0 s ago", None)
    assert place.json("status")["workers"][0]["late_seconds"] is None


@pytest.mark.parametrize(
    ("stats", "words"),
    [
        (QueueStats("q"), "0 s"),
        (QueueStats("q", ready=5), "unknown"),
        (QueueStats("q", ready=5, running=3, history_seconds=600), "never"),
        (QueueStats("q", ready=100, blocked=900, done_last_10_minutes=50, history_seconds=600), "20 min"),
        (QueueStats("q", paced=100, done_last_10_minutes=50, history_seconds=600), "20 min"),
        (QueueStats("q", paced=15, limited=15, limited_seconds=30.0, history_seconds=600), "30 s"),
        (
            QueueStats("q", ready=75, done_last_10_minutes=21, done_last_minute=21, history_seconds=600),
            "3.57 min",
        ),
        (QueueStats("q", running=9, blocked=9, retrying=9, scheduled=9), "0 s"),
    ],
)
def test_the_drain_estimate_counts_what_is_ready(stats, words):
    assert str(drain_of(stats)) == words


def test_a_watch_opens_the_file_no_more_often_the_longer_it_looks(place, monkeypatch):
    class EnoughError(Exception):
        pass

    class Counted(source.Source):
        def __init__(self, path):
            opened.append(path)
            super().__init__(path)

    async def look(store):
        if next(looks) > 5:
            raise EnoughError
        return status.Overview(0.0, [], [], [])

    opened, looks = [], itertools.count(1)
    monkeypatch.setattr(source, "Source", Counted)
    monkeypatch.setattr(status, "look", look)
    monkeypatch.setattr(status, "_WATCH_SECONDS", 0.0)
    with pytest.raises(EnoughError):
        place.run("status", "--watch", "--json")
    assert len(opened) == 2, "to open the store, and to watch"


def test_db_upgrade_makes_the_database_and_is_safe_to_repeat(empty):
    assert empty.json("db", "upgrade")["applied"] == ["001_foundation"]
    assert empty.json("db", "upgrade") == {"applied": []}
    assert "up to date" in empty.run("db", "upgrade").stderr


def test_db_check_finds_a_sound_database_sound(place):
    assert place.run("db", "check").stdout == "sound\n"
    assert place.json("db", "check") == {"sound": True, "faults": []}


def test_db_check_names_the_remedy_for_runs_without_a_worker_and_repair_gives_them_one(place):
    import apsw

    db = apsw.Connection(str(place.database))
    db.execute(
        "INSERT INTO running (task_id, run, worker_id, queue, priority, upstream, function, tenant, ready_at, "
        "started_at, crash_limit, crash_base_seconds, crash_cap_seconds) "
        "VALUES (zeroblob(16), 1, 'gone', 'q', 1, '', 'f', '', 0, 0, 3, 1, 1)"
    )
    db.close()
    found = place.run("db", "check", code=1)
    assert "1 runs belong to no worker" in found.stdout
    assert "tidegate db check --repair" in found.stdout
    repaired = place.run("db", "check", "--repair", code=1)  # the row itself still belongs to no task
    assert "1 workers have a row again: gone" in repaired.stdout
    assert "belong to no worker" not in repaired.stdout
    assert place.json("db", "check", "--repair", code=1)["restored"] == []


def test_a_schema_that_is_newer_is_told(place):
    import apsw

    db = apsw.Connection(str(place.database))
    db.execute("INSERT INTO migration (number, name, applied_at) VALUES (999, '999_later', 0)")

    report = place.json("doctor")
    (finding,) = [check for check in report["checks"] if check["name"] == "database"]
    assert (report["healthy"], finding["level"]) == (True, "warn")
    assert "newer than this version of Tidegate by 1 migration, which it can work with" in finding["detail"]
    place.run("status")

    db.execute("UPDATE compatible SET since = 999")
    db.close()

    assert "TG201" in place.run("status", code=78).stderr
    (finding,) = [check for check in place.json("doctor", code=1)["checks"] if check["name"] == "database"]
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


def test_a_doctor_finds_nothing_wrong_with_a_working_set_up(place):
    (place.directory / "tidegate.toml").write_text(
        f'app = "{place.app}"\n[pools.all]\nqueues = ["*"]\nmemory_limit = "2GiB"'
    )
    place.add()
    place.work(lambda task: None)

    report = place.json("doctor")
    text = place.run("doctor").stdout

    assert set(levels(report).values()) == {"ok"}
    assert levels(report).keys() >= {"clock", "workers", "disk", "file system", "database"}
    assert "task functions: 3" in text
    assert "ms for a durable commit" in text
    assert place.json("status")["queues"][0]["ready"] == 0


def test_a_doctor_leaves_nothing_behind(place):
    import apsw

    place.run("doctor")

    db = apsw.Connection(str(place.database))
    rows = [
        db.execute(f"SELECT count(*) FROM {table}").get for table in ("task", "payload", "stage", "staged")
    ]
    db.close()
    assert rows == [0, 0, 0, 0]


def test_a_doctor_fails_on_a_wrong_configuration_or_application(place):
    (place.directory / "tidegate.toml").write_text('app = "nowhere:app"')
    assert levels(place.json("doctor", code=1))["app"] == "fail"

    (place.directory / "tidegate.toml").write_text("apps = 1")
    report = place.json("doctor", code=1)
    assert report["healthy"] is False
    assert levels(report)["config"] == "fail"


def test_a_doctor_fails_on_a_file_that_is_no_database(place):
    place.database.write_bytes(b"no database, but long enough to be read as one" * 50)

    assert levels(place.json("doctor", code=1))["database"] == "fail"


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2", "3.52.0"])
def test_a_doctor_knows_which_sqlite_can_corrupt_files(version):
    assert check_sqlite(version).level is Level.FAIL


@pytest.mark.parametrize("version", ["3.51.3", "3.53.0", "3.54.1", "4.0.0"])
def test_a_doctor_knows_which_sqlite_is_sound(version):
    assert check_sqlite(version).level is Level.OK


def test_a_doctor_shows_where_limits_set_by_hand_differ_from_the_code(place):
    (place.directory / "limits.py").write_text(
        "from tidegate import Tidegate\napp = Tidegate()\n"
        "app.upstream('openai', requests_per_minute=900, max_in_flight=5)\n"
    )
    minute = Window("requests_per_minute", 120, 60.0)
    stored = Limits((minute,), max_in_flight=5, retries_per_minute=7, by_hand=("requests_per_minute",))
    place.ask(lambda store: store.declare([Declared(GateKind.UPSTREAM, "openai", stored)]))

    checks = place.json("doctor", "--app", "limits:app")["checks"]

    by_hand, later = [check for check in checks if check["name"] == "limits"]
    assert "openai, by hand: requests_per_minute is 120, declared here as 900" in by_hand["detail"]
    assert "tidegate upstreams set openai requests_per_minute=code" in by_hand["fix"]
    assert "retries_per_minute is 7, declared here as not limited" in later["detail"]
    assert [by_hand["level"], later["level"]] == ["warn", "warn"]
