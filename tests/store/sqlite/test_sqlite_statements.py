"""The SQL files: readable, complete, and consistent with the state table."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import apsw.ext
import pytest

from tidegate.domain.states import FINAL, MOVES, State
from tidegate.store.sqlite import schema
from tidegate.store.sqlite.statements import FOLDER, load

FILES = sorted(FOLDER.glob("*.sql"))
NAMES = [file.stem for file in FILES]
BATCHED = {"commit_batch": "enqueue"}
"""Makes enqueued tasks visible, so its transitions are those of enqueue."""
BY_PRINCIPLE: dict[str, set[State]] = {}
"""States of later releases: already in the table, not yet written by these statements."""


def moves_of(file: Path) -> set[tuple[State | None, State]]:
    declared = re.findall(r"^-- moves: (.+)$", file.read_text(), re.M)
    pairs = [move.split(" -> ") for line in declared for move in line.split(", ")]
    return {(None if source == "new" else State(source), State(target)) for source, target in pairs}


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_declared_transitions_are_in_the_state_table(file: Path) -> None:
    assert moves_of(file) <= MOVES.get(BATCHED.get(file.stem, file.stem), frozenset())


@pytest.mark.parametrize("operation", sorted(set(MOVES) - {"admit"}))
def test_every_transition_of_the_table_is_declared_by_a_statement_file(operation: str) -> None:
    left_for_later = BY_PRINCIPLE.get(operation, set())
    expected = {move for move in MOVES[operation] if not left_for_later & set(move)}
    assert moves_of(FOLDER / f"{operation}.sql") >= expected


PLACES = {
    "ready": {State.READY},
    "running": {State.RUNNING},
    "waiting": {State.SCHEDULED, State.RETRYING, State.HELD, State.SUSPENDED},
    "archive": {State.SUCCEEDED, State.CANCELLED},
    "dead": {State.DEAD},
}


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_a_file_that_writes_a_state_declares_the_transition(file: Path) -> None:
    written = set(re.findall(r"^INSERT INTO (\w+)", file.read_text(), re.M)) & set(PLACES)
    targets = {target for _, target in moves_of(file)}
    if file.stem == "release_batches":
        assert written == {"ready", "waiting"}  # they have had their state since the commit
        return
    for table in written:
        assert PLACES[table] & targets, table
    for target in targets - {State.CANCELLED, State.SUCCEEDED}:
        if file.stem not in BATCHED:
            assert any(target in PLACES[table] for table in written)


def test_only_redrive_leaves_a_final_state() -> None:
    for file in FILES:
        for source, _ in moves_of(file):
            assert source not in FINAL or file.stem == "redrive"


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_columns_are_named_and_every_statement_is_used(file: Path) -> None:
    text = file.read_text()
    if file.stem == "task_tables":  # an export takes the columns of any table
        text = text.replace("SELECT *\n", "")
    assert not re.search(r"SELECT \*|\bt\.\*|count\(\*\).*,.*\*", re.sub(r"count\(\*\)", "", text))
    folders = (FOLDER.parent, FOLDER.parent.parent / "common")
    python = "".join(source.read_text() for folder in folders for source in folder.glob("*.py"))
    for name in load(file.stem):
        used = name.removeprefix("has_") if name.startswith("has_old_") else name  # by `f"has_{name}"`
        assert f'"{used}"' in python or file.stem in (
            "check_integrity",
            "list_tasks",
            "purge",
            "reprioritise",
            "undo_enqueue",
        ), name


@pytest.fixture(scope="module")
def empty() -> apsw.Connection:
    db = apsw.Connection(":memory:")
    for migration in schema.known_migrations():
        db.execute(migration.sql)
    return db


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_every_statement_is_valid_and_documents_its_parameters(file: Path, empty: apsw.Connection) -> None:
    for name, statement in load(file.stem).items():
        sql = statement.replace("task_table", "result").replace("task_key", "task_id")
        found = apsw.ext.query_info(empty, sql)
        head = " ".join(re.findall(r"^-- (.*)$", sql, re.M))
        if file.stem == "list_tasks":
            head = file.read_text()
        numbers = [int(number) for number in re.findall(r"(?:^|[ ,])(\d+) [a-z]", head)]
        assert max(numbers, default=0) == found.bindings_count, (file.stem, name)
