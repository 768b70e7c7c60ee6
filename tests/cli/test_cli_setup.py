"""`init`, `worker`, `dev`, `demo`: what they write and what they pass on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tidegate.alerts.settings import AlertSettings
from tidegate.config import load_config, preset_toml
from tidegate.domain.retention import Retention
from tidegate.worker.settings import Pool, Timings


@pytest.fixture
def calls(monkeypatch):
    """Record what the worker would be started with."""
    from tidegate.worker.supervisor import run

    calls = []

    def run_worker(application, **options):
        calls.append((application, options, dict(os.environ)))
        return 7

    monkeypatch.setattr(run, "run_worker", run_worker)
    return calls


POOLS = """
app = "shop:app"
[pools.fast]
queues = ["fast"]
concurrency = 3
[pools.slow]
queues = ["slow"]
processes = 2
"""


def test_init_writes_a_configuration_and_an_application(empty):
    result = empty.run("init")

    assert result.stdout == "wrote tidegate.toml\nwrote app.py\n"
    assert (empty.directory / "tidegate.toml").read_text() == preset_toml()
    assert load_config().app == "app:app"
    compile((empty.directory / "app.py").read_text(), "app.py", "exec")


def test_what_init_writes_can_be_used_at_once(empty):
    empty.run("init")

    ran = subprocess.run(
        [sys.executable, "-m", "tidegate.cli", "enqueue", "greet", "Ada", "--json"],
        cwd=empty.directory,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert json.loads(ran.stdout)["function"] == "app:greet", ran.stderr


def test_init_does_not_overwrite(empty):
    (empty.directory / "tidegate.toml").write_text('app = "mine:app"')
    (empty.directory / "app.py").write_text("mine = True")

    result = empty.run("init", code=4)
    assert result.stdout == ""
    assert "--force" in result.stderr
    assert (empty.directory / "tidegate.toml").read_text() == 'app = "mine:app"'

    assert empty.json("init", "--force") == {"written": ["tidegate.toml"]}
    assert (empty.directory / "tidegate.toml").read_text() == preset_toml()
    assert (empty.directory / "app.py").read_text() == "mine = True"


def test_worker_uses_the_applications_settings_by_default(empty, calls):
    empty.run("worker", "shop:app", code=7)

    ((application, options, _),) = calls
    assert application == "shop:app"
    assert options == {
        "pools": None,
        "timings": None,
        "database_url": None,
        "name": None,
        "maintenance": True,
        "alerts": AlertSettings(),
    }


def test_worker_can_run_without_maintenance(empty, calls):
    empty.run("worker", "shop:app", "--no-maintenance", code=7)

    assert calls[0][1]["maintenance"] is False


def test_a_scheduler_needs_a_database_and_no_application(empty, monkeypatch):
    from tidegate.worker.supervisor import scheduler

    calls = []

    def run_scheduler(database_url, **options):
        calls.append((database_url, options))
        return 7

    monkeypatch.setattr(scheduler, "run_scheduler", run_scheduler)
    (empty.directory / "tidegate.toml").write_text(
        'database = "sqlite:///shop.db"\n[worker]\nreap = 2\n[retention]\ndead = "1d"'
    )
    empty.run("scheduler", code=7)
    empty.run("scheduler", "--database", "sqlite:///other.db", "--name", "s1", code=7)

    assert calls == [
        (
            "sqlite:///shop.db",
            {
                "timings": Timings(reap=2),
                "retention": Retention(dead="1d"),
                "name": None,
                "alerts": AlertSettings(),
            },
        ),
        (
            "sqlite:///other.db",
            {
                "timings": Timings(reap=2),
                "retention": Retention(dead="1d"),
                "name": "s1",
                "alerts": AlertSettings(),
            },
        ),
    ]


def test_worker_takes_the_configured_application(empty, calls):
    (empty.directory / "tidegate.toml").write_text(POOLS)

    empty.run("worker", code=7)
    empty.run("worker", code=7, TIDEGATE_APP="other:app")
    empty.run("worker", "third:app", code=7, TIDEGATE_APP="other:app")

    assert [application for application, _, _ in calls] == ["shop:app", "other:app", "third:app"]


def test_worker_without_an_application_prints_how_to_name_one(empty, calls):
    result = empty.run("worker", code=78)

    assert "no application is given or configured" in result.stderr
    assert calls == []


CHOICES = {
    ("--pool", "slow"): (Pool("slow", ("slow",), processes=2),),
    ("--pool", "slow", "--pool", "fast"): (
        Pool("slow", ("slow",), processes=2),
        Pool("fast", ("fast",), concurrency=3),
    ),
    ("--concurrency", "5"): (Pool("fast", ("fast",), concurrency=5), Pool("slow", ("slow",), 5, processes=2)),
    ("--pool", "slow", "--processes", "4"): (Pool("slow", ("slow",), processes=4),),
    ("--queues", "a, b"): (Pool("default", ("a", "b")),),
    ("--pool", "fast", "--queues", "a"): (Pool("fast", ("a",), concurrency=3),),
}


@pytest.mark.parametrize("args", CHOICES, ids=" ".join)
def test_worker_options_choose_and_change_pools(empty, calls, args):
    (empty.directory / "tidegate.toml").write_text(POOLS)

    empty.run("worker", *args, code=7)

    assert calls[0][1]["pools"] == CHOICES[args]


@pytest.mark.parametrize(
    ("args", "reported"),
    [
        (("--pool", "fats"), "did you mean fast?"),
        (("--pool", "fast", "--pool", "slow", "--queues", "a"), "at most one --pool"),
        (("--concurrency", "0"), "--concurrency"),
        (("--grace", "soon"), "30s"),
    ],
)
def test_worker_options_that_cannot_work_are_wrong_usage(empty, calls, args, reported):
    (empty.directory / "tidegate.toml").write_text(POOLS)

    assert reported in empty.run("worker", *args, code=2).stderr
    assert calls == []


def test_worker_passes_on_grace_name_and_database(empty, calls):
    (empty.directory / "tidegate.toml").write_text(POOLS + "[worker]\nlease = 60")

    empty.run("worker", "--grace", "2m", "--name", "w7", "--database", "sqlite:///x.db", code=7)

    options = calls[0][1]
    assert options["timings"] == Timings(lease=60, drain_grace=120)
    assert (options["name"], options["database_url"]) == ("w7", "sqlite:///x.db")


def test_dev_runs_one_pool_for_everything_and_reloads(empty, calls):
    (empty.directory / "tidegate.toml").write_text(POOLS)

    empty.run("dev", code=7)

    application, options, env = calls[0]
    assert application == "shop:app"
    assert [pool.queues for pool in options["pools"]] == [("*",)]
    assert options["reload"] is True
    assert env["TIDEGATE_ENV"] == "development"


def test_dev_takes_the_pools_of_the_development_section(empty, calls):
    (empty.directory / "tidegate.toml").write_text(
        POOLS + '[env.development.pools.mine]\nqueues = ["fast", "*"]'
    )

    empty.run("dev", code=7)

    assert calls[0][1]["pools"] == (Pool("mine", ("fast", "*")),)


def test_dev_keeps_an_environment_that_is_chosen(empty, calls):
    (empty.directory / "tidegate.toml").write_text(POOLS + '[env.ci.pools.mine]\nqueues = ["x"]')

    empty.run("dev", code=7, TIDEGATE_ENV="ci")

    assert calls[0][1]["pools"] == (Pool("mine", ("x",)),)


def test_demo_passes_on_json_and_its_exit_code(empty, monkeypatch):
    seen = []
    demo = types.ModuleType("tidegate.testing.demo")
    demo.run_demo = lambda **options: seen.append(options) or 1
    monkeypatch.setitem(sys.modules, "tidegate.testing.demo", demo)

    empty.run("demo", "--json", "--tasks", "20", "--seconds", "10", "--directory", "kept", code=1)

    assert seen == [{"json": True, "tasks": 20, "seconds": 10.0, "directory": Path("kept")}]


def test_demo_names_the_extra_to_install(empty, monkeypatch):
    monkeypatch.delitem(sys.modules, "tidegate.testing.demo", raising=False)
    monkeypatch.setitem(sys.modules, "tidegate.testing.demo", None)

    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name == "tidegate.testing.demo":
                raise ModuleNotFoundError("No module named 'httpx2'", name="httpx2")

    monkeypatch.delitem(sys.modules, "tidegate.testing.demo")
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])

    assert "pip install 'tidegate[demo]'" in empty.run("demo", code=78).stderr
