"""`db restore`: what it prints and how it ends."""

from __future__ import annotations

import json

import apsw
from cli_support import Workspace


def test_a_backup_is_restored_and_the_old_file_named(workspace: Workspace) -> None:
    file = workspace.directory / ".tidegate" / "tidegate.db"
    backup = workspace.directory / "backup.db"
    db = apsw.Connection(str(file))
    db.execute("VACUUM INTO ?", (str(backup),))
    db.close()
    printed = json.loads(workspace.run("db", "restore", str(backup), "--dry-run", "--json").stdout)
    assert (printed["tasks"], printed["kept"], printed["dry_run"]) == (0, [], True)
    printed = json.loads(workspace.run("db", "restore", str(backup), "--json").stdout)
    assert printed["database"] == str(file)
    assert [name.startswith(f"{file}.before-") for name in printed["kept"]] == [True]
    assert "restored" in workspace.run("db", "restore", str(backup)).stderr
    assert workspace.run("db", "check").stdout == "sound\n"


def test_only_a_file_is_restored(workspace: Workspace) -> None:
    refused = workspace.run("db", "restore", "backup", "--database", "postgresql://h/d", code=78)
    assert "pg_restore" in refused.stderr
