"""Databases of another schema generation: every entry point refuses them by name and writes nothing there."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import apsw
import httpx2
import psycopg
import pytest
from psycopg import sql
from store_build import Build, SettableClock

from pgserver import Server
from postgres_support import fresh_database
from tidegate import Pool, Tidegate
from tidegate.cli.error_report import WRONG_CONFIG
from tidegate.errors import SchemaError
from tidegate.store.common.migrate import Migration, require_generation
from tidegate.store.connect import open_store
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.sqlite import schema
from tidegate.store.sqlite.restore import restore
from tidegate.store.sqlite.store import SqliteStore
from tidegate.store.transfer.source import Source
from tidegate.store.transfer.target import Target
from tidegate.threads.bridge import run_sync
from tidegate.web import WebSettings, create_app

pytestmark = pytest.mark.anyio

DATA = Path(__file__).parent.parent / "data"
OF_0_1_0 = r"made by Tidegate 0\.1\.0.* cannot read them, and has changed nothing"
WHAT_TO_DO = "finish or drop its tasks with the version that made it, or start a new database"
APP = "from tidegate import Tidegate\napp = Tidegate()\n@app.task\ndef greet(name: str) -> str:\n    return name\n"
BETWEEN = {6: "006_worker_application", 7: "007_usage"}
"""What development versions after 0.1.0 added in the same generation."""


@dataclass(frozen=True)
class Old:
    """A database that this version must not change."""

    url: str

    def content(self) -> object:
        """Return a value that differs after any write."""
        if self.url.startswith("sqlite"):
            return hashlib.sha256(self.path.read_bytes()).hexdigest()
        with psycopg.connect(self.url) as connection:
            names = [
                name
                for (name,) in connection.execute(
                    "SELECT relname FROM pg_class WHERE relnamespace = 'tidegate'::regnamespace"
                    " AND relkind = 'r' ORDER BY 1"
                )
            ]
            rows = "SELECT array_agg(t::text ORDER BY t::text) FROM tidegate.{} AS t"
            return {
                name: connection.execute(sql.SQL(rows).format(sql.Identifier(name))).fetchone()
                for name in names
            }

    @property
    def path(self) -> Path:
        return Path(self.url.removeprefix("sqlite:///"))

    def add(self, migrations: Mapping[int, str]) -> None:
        """Record more migrations, as a development version between the releases did."""
        statement = "INSERT INTO {}migration (number, name, applied_at) VALUES ({}, '{}', 0)"
        for number, name in migrations.items():
            if self.url.startswith("sqlite"):
                with contextlib.closing(apsw.Connection(str(self.path))) as db:
                    db.execute(statement.format("", number, name))
            else:
                with psycopg.connect(self.url) as connection:
                    connection.execute(statement.format("tidegate.", number, name))


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Old]:
    """A database that 0.1.0 created, with tasks."""
    if request.param == "sqlite":
        path = tmp_path / "old" / "queue.db"
        path.parent.mkdir()
        path.write_bytes(gzip.decompress((DATA / "tidegate-0.1.0.db.gz").read_bytes()))
        yield Old(f"sqlite:///{path}")
        return
    server: Server = request.getfixturevalue("postgres")
    with fresh_database(server) as name:
        with server.connect(name) as admin:
            admin.execute((DATA / "tidegate-0.1.0.dump").read_text())
        yield Old(server.url(name))


@pytest.fixture
def refused(old: Old) -> Iterator[Old]:
    """The same; the test fails if anything is written there."""
    before = old.content()
    yield old
    assert old.content() == before


@pytest.fixture
def between(old: Old) -> Iterator[Old]:
    """A database of a development version between 0.1.0 and today's first migration; the test fails on any
    write."""
    old.add(BETWEEN)
    before = old.content()
    yield old
    assert old.content() == before


async def test_a_store_refuses_a_database_of_0_1_0_with_the_fix(refused: Old) -> None:
    store = open_store(refused.url)
    for call in (store.open, store.count_newer_migrations, store.migrate):
        with pytest.raises(SchemaError, match=OF_0_1_0) as caught:
            await call()
        assert caught.value.fix == WHAT_TO_DO
        assert caught.value.generation == "001_tasks"
    if isinstance(store, PostgresStore):
        with pytest.raises(SchemaError, match=OF_0_1_0):
            await store.upgrade_script()
    await store.close()


async def test_a_client_refuses_a_database_of_0_1_0(refused: Old) -> None:
    app = Tidegate(refused.url)

    @app.task(name="greet")
    def greet(name: str) -> str:
        return name

    with pytest.raises(SchemaError, match=OF_0_1_0):
        await greet.enqueue("Ada")
    await app.aclose()


async def test_a_transfer_refuses_a_database_of_0_1_0_as_source_and_as_target(refused: Old) -> None:
    side = Source(refused.path) if refused.url.startswith("sqlite") else Target(refused.url)
    with pytest.raises(SchemaError, match=OF_0_1_0):
        await side.open()
    await side.close()


async def test_the_web_server_is_not_ready_on_a_database_of_0_1_0(refused: Old) -> None:
    app = Tidegate(refused.url)
    api = create_app(app, settings=WebSettings(open_without_tokens=True))
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=api), base_url="http://127.0.0.1"
    ) as client:
        answer = await client.get("/readyz")
        assert answer.status_code == 503
        listed = await client.get("/api/v1/tasks")
        assert listed.status_code == 503
        assert listed.json()["code"] == SchemaError.code
    await app.aclose()


async def test_an_embedded_worker_refuses_a_database_of_0_1_0(refused: Old) -> None:
    app = Tidegate(refused.url, pools=[Pool(concurrency=1)])
    with pytest.raises(SchemaError, match=OF_0_1_0):
        async with app.worker():
            pass
    await app.aclose()


@pytest.mark.parametrize(
    "command",
    [
        ("worker", "shop:app"),
        ("scheduler",),
        ("web", "shop:app", "--port", "0"),
        ("db", "upgrade"),
        ("db", "check", "--repair"),
        ("enqueue", "shop:greet", "Ada", "--app", "shop:app"),
        ("tasks", "ls"),
        ("status",),
    ],
    ids=lambda command: " ".join(command[:2]),
)
@pytest.mark.parametrize("old", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True)
def test_every_command_refuses_a_database_of_0_1_0(
    refused: Old, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    done = subprocess.run(
        [sys.executable, "-m", "tidegate.cli", *command],
        cwd=tmp_path,
        env=os.environ | {"TIDEGATE_DATABASE_URL": refused.url, "TIDEGATE_RUN": str(tmp_path / "run")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == WRONG_CONFIG, done.stdout + done.stderr
    assert "made by Tidegate 0.1.0" in done.stdout + done.stderr
    assert WHAT_TO_DO in done.stdout + done.stderr


def test_the_doctor_names_the_version_of_the_database(refused: Old, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidegate.cli", "doctor"],
        cwd=tmp_path,
        env=os.environ | {"TIDEGATE_DATABASE_URL": refused.url},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "made by Tidegate 0.1.0" in done.stdout


async def test_a_refused_file_keeps_its_journal_mode(tmp_path: Path) -> None:
    path = tmp_path / "backup.db"
    path.write_bytes(gzip.decompress((DATA / "tidegate-0.1.0.db.gz").read_bytes()))
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    before = path.read_bytes()
    store = SqliteStore(path)
    with pytest.raises(SchemaError, match=OF_0_1_0):
        await store.open()
    await store.close()
    assert path.read_bytes() == before


def test_a_restore_refuses_a_backup_of_0_1_0_by_its_name(tmp_path: Path) -> None:
    backup, path = tmp_path / "backup.db", tmp_path / "queue.db"
    backup.write_bytes(gzip.decompress((DATA / "tidegate-0.1.0.db.gz").read_bytes()))
    with pytest.raises(SchemaError, match=rf"{backup} were made by Tidegate 0\.1\.0"):
        restore(backup, path)
    assert not path.exists()


def test_an_enqueue_on_a_callers_blocking_connection_refuses_a_database_of_0_1_0(postgres: Server) -> None:
    with fresh_database(postgres) as name:
        with postgres.connect(name) as admin:
            admin.execute((DATA / "tidegate-0.1.0.dump").read_text())
        old = Old(postgres.url(name))
        before, store = old.content(), PostgresStore(old.url)
        task = Build(store, SettableClock()).new()
        with (
            psycopg.connect(old.url) as connection,
            connection.transaction(),
            pytest.raises(SchemaError, match=OF_0_1_0),
        ):
            store.enqueue_within_sync(connection, [task])
        run_sync(store.close())
        assert old.content() == before


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ({}, None),
        ({1: "001_foundation"}, None),
        ({1: "001_foundation", 2: "002_later", 3: "003_unknown"}, None),
        ({1: "001_tasks"}, "were made by Tidegate 0.1.0"),
        (
            {1: "001_estuary"},
            r"other migrations \(001_estuary\).*use the version that made them, or start a new",
        ),
        ({1: "001_foundation", 2: "002_other"}, r"other migrations \(002_other\)"),
    ],
)
def test_a_generation_is_recognised_by_the_names_of_its_migrations(
    names: dict[int, str], says: str | None
) -> None:
    known = [Migration(1, "001_foundation", ""), Migration(2, "002_later", "")]
    if says is None:
        require_generation(known, names, "here")
    else:
        with pytest.raises(SchemaError, match=f"the tables in here {says}" if says[0] == "w" else says):
            require_generation(known, names, "here")


async def test_a_database_of_a_development_version_is_refused_in_the_same_way(between: Old) -> None:
    store = open_store(between.url)
    for call in (store.open, store.migrate):
        with pytest.raises(SchemaError, match=OF_0_1_0) as caught:
            await call()
        assert caught.value.fix == WHAT_TO_DO
    await store.close()


async def test_every_later_version_refuses_a_database_of_0_1_0(
    refused: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = [Migration(number, f"{number:03d}_later", "SELECT 1") for number in range(2, 9)]
    for back_end in ("sqlite", "postgres"):
        known = (*schema.known_migrations(), *later)
        monkeypatch.setattr(f"tidegate.store.{back_end}.schema.known_migrations", lambda known=known: known)
    store = open_store(refused.url)
    for call in (store.open, store.migrate):
        with pytest.raises(SchemaError, match=OF_0_1_0):
            await call()
    await store.close()
