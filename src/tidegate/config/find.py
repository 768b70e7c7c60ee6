"""Finds the project: the directory with a `tidegate.toml` or a store, here or in a parent directory."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegate.config.table import Table
from tidegate.errors import ConfigError

FILE = "tidegate.toml"
STORE = Path(".tidegate", "tidegate.db")
"""The default path of the store, relative to the project's directory."""


def find_project(directory: Path) -> tuple[Path | None, Table, Path]:
    """Return the configuration file, its settings, and the directory for relative paths.

    The file or an existing store is searched in the directory and its parents, then in the directory of the
    program's script and its parents. If there is neither, the directory itself is the project.
    """
    starts = [directory, *_script_directory()]
    for start in starts:
        for candidate in project_directories(start):
            path, table = _file_in(candidate)
            if path is not None:
                return path, table, candidate
            if (candidate / STORE).exists():
                return None, table, candidate
    return None, Table({}, file=FILE, section=""), directory


def project_directories(start: Path) -> Iterator[Path]:
    """Yield a directory and its parents that may belong to the same project.

    The search ends at the top of a git repository. The search stops before the home directory and before a
    directory in which others may write: a file that somebody else left there must not choose which code runs.
    """
    start = start.absolute()
    yield start
    if (start / ".git").exists():
        return
    home_directory = Path.home().absolute() if "HOME" in os.environ else None
    for directory in start.parents:
        if directory in (home_directory, Path(directory.anchor)) or not _is_ours(directory):
            return
        yield directory
        if (directory / ".git").exists():
            return


def _is_ours(directory: Path) -> bool:
    try:
        facts = directory.stat()
    except OSError:
        return False
    return facts.st_uid in (os.geteuid(), 0) and not facts.st_mode & stat.S_IWOTH


def _script_directory() -> list[Path]:
    """Return the directory of the script that was started; empty for installed programs and prompts."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if not file or str(file).startswith("<"):
        return []
    directory = Path(file).absolute().parent
    installed = [Path(prefix).absolute() for prefix in (sys.prefix, sys.base_prefix)]
    return [] if any(directory.is_relative_to(prefix) for prefix in installed) else [directory]


def _file_in(directory: Path) -> tuple[Path | None, Table]:
    path = directory / FILE
    data = _read(path)
    if data is not None:
        return path, Table(_parse(data, path), file=path.name, section="")
    path = directory / "pyproject.toml"
    data = _read(path)
    # Most pyproject.toml files have no section for us, and this check is cheaper than parsing.
    if data is not None and b"tidegate" in data:
        tool = Table(_parse(data, path), file=path.name, section="").table("tool")
        if "tidegate" in tool:
            return path, tool.table("tidegate")
    return None, Table({}, file=FILE, section="")


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", fix="make it a readable file", place=str(path)
        ) from error


def _parse(data: bytes, path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not valid TOML: {error}", fix="correct that line", place=str(path)
        ) from error
