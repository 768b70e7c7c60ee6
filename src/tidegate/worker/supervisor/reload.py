"""Detects changed source files by their modification times, for development."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

CHECK_SECONDS = 0.5
_SKIPPED_FOLDERS = {"node_modules", "__pycache__", "site-packages"}


async def changed_sources(root: Path | None = None) -> AsyncIterator[Path]:
    """Yield a changed, new or deleted `.py` or `.toml` file under `root`, at most one per check."""
    root = root or Path.cwd()
    known = await asyncio.to_thread(_times, root)
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        now = await asyncio.to_thread(_times, root)
        changed = [path for path in now.keys() | known.keys() if now.get(path) != known.get(path)]
        known = now
        if changed:
            yield min(changed)


def _times(root: Path) -> dict[Path, int]:
    return {path: stat for path in _sources(root) if (stat := _modified(path)) is not None}


def _sources(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")]
        yield from (Path(folder) / name for name in files if name.endswith((".py", ".toml")))


def _modified(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
