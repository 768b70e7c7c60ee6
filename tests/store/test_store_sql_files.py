"""The names of the SQL files: those of the store's methods, or of what several methods share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.store.protocol import Store

FOLDERS = Path(__file__).parents[2] / "src" / "tidegate" / "store"
FILES = [path for back_end in ("sqlite", "postgres") for path in (FOLDERS / back_end / "sql").glob("*.sql")]
SHARED = {
    "actions",
    "alerts",
    "approvals",
    "audit_entries",
    "controls",
    "deaths",
    "doubts",
    "cached",
    "events",
    "failure_marks",
    "final_hooks",
    "forget",
    "gates",
    "keys",
    "maps",
    "operations",
    "permits",
    "schedules",
    "steps",
    "task_tables",
    "task_waits",
    "provider_jobs",
    "tokens",
}
"""What several methods read or write. CONTRIBUTING.md lists them."""
OUTSIDE_THE_CONTRACT = {
    "connect": "the settings of a session of PostgreSQL",
    "facts": "what `tidegate doctor` reads about a server",
    "identity": "which database this is",
    "next_due": "for tests with a clock of their own",
    "roles": "the SQL that `tidegate db roles` prints",
    "undo_enqueue": "for the test kit, which follows a transaction of another database",
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_an_sql_file_is_named_after_a_method_of_the_store_or_what_methods_share(path: Path) -> None:
    methods = {name for name in dir(Store) if not name.startswith("_")}

    assert path.stem in methods | SHARED | set(OUTSIDE_THE_CONTRACT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_the_head_of_an_sql_file_begins_with_its_name(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith(f"-- {path.stem}: ")


def test_contributing_lists_the_files_that_methods_share() -> None:
    text = " ".join((FOLDERS.parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    listed = text.partition("in a file named after what it stores: ")[2].partition(".")[0]

    assert set(listed.replace("`", "").split(", ")) == SHARED


def test_no_name_is_listed_without_a_file() -> None:
    assert SHARED | set(OUTSIDE_THE_CONTRACT) <= {path.stem for path in FILES}
