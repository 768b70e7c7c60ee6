"""Configuration: what wins over what, and what each setting may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate import Tidegate
from tidegate.config import DEFAULT_DATABASE_URL, load_config, preset_toml
from tidegate.domain.retention import QueueRetention, Retention
from tidegate.domain.spec import Priority
from tidegate.errors import ConfigError
from tidegate.internals import core_of
from tidegate.policy.daily import DailyTime
from tidegate.worker.settings import Pool, Timings


def test_without_any_file_everything_is_the_default(load):
    config = load()

    assert config.database_url == DEFAULT_DATABASE_URL
    assert config.app is None
    assert config.pools == (Pool("default", ("*",)),)
    assert config.timings == Timings()
    assert config.path is None
    assert config.origins == {}


def test_a_whole_file_is_read(load, tmp_path):
    config = load("""
        app = "shop.app:queue"
        database = "sqlite:///shop.db"
        [worker]
        lease = "1m"
        beat = 5
        promote_batch = 50
        [pools.realtime]
        queues = ["realtime", "urgent"]
        concurrency = 3
        poll_interval = 0.1
        processes = 2
        memory_limit = "2GiB"
        memory_soft_limit = "1.5GiB"
        gpus = [0, "GPU-8a3f"]
        vram_limit = "20GiB"
        child_runs = 50
        fatal_errors = ["CUDA error", "NCCL"]
        strict = true
        shares = { bulk = 0.2 }
        [pools.rest]
        queues = ["*"]
        """)

    assert config.app == "shop.app:queue"
    assert config.database_url == "sqlite:///shop.db"
    assert config.timings == Timings(lease=60, beat=5, promote_batch=50)
    assert config.pools == (
        Pool(
            "realtime",
            ("realtime", "urgent"),
            concurrency=3,
            poll_interval=0.1,
            processes=2,
            memory_limit=2 * 2**30,
            memory_soft_limit=3 * 2**29,
            gpus=(0, "GPU-8a3f"),
            vram_limit=20 * 2**30,
            child_runs=50,
            fatal_errors=("CUDA error", "NCCL"),
            strict=True,
            shares={Priority.NORMAL: 0.1, Priority.BULK: 0.2},
        ),
        Pool("rest", ("*",)),
    )
    assert config.path == tmp_path / "tidegate.toml"
    assert config.origins["pools"] == "tidegate.toml"
    assert config.origins["timings.lease"] == "tidegate.toml"


def test_the_environment_wins_over_the_file(load):
    config = load(
        'app = "file:app"\ndatabase = "sqlite:///file.db"\n[worker]\nlease = 30',
        TIDEGATE_APP="env:app",
        TIDEGATE_DATABASE_URL="sqlite:///env.db",
        TIDEGATE_LEASE="90",
        TIDEGATE_BEAT="2.5",
        TIDEGATE_DRAIN_GRACE="2m",
        TIDEGATE_PROMOTE_BATCH="7",
        TIDEGATE_RETENTION_FINISHED="2d",
        TIDEGATE_RETENTION_DEAD="1w",
    )

    assert (config.app, config.database_url) == ("env:app", "sqlite:///env.db")
    assert config.timings == Timings(
        lease=90,
        beat=2.5,
        drain_grace=120,
        promote_batch=7,
    )
    assert config.retention == Retention(finished=2 * 86_400, dead=7 * 86_400)
    assert config.origins["database_url"] == "TIDEGATE_DATABASE_URL"
    assert config.origins["timings.lease"] == "TIDEGATE_LEASE"


def test_retention_is_read_for_all_queues_and_for_single_ones(load, tmp_path):
    config = load("""
        [retention]
        finished = "2d"
        cancelled = "1h"
        dead = inf
        redriven = "30d"
        results = "1d"
        archive = "old"
        archive_format = "parquet"
        [retention.queues."audit log"]
        finished = "1w"
        payloads = "1h"
        """)

    assert config.retention == Retention(
        finished="2d",
        cancelled="1h",
        dead=float("inf"),
        redriven="30d",
        results="1d",
        archive=str(tmp_path / "old"),
        archive_format="parquet",
        queues={"audit log": QueueRetention(finished="1w", payloads="1h")},
    )
    assert config.origins["retention.results"] == "tidegate.toml"


def test_the_environment_wins_over_the_file_for_retention_too(load, tmp_path):
    config = load(
        '[retention]\nresults = "1d"\narchive = "file"\n[retention.queues.audit]\nresults = "1w"',
        TIDEGATE_RETENTION_RESULTS="2h",
        TIDEGATE_RETENTION_ARCHIVE="variable",
    )

    assert config.retention.results == 7_200
    assert config.retention.archive == str(tmp_path / "variable")
    assert config.retention.queues == {"audit": QueueRetention(results="1w")}


def test_an_env_section_replaces_the_retention_of_the_queues_it_names(load):
    text = """
        [retention.queues.a]
        finished = "1d"
        [retention.queues.b]
        finished = "2d"
        [env.test.retention]
        dead = "1d"
        [env.test.retention.queues.b]
        dead = "1h"
        """

    retention = load(text, TIDEGATE_ENV="test").retention

    assert retention.dead == 86_400
    assert retention.queues == {"a": QueueRetention(finished="1d"), "b": QueueRetention(dead="1h")}


def test_tidegate_toml_is_read_instead_of_pyproject_toml(load, tmp_path):
    pyproject = '[tool.tidegate]\napp = "py:app"\ndatabase = "sqlite:///py.db"'

    alone = load(pyproject=pyproject)
    both = load('app = "toml:app"')

    assert (alone.app, alone.path) == ("py:app", tmp_path / "pyproject.toml")
    assert alone.origins["app"] == "pyproject.toml [tool.tidegate]"
    assert (both.app, both.database_url) == ("toml:app", DEFAULT_DATABASE_URL)


@pytest.mark.parametrize(
    "text", ["[tool.black]\nline-length = 1", "this is no TOML", '[project]\nname = "tidegate-x"']
)
def test_a_pyproject_without_our_section_is_ignored(load, text):
    assert load(pyproject=text).path is None


def test_an_env_section_wins_over_the_top_and_its_pools_replace_the_others(load):
    text = """
        database = "sqlite:///top.db"
        [worker]
        lease = 60
        beat = 4
        [pools.one]
        queues = ["one"]
        [env.development]
        database = "sqlite:///dev.db"
        [env.development.worker]
        beat = 1
        [env.development.pools.all]
        queues = ["*"]
        """

    assert load(text).pools == (Pool("one", ("one",)),)
    config = load(text, TIDEGATE_ENV="development")

    assert config.database_url == "sqlite:///dev.db"
    assert config.pools == (Pool("all", ("*",)),)
    assert config.timings == Timings(lease=60, beat=1)
    assert config.environment == "development"
    assert config.origins["pools"] == "tidegate.toml [env.development]"


def test_an_environment_without_a_section_uses_the_top_of_the_file(load):
    text = '[pools.one]\nqueues = ["one"]\n[env.development.pools.all]\nqueues = ["*"]'

    assert load(text, TIDEGATE_ENV="production").pools == (Pool("one", ("one",)),)


def test_a_short_lease_shortens_the_heartbeat(load):
    assert load("[worker]\nlease = 0.6").timings.beat == pytest.approx(0.2)
    assert load("[worker]\nlease = 300").timings.beat == 10


def test_the_database_url_can_come_from_a_file(load, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("postgresql://user:pass@host/db\n")

    config = load('database = "sqlite:///file.db"', TIDEGATE_DATABASE_URL_FILE=str(secret))

    assert config.database_url == "postgresql://user:pass@host/db"
    assert config.origins["database_url"] == "TIDEGATE_DATABASE_URL_FILE"


def test_an_empty_variable_counts_as_unset(load):
    assert load('app = "file:app"', TIDEGATE_APP="").app == "file:app"


def test_variables_that_others_set_with_our_prefix_are_left_alone(load):
    kubernetes = {
        "TIDEGATE_PORT": "tcp://10.0.0.1:80",
        "TIDEGATE_SERVICE_HOST": "10.0.0.1",
        "TIDEGATE_SERVICE_PORT": "80",
        "TIDEGATE_PORT_80_TCP_ADDR": "10.0.0.1",
        "TIDEGATE_PORT_80_TCP": "tcp://10.0.0.1:80",
    }

    assert load(**kubernetes) == load()


@pytest.mark.parametrize(
    ("text", "size"),
    [("500MB", 500_000_000), ("1.5 GiB", 3 * 2**29), ("64kiB", 65_536), ("1024", 1024), ("1KB", 1000)],
)
def test_sizes_are_read_with_their_unit(load, text, size):
    assert load(f'[pools.a]\nmemory_limit = "{text}"').pools[0].memory_limit == size


def test_the_preset_is_valid_and_holds_the_three_pools(load):
    config = load(preset_toml())

    assert config.app == "app:app"
    assert config.database_url == DEFAULT_DATABASE_URL
    assert [(p.queues, p.concurrency, p.poll_interval, p.processes) for p in config.pools] == [
        (("realtime",), "auto", 0.1, 1),
        (("critical", "default"), "auto", 0.5, 1),
        (("batch", "embeddings", "low", "*"), "auto", 2.0, 1),
    ]


def test_the_preset_has_one_pool_for_everything_in_development(load):
    config = load(preset_toml(), TIDEGATE_ENV="development")

    assert [pool.queues for pool in config.pools] == [("*",)]
    assert config.timings == Timings()


def test_the_working_directory_and_the_process_environment_are_the_default(tmp_path, monkeypatch):
    (tmp_path / "tidegate.toml").write_text('app = "here:app"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEGATE_LEASE", "45")

    config = load_config()

    assert (config.app, config.timings.lease) == ("here:app", 45)


def test_the_retry_budget_of_the_system_is_read_and_code_wins_over_it(load, tmp_path, monkeypatch):
    config = load('retries_per_minute = 90\nretry_window = "10s"\n[env.test]\nretries_per_minute = 30')
    assert (config.retries_per_minute, config.retry_window) == (90, 10)
    assert load(TIDEGATE_ENV="test").retries_per_minute == 30
    monkeypatch.chdir(tmp_path)
    for app, amount in ((Tidegate(), 90), (Tidegate(retries_per_minute=5), 5)):
        system = core_of(app).declared()[0].limits
        assert (system.retries_per_minute, system.retry_window_seconds) == (amount, 10)


@pytest.mark.parametrize("value", ['"jobs"', '["jobs.py"]', '["my-jobs"]', "[]", "[1]"])
def test_modules_are_a_list_of_modules(load, value):
    with pytest.raises(ConfigError, match=r"tidegate.toml: modules = "):
        load(f"modules = {value}")
    assert load('modules = ["jobs", "billing.tasks"]').modules == ("jobs", "billing.tasks")


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("", DailyTime(8, 0, "UTC")),
        ('daily_summary = "off"', None),
        (
            'daily_summary = "07:30"\ndaily_summary_timezone = "Europe/Berlin"',
            DailyTime(7, 30, "Europe/Berlin"),
        ),
        ('daily_summary_timezone = "Asia/Tokyo"', DailyTime(8, 0, "Asia/Tokyo")),
    ],
)
def test_the_time_of_the_daily_summary_is_set_or_turned_off(
    tmp_path: Path, text: str, at: DailyTime | None
) -> None:
    (tmp_path / "tidegate.toml").write_text(f"[alerts]\n{text}\n")
    assert load_config(tmp_path, {}).alerts.daily_summary == at


def test_a_wrong_time_of_the_daily_summary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tidegate.toml").write_text('[alerts]\ndaily_summary = "25:00"\n')
    with pytest.raises(ConfigError, match="daily_summary"):
        load_config(tmp_path, {})
