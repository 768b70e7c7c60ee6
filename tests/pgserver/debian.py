"""Debian's packages without installing them: downloaded once, unpacked beside the virtual environment."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(sys.prefix) / "share" / "tidegate-tests"
"""Goes with the environment (`make clean`), and serves later runs without a network."""

_MINUTES = 300.0


class NotHereError(Exception):
    """A program the tests want is neither here nor can be fetched."""


def unpacked(package: str) -> Path:
    """Return the folder that holds a package and the libraries it names.

    Raises:
        NotHereError: There is no apt here, or it cannot fetch the package.
    """
    folder = CACHE / package
    with _alone(package):
        if not folder.exists():
            partly = CACHE / f"{package}.partly"
            partly.mkdir(parents=True, exist_ok=True)
            for name in (package, *_libraries(package)):
                _unpack(name, partly)
            partly.rename(folder)
    return folder


def libraries_in(folder: Path) -> str:
    """Return what LD_LIBRARY_PATH must name for the programs in this folder."""
    return os.pathsep.join(sorted({str(found.parent) for found in folder.glob("**/lib*.so*")}))


@contextmanager
def _alone(package: str) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{package}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _libraries(package: str) -> list[str]:
    listed = _apt("apt-cache", "depends", package).stdout
    named = re.findall(r"^ +Depends: (lib\S+)", listed, re.M)
    return [name for name in named if name != "libc6"]


def _unpack(package: str, folder: Path) -> None:
    download = folder / "download"
    download.mkdir(exist_ok=True)
    try:
        _apt("apt-get", "download", package, cwd=download)
    except NotHereError:
        if os.geteuid() != 0:
            raise
        _apt("apt-get", "update")
        _apt("apt-get", "download", package, cwd=download)
    for archive in download.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, folder], check=True, timeout=_MINUTES)
        archive.unlink()


def _apt(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=_MINUTES)
    except FileNotFoundError:
        raise NotHereError(f"{command[0]} is not here") from None
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        printed = getattr(error, "stderr", "") or str(error)
        raise NotHereError(f"{' '.join(command)}: {printed.strip()[-300:]}") from None
