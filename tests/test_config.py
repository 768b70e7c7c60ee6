"""Configuration: what wins over what, and how every mistake is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidegate import Tidegate
from tidegate.config import DEFAULT_DATABASE_URL, Config, load_config, preset_toml
from tidegate.domain.spec import Priority
from tidegate.errors import ConfigError
from tidegate.internals import core_of
from tidegate.worker.settings import Pool, Timings


@pytest.fixture
def load(tmp_path: Path):
    """Return a function that loads the configuration of a directory with this tidegate.toml."""

    def load(toml: str | None = None, pyproject: str | None = None, **env: str) -> Config:
        if toml is not None:
            (tmp_path / "tidegate.toml").write_text(toml)
        if pyproject is not None:
            (tmp_path / "pyproject.toml").write_text(pyproject)
        return load_config(tmp_path, env)

    return load


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
        retention_dead = "30d"
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
    assert config.timings == Timings(lease=60, beat=5, promote_batch=50, retention_dead=30 * 86_400)
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
        retention_finished=2 * 86_400,
        retention_dead=7 * 86_400,
    )
    assert config.origins["database_url"] == "TIDEGATE_DATABASE_URL"
    assert config.origins["timings.lease"] == "TIDEGATE_LEASE"


@pytest.mark.parametrize("kind", ["FINISHED", "DEAD"])
def test_a_negative_retention_is_refused(load, kind):
    with pytest.raises(ConfigError, match=f"retention_{kind.lower()} = -7"):
        load(**{f"TIDEGATE_RETENTION_{kind}": "-7"})


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


def test_a_misspelt_environment_name_is_refused(load):
    with pytest.raises(ConfigError, match=r"TIDEGATE_ENV=developement.*did you mean development\?"):
        load('[env.development.pools.all]\nqueues = ["*"]', TIDEGATE_ENV="developement")


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


def test_a_misspelt_variable_is_refused(load):
    with pytest.raises(ConfigError, match=r"TIDEGATE_DATABSE_URL.*did you mean TIDEGATE_DATABASE_URL"):
        load(TIDEGATE_DATABSE_URL="sqlite:///x.db")


def test_variables_that_others_set_with_our_prefix_are_left_alone(load):
    kubernetes = {
        "TIDEGATE_PORT": "tcp://10.0.0.1:80",
        "TIDEGATE_SERVICE_HOST": "10.0.0.1",
        "TIDEGATE_SERVICE_PORT": "80",
        "TIDEGATE_PORT_80_TCP_ADDR": "10.0.0.1",
        "TIDEGATE_PORT_80_TCP": "tcp://10.0.0.1:80",
    }

    assert load(**kubernetes) == load()


MISTAKES = {
    "databse = 'x'": r"tidegate.toml: databse = 'x'.*did you mean database\?",
    "app = 5": r"tidegate.toml: app = 5.*text in quotes",
    "app = 'no app'": r"tidegate.toml: app = 'no app'.*module and attribute",
    "database = ''": r"tidegate.toml: database = ''.*text in quotes",
    "worker = 5": r"tidegate.toml: worker = 5.*make it a table: \[worker\]",
    "[worker]\nleese = 3": r"tidegate.toml \[worker\]: leese = 3.*did you mean lease\?",
    "[worker]\nlease = 'soon'": r"tidegate.toml \[worker\]: lease = 'soon'.*30s",
    "[worker]\nlease = true": r"\[worker\]: lease = True.*30s",
    "[worker]\nlease = nan": r"\[worker\]: lease = nan.*30s",
    "[worker]\nlease = 0": r"tidegate.toml: lease=0.*above 0",
    "[worker]\nlease = 5\nbeat = 4": r"tidegate.toml: beat=4.*half the lease",
    "[worker]\npromote_batch = 2.5": r"promote_batch = 2.5.*whole number",
    "[pools]\nrealtime = 3": r"tidegate.toml \[pools\]: realtime = 3.*make it a table: \[pools.realtime\]",
    "[pools.a]\nconcurency = 3": r"\[pools.a\]: concurency = 3.*did you mean concurrency\?",
    "[pools.a]\nwombat = {}": r"\[pools.a\]: wombat = a table.*known here: child_runs, concurrency",
    "[pools.a]\nqueues = 'x'": r"\[pools.a\]: queues = 'x'.*write a list",
    "[pools.a]\nqueues = []": r"\[pools.a\]: queues = \[\].*write a list",
    "[pools.a]\nqueues = [1]": r"\[pools.a\]: queues = \[1\].*printable",
    "[pools.a]\nqueues = ['x', 'x']": r"\[pools.a\]: queues.*once",
    "[pools.a]\nconcurrency = 0": r"\[pools.a\]: concurrency = 0.*from 1",
    "[pools.a]\nconcurrency = true": r"\[pools.a\]: concurrency = True.*whole number",
    "[pools.a]\nconcurrency = 2.5": r"\[pools.a\]: concurrency = 2.5.*whole number",
    "[pools.a]\npoll_interval = 0": r"\[pools.a\]: .*poll_interval=0.*0.005",
    "[pools.a]\nstrict = 1": r"\[pools.a\]: strict = 1.*true or false",
    "[pools.a]\nmemory_limit = 'lots'": r"\[pools.a\]: memory_limit = 'lots'.*300MiB",
    "[pools.a]\nmemory_limit = 0": r"\[pools.a\]: memory_limit = 0.*300MiB",
    "[pools.a]\nmemory_limit = '1GB'\nmemory_soft_limit = '1GB'": r"memory_soft_limit=.*less than memory_limit",
    "[pools.a]\nvram_limit = '0GiB'": r"\[pools.a\]: vram_limit = '0GiB'.*2GiB",
    "[pools.a]\ngpus = 2": r"\[pools.a\]: gpus = 2.*\[0, 1\]",
    "[pools.a]\ngpus = [-1]": r"\[pools.a\]: gpus = \[-1\].*\[0, 1\]",
    "[pools.a]\ngpus = [true]": r"\[pools.a\]: gpus = \[True\].*\[0, 1\]",
    "[pools.a]\nchild_runs = 0": r"\[pools.a\]: child_runs = 0.*from 1",
    "[pools.a]\nfatal_errors = 'CUDA'": r"\[pools.a\]: fatal_errors = 'CUDA'.*list of texts",
    "[pools.a]\nfatal_errors = ['']": r"\[pools.a\]: fatal_errors = \[''\].*list of texts",
    "[pools.a]\nshares = {bulk = 2}": r"\[pools.a\]: .*shares.*0.9",
    "[pools.a]\nshares = {bulc = 0.1}": r"\[pools.a.shares\]: bulc.*did you mean bulk\?",
    "[pools.a]\nshares = {interactive = 0.1}": r"\[pools.a.shares\]: interactive: only the lower priorities",
    "[pools.a]\nshares = {bulk = 'all'}": r"\[pools.a.shares\]: bulk = 'all'.*a number",
    "[pools.' ']": r"\[pools. \]: pool name=' '",
    "[env]\ndev = 1": r"tidegate.toml \[env\]: dev = 1.*make it a table",
    "[env.dev]\nenv = 1": r"tidegate.toml \[env.dev\]: env = 1: there is no such setting",
    "[env.dev.worker]\nlease = 'soon'": r"tidegate.toml \[env.dev.worker\]: lease = 'soon'",
    "app = [\n1,,\n": r"tidegate.toml is not valid TOML.*line 2",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_reported_with_its_location_and_the_fix(load, text):
    with pytest.raises(ConfigError, match=MISTAKES[text]):
        load(text, TIDEGATE_ENV="dev")


def test_a_mistake_in_pyproject_toml_names_its_section_there(load):
    with pytest.raises(ConfigError, match=r"pyproject.toml \[tool.tidegate.pools.a\]: strict = 1"):
        load(pyproject="[tool.tidegate.pools.a]\nstrict = 1")


def test_a_mistake_in_the_section_of_another_environment_is_reported_too(load):
    with pytest.raises(ConfigError, match=r"\[env.production\]: leases = 3"):
        load("[env.production]\nleases = 3", TIDEGATE_ENV="development")


def test_a_mistake_in_a_variable_names_it(load):
    with pytest.raises(ConfigError, match="TIDEGATE_LEASE: lease = 'soon'"):
        load(TIDEGATE_LEASE="soon")
    with pytest.raises(ConfigError, match="TIDEGATE_BEAT: beat=20"):
        load(TIDEGATE_BEAT="20")
    with pytest.raises(ConfigError, match="TIDEGATE_APP: app = 'a b'"):
        load(TIDEGATE_APP="a b")


def test_two_ways_to_name_the_database_are_refused(load, tmp_path):
    with pytest.raises(ConfigError, match="unset one"):
        load(TIDEGATE_DATABASE_URL="sqlite:///x.db", TIDEGATE_DATABASE_URL_FILE=str(tmp_path / "x"))


@pytest.mark.parametrize("content", [None, "", b"\xff"])
def test_a_secret_file_that_holds_no_url_is_refused(load, tmp_path, content):
    secret = tmp_path / "secret"
    if content is not None:
        secret.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(ConfigError, match=r"TIDEGATE_DATABASE_URL_FILE=.*secret"):
        load(TIDEGATE_DATABASE_URL_FILE=str(secret))


def test_a_file_that_cannot_be_read_is_refused(load, tmp_path):
    (tmp_path / "tidegate.toml").mkdir()

    with pytest.raises(ConfigError, match=r"tidegate.toml cannot be read"):
        load()


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
        (("realtime",), 3, 0.1, 1),
        (("critical", "default"), 2, 0.5, 1),
        (("batch", "embeddings", "low", "*"), 2, 2.0, 1),
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


@pytest.mark.parametrize(
    "line", ["retries_per_minute = 0", 'retries_per_minute = "many"', "retry_window = 0"]
)
def test_a_retry_budget_that_cannot_work_is_refused_with_its_place(load, line):
    with pytest.raises(ConfigError, match=rf"tidegate.toml: {line.split()[0]}"):
        load(line)


# --- finding the project ---------------------------------------------------------------------------------


def test_the_file_is_found_from_a_directory_below_it_and_its_paths_count_from_it(tmp_path):
    (tmp_path / "tidegate.toml").write_text('app = "a:app"\ndatabase = "sqlite:///data/shop.db"')
    below = tmp_path / "src" / "shop"
    below.mkdir(parents=True)

    config = load_config(below, {})

    assert (config.path, config.app) == (tmp_path / "tidegate.toml", "a:app")
    assert config.database_url == f"sqlite:///{tmp_path}/data/shop.db"
    assert load_config(below, {"TIDEGATE_DATABASE_URL": "sqlite:///x.db"}).database_url == "sqlite:///x.db"


def test_a_store_that_is_there_above_is_used_without_any_file(tmp_path):
    (tmp_path / ".tidegate").mkdir()
    (tmp_path / ".tidegate" / "tidegate.db").touch()
    (tmp_path / "scripts").mkdir()

    assert load_config(tmp_path / "scripts", {}).database_url == f"sqlite:///{tmp_path}/.tidegate/tidegate.db"
    assert load_config(tmp_path, {}).database_url == DEFAULT_DATABASE_URL


def test_nothing_above_a_repository_or_in_a_directory_of_others_is_used(tmp_path):
    (tmp_path / "tidegate.toml").write_text('app = "a:app"')
    repository, shared = tmp_path / "repository", tmp_path / "shared"
    (repository / ".git").mkdir(parents=True)
    (repository / "src").mkdir()
    (shared / "mine").mkdir(parents=True)
    (shared / "tidegate.toml").write_text('app = "planted:app"')
    shared.chmod(0o777)

    assert load_config(repository / "src", {}).path is None
    assert load_config(shared / "mine", {}).path is None


SUBMIT = "from tidegate import Tidegate\nprint(Tidegate().url)\n"


def test_a_script_started_from_elsewhere_uses_the_project_it_lies_in(tmp_path):
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "submit.py").write_text(SUBMIT)
    (project / "tidegate.toml").write_text('app = "app:app"')

    done = subprocess.run(
        [sys.executable, project / "submit.py"], cwd=elsewhere, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == f"sqlite:///{project}/.tidegate/tidegate.db"


def test_a_new_store_away_from_its_script_is_logged_and_kept_out_of_git(tmp_path):
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "submit.py").write_text(
        "import asyncio\nfrom tidegate import Tidegate\nfrom tidegate.internals import core_of\nasyncio.run(core_of(Tidegate()).opened_store())\n"
    )
    command = [sys.executable, project / "submit.py"]

    far, near = (
        subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stderr
        for cwd in (elsewhere, project)
    )

    assert f"created a new store at {elsewhere}/.tidegate/tidegate.db" in far
    assert near == ""
    assert (project / ".tidegate" / ".gitignore").read_text().endswith("*\n")


@pytest.mark.parametrize("value", ['"jobs"', '["jobs.py"]', '["my-jobs"]', "[]", "[1]"])
def test_modules_are_a_list_of_modules(load, value):
    with pytest.raises(ConfigError, match=r"tidegate.toml: modules = "):
        load(f"modules = {value}")
    assert load('modules = ["jobs", "billing.tasks"]').modules == ("jobs", "billing.tasks")
