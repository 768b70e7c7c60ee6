"""`db restore`: what it prints and how it ends."""

from __future__ import annotations

import json

import apsw
from cli_support import Place


def test_a_backup_is_restored_and_the_old_file_named(place: Place) -> None:
    file = place.directory / ".tidegate" / "tidegate.db"
    backup = place.directory / "backup.db"
    db = apsw.Connection(str(file))
    db.execute("VACUUM INTO ?", (str(backup),))
    db.close()
    said = json.loads(place.run("db", "restore", str(backup), "--dry-run", "--json").stdout)
    assert (said["tasks"], said["kept"], said["dry_run"]) == (0, [], True)
    said = json.loads(place.run("db", "restore", str(backup), "--json").stdout)
    assert said["database"] == str(file)
    assert [name.startswith(f"{file}.before-") for name in said["kept"]] == [True]
    assert "restored" in place.run("db", "restore", str(backup)).stderr
    assert place.run("db", "check").stdout == "sound\n"


def test_only_a_file_is_restored(place: Place) -> None:
    refused = place.run("db", "restore", "backup", "--database", "postgresql://h/d", code=78)
    assert "pg_restore" in refused.stderr
