"""Every mistake in a configuration is reported with its place and the fix."""

from __future__ import annotations

import pytest

from tidegate.errors import ConfigError


@pytest.mark.parametrize("kind", ["FINISHED", "DEAD"])
def test_a_negative_retention_is_refused(load, kind):
    with pytest.raises(ConfigError, match=f"TIDEGATE_RETENTION_{kind}: {kind.lower()} = -7"):
        load(**{f"TIDEGATE_RETENTION_{kind}": "-7"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[retention]\nfinishd = "1d"', r"\[retention\]: finishd = '1d'.*did you mean finished"),
        ('[retention]\ndead = "soon"', r"\[retention\]: dead = 'soon'"),
        ('[retention]\narchive_format = "csv"', r"archive_format = 'csv'.*use one of ndjson, parquet"),
        ('[retention.queues.a]\narchive = "x"', r"\[retention.queues.a\]: archive = 'x'"),
        ('[retention.queues]\na = "1d"', r"\[retention.queues\]: a = '1d'.*make it a table"),
        ('[retention.queues." a"]\ndead = "1d"', r"queue=' a'"),
        ('[worker]\nretention_dead = "1d"', r"\[worker\]: retention_dead = '1d': there is no such setting"),
    ],
)
def test_a_mistake_in_the_retention_is_named(load, text, message):
    with pytest.raises(ConfigError, match=message):
        load(text)


def test_a_misspelt_environment_name_is_refused(load):
    with pytest.raises(ConfigError, match=r"TIDEGATE_ENV=developement.*did you mean development\?"):
        load('[env.development.pools.all]\nqueues = ["*"]', TIDEGATE_ENV="developement")


def test_a_misspelt_variable_is_refused(load):
    with pytest.raises(ConfigError, match=r"TIDEGATE_DATABSE_URL.*did you mean TIDEGATE_DATABASE_URL"):
        load(TIDEGATE_DATABSE_URL="sqlite:///x.db")


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
    "line", ["retries_per_minute = 0", 'retries_per_minute = "many"', "retry_window = 0"]
)
def test_a_retry_budget_that_cannot_work_is_refused_with_its_place(load, line):
    with pytest.raises(ConfigError, match=rf"tidegate.toml: {line.split()[0]}"):
        load(line)
