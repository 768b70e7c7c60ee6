"""Loads the configuration of a directory that a test fills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.config import Config, load_config


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
