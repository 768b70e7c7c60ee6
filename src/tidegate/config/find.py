"""Finding the project: its `tidegate.toml`, or a store that is there, in a directory or above it."""

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
"""Where tasks are kept unless something else is configured, from the project's directory on."""


def find_project(directory: Path) -> tuple[Path | None, Table, Path]:
    """Return the configuration file, its settings, and the directory that relative paths count from.

    The file is looked for in a directory and those above it, and so is a store that is there already; then
    from the directory of the program's own script on. Without either, the directory itself is the project.
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
    """Give a directory and those above it that may belong to the same project.

    Ends at the top of a git repository, and before the home directory and every directory in which others
    may write: a file that somebody else left there must not choose what code runs.
    """
    start = start.absolute()
    yield start
    if (start / ".git").exists():
        return
    home = Path.home().absolute() if "HOME" in os.environ else None
    for directory in start.parents:
        if directory in (home, Path(directory.anchor)) or not _is_ours(directory):
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
    """Return the directory of the script that was started; none for installed programs and prompts."""
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
    # Most pyproject.toml files are not for us: look before paying for a parser.
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
            f"{path} cannot be read: {error.strerror}", fix="make it a readable file"
        ) from error


def _parse(data: bytes, path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", fix="correct the line named") from error
