"""The commands that only a PostgreSQL server has something to say to."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys

import psycopg
import pytest
from cli_support import Workspace
from click.testing import CliRunner

from pgserver import Server
from postgres_support import fresh_database
from tidegate.cli import program
from tidegate.cli.doctor import CheckLevel, CheckResult
from tidegate.cli.doctor_postgres import check_server
from tidegate.cli.error_report import WRONG_CONFIG
from tidegate.store.postgres.address import parse_address
from tidegate.store.postgres.facts import ServerFacts, connections_needed
from tidegate.store.worker_rows import WorkerRow

SOUND = ServerFacts("15.18", 97, "on", True, "shop_worker", False, False, None, 0, 0)
URL = "postgresql://db.example.com/shop"


def run(*words: str) -> str:
    done = CliRunner().invoke(program, words)
    assert done.exit_code == 0, done.output
    return done.stdout


class FakeServerStore:
    """A store on a server that says what a test wants."""

    def __init__(self, facts: ServerFacts, url: str = URL, *, pooled: bool = False) -> None:
        self.address = parse_address(url)
        self.facts = facts
        self.pooled = pooled

    async def server_facts(self) -> ServerFacts:
        return self.facts

    async def is_pooled(self) -> bool:
        return self.pooled


async def findings(store: FakeServerStore, live: int = 0) -> dict[str, CheckResult]:
    found = await check_server(store, [worker(number) for number in range(live)])
    return {finding.name: finding for finding in found}


def worker(number: int) -> WorkerRow:
    return WorkerRow(
        f"w{number}", f"name-{number % 2}", "default", "host", number, ("*",), 8, 0, 0, 0, None, 0
    )


def test_the_roles_are_printed_for_the_schema_of_the_url() -> None:
    printed = run("db", "roles", "--database", f"{URL}?schema=shop")
    assert {"shop_migrator", "shop_worker", "shop_reader"} <= set(re.findall(r"\w+", printed))
    assert ":schema" not in printed


def test_an_upgrade_can_be_printed_and_then_run(postgres: Server) -> None:
    with postgres.connect() as admin:
        admin.execute("CREATE DATABASE printed")
    url = postgres.url("printed")
    script = run("db", "upgrade", "--sql", "--database", url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(script)
    assert run("db", "upgrade", "--sql", "--database", url) == ""
    assert run("db", "upgrade", "--database", url) == ""
    with postgres.connect() as admin:
        admin.execute("DROP DATABASE printed")


@pytest.mark.parametrize("command", ["worker", "enqueue"])
@pytest.mark.parametrize(("change", "says"), [
    (None, "has no tables of Tidegate"),
    ("INSERT INTO tidegate.migration VALUES (999, 'later', 0); UPDATE tidegate.compatible SET since = 999",
     "schema is newer (999) than this version"),
])  # fmt: skip
def test_a_command_on_another_schema_version_exits_at_once_with_the_reason(
    postgres: Server, workspace: Workspace, command: str, change: str | None, says: str
) -> None:
    words = {"worker": [workspace.app], "enqueue": [workspace.greet, "Ada", "--app", workspace.app]}[command]
    with fresh_database(postgres) as name:
        url = postgres.url(name)
        if change is not None:
            run("db", "upgrade", "--database", url)
            with psycopg.connect(url) as connection:
                connection.execute(change)
        done = subprocess.run(
            [sys.executable, "-m", "tidegate.cli", command, *words, "--database", url],
            cwd=workspace.directory, capture_output=True, text=True, timeout=50,
        )  # fmt: skip
    assert done.returncode == WRONG_CONFIG, done.stderr
    assert says in done.stderr
    assert "TG201" in done.stderr
    assert "upgrade" in done.stderr


@pytest.mark.parametrize("words", [("roles",), ("upgrade", "--sql")])
def test_a_file_has_no_statements_to_print(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(program, ["db", *words, "--database", "sqlite:///queue.db"])
    assert done.exit_code == WRONG_CONFIG
    assert "prints SQL for PostgreSQL only" in done.stderr


async def test_a_sound_server_passes_every_check() -> None:
    found = await findings(FakeServerStore(SOUND), live=3)
    assert {finding.level for finding in found.values()} == {CheckLevel.OK}


async def test_more_workers_than_connections_are_reported() -> None:
    address = parse_address(f"{URL}?connections=9")
    assert connections_needed(address, processes=4, supervisors=2) == 4 * 10 + 2 * 3
    found = await findings(FakeServerStore(SOUND, f"{URL}?connections=50"), live=4)
    assert found["connections"].level is CheckLevel.WARN
    assert "4 worker processes and 2 supervisors may open up to" in found["connections"].detail


@pytest.mark.parametrize(("change", "name", "level"), [
    ({"version": "13.4"}, "postgresql", CheckLevel.FAIL),
    ({"version": "18beta1"}, "postgresql", CheckLevel.OK),
    ({"may_make_tables": True}, "role", CheckLevel.WARN),
    ({"synchronous_commit": "off"}, "durability", CheckLevel.WARN),
    ({"is_standby": True}, "standby", CheckLevel.FAIL),
    ({"autovacuum": False}, "autovacuum", CheckLevel.WARN),
    ({"oldest_snapshot_seconds": 301.0}, "snapshot", CheckLevel.WARN),
    ({"old_prepared_transactions": 1}, "prepared", CheckLevel.WARN),
    ({"idle_slots": 2}, "slots", CheckLevel.WARN),
])  # fmt: skip
async def test_what_is_wrong_with_a_server_is_named(
    change: dict[str, object], name: str, level: CheckLevel
) -> None:
    found = await findings(FakeServerStore(dataclasses.replace(SOUND, **change)))
    assert found[name].level is level
    assert bool(found[name].fix) is (level is not CheckLevel.OK)


@pytest.mark.parametrize(
    ("words", "level"),
    [("", CheckLevel.WARN), ("?hints=off", CheckLevel.OK), ("?listen=db:5432", CheckLevel.OK)],
)
async def test_a_pooler_without_a_direct_connection_is_reported(words: str, level: CheckLevel) -> None:
    assert (await findings(FakeServerStore(SOUND, URL + words, pooled=True)))["pooler"].level is level
