"""Notices changed source files, for development, by their modification times."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

LOOK_SECONDS = 0.5
_LEFT_OUT = {"node_modules", "__pycache__", "site-packages"}


async def changed_sources(root: Path | None = None) -> AsyncIterator[Path]:
    """Yield a changed, new or deleted `.py` or `.toml` file under `root`, one a look at most."""
    root = root or Path.cwd()
    known = await asyncio.to_thread(_times, root)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = await asyncio.to_thread(_times, root)
        changed = [path for path in now.keys() | known.keys() if now.get(path) != known.get(path)]
        known = now
        if changed:
            yield min(changed)


def _times(root: Path) -> dict[Path, int]:
    return {path: stat for path in _sources(root) if (stat := _modified(path)) is not None}


def _sources(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _LEFT_OUT and not name.startswith(".")]
        yield from (Path(folder) / name for name in files if name.endswith((".py", ".toml")))


def _modified(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
