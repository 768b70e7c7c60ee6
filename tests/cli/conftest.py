"""A directory to run commands in, with and without a database."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cli_support import Workspace


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A directory with an application and no database yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("DATABASE_URL", "APP", "ENV"):
        # Set, then removed: what a command sets itself is undone after the test.
        monkeypatch.setenv(f"TIDEGATE_{name}", "x")
        monkeypatch.delenv(f"TIDEGATE_{name}")
    monkeypatch.setenv("TIDEGATE_RUN", str(tmp_path / "run"))
    return Workspace(tmp_path)


@pytest.fixture
def workspace(empty: Workspace) -> Workspace:
    """The same with a database."""
    empty.run("db", "upgrade")
    return empty
