"""Opening a store from a URL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.errors import ConfigError
from tidegate.store.connect import open_store, sqlite_path
from tidegate.store.postgres.address import parse_address
from tidegate.store.sqlite.store import SqliteStore


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///queue.db", "queue.db"),
        ("sqlite:///.tidegate/queue.db", ".tidegate/queue.db"),
        ("sqlite:////var/lib/queue.sqlite", "/var/lib/queue.sqlite"),
        ("queue.db", "queue.db"),
        ("/var/lib/queue.db", "/var/lib/queue.db"),
        ("sqlite:///with space & ünicode.db", "with space & ünicode.db"),
        ("sqlite:///a%20b.db", "a%20b.db"),
    ],
)
def test_a_url_names_its_file(url: str, path: str) -> None:
    assert sqlite_path(url) == Path(path)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite://:memory:", "in-memory"),
        ("sqlite:///:memory:", "in-memory"),
        ("postgresql+psycopg://localhost/queue", "a driver is named"),
        ("postgresql://localhost/queue?schema=Mine", "schema='Mine'"),
        ("postgresql://localhost/queue?schema=pg_mine", "schema='pg_mine'"),
        ("postgresql://localhost/queue?connections=0", "connections='0'"),
        ("postgresql://localhost/queue?hints=maybe", "hints='maybe'"),
        ("redis://localhost", "redis"),
        ("sqlite://", "no file"),
        ("sqlite:///", "no file"),
        ("sqlite://host/queue.db", "no file"),
        ("queue.txt", "no database"),
        ("", "no database"),
        (".db", "no database"),
        ("sqlite:///queue.db ", "ends with a space"),
        (" postgresql://localhost/queue", "begins or ends"),
        ("postgresql:/user@localhost/queue.db", "lacks the //"),
        ("postgresql://localhost/queue?channel_binding=require", "channel_binding='require'"),
        ("postgresql://localhost/queue?connect_timeout=10", "connect_timeout='10'"),
        ("postgresql://localhost/queue?keepalives_idle=30", "keepalives_idle='30'"),
        ("postgresql://localhost/queue?load_balance_hosts=random", "load_balance_hosts='random'"),
    ],
)
def test_a_url_without_a_store_is_refused_with_the_reason(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        open_store(url)
    assert caught.value.fix


def test_an_error_does_not_contain_the_password_of_a_url() -> None:
    with pytest.raises(ConfigError) as caught:
        open_store("postgresql://user:secret@localhost/queue?connections=many")
    assert "secret" not in str(caught.value)
    assert "secret" not in str(caught.value.facts)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:secret#1@localhost/queue",
        "postgresql://user:secret/1@localhost/queue",
        "postgresql://user:se cret@localhost/queue",
        "postgresql://user:secret@localhost:port/queue",
        "postgresql://user:secret@[localhost/queue",
        "postgresql:/user:secret@localhost/queue",
        "postgres:user:secret@localhost/queue ",
    ],
)
def test_the_error_for_an_unreadable_url_contains_no_part_of_it(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert caught.value.fix
    assert not {"secret", "se cret", "cret"} & set(str(caught.value).split())
    assert "secret" not in f"{caught.value} {caught.value.facts}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("word", ["channel_binding=prefer", "gssencmode=disable", "keepalives=1", "sslsni=1"])
def test_an_option_that_is_satisfied_anyway_is_accepted(word: str) -> None:
    address = parse_address(f"postgresql://localhost/queue?sslmode=require&{word}")
    assert address.dsn == "postgresql://localhost/queue?sslmode=require"


def test_open_store_creates_no_file(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/sub/queue.db", busy_seconds=1.0)
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / "sub" / "queue.db"
    assert list(tmp_path.iterdir()) == []


def test_importing_the_module_imports_no_driver() -> None:
    code = "import sys, tidegate.store.connect; sys.exit('apsw' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
