"""What ends the programs of a test process that was killed, and removes what they wrote."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

_SCRIPT = """
read -r _
for file in "$1"/data/postmaster.pid "$1"/*.pid; do
    [ -f "$file" ] || continue
    pid=$(head -n 1 "$file")
    case $file in */postmaster.pid) kill -QUIT "$pid" ;; *) kill -KILL "$pid" ;; esac
    tries=0
    while kill -0 "$pid" && [ $tries -lt 100 ]; do sleep 0.05; tries=$((tries + 1)); done
done
rm -rf "$1"
"""


class Guard:
    """Holds a new directory; when this process lets go of it or dies, whatever runs there ends with it.

    A shell waits at the end of a pipe that only this process holds open: no kill can keep it from ending.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tidegate-pg-", dir=_roomy()))
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "sh", str(self.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Guard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait(30)


def _roomy() -> str:
    """Return a temporary directory that another user can reach, with a name short enough for a socket."""
    chosen = Path(tempfile.gettempdir())
    is_open = all(folder.stat().st_mode & 0o001 for folder in (chosen, *chosen.parents))
    return str(chosen) if is_open and len(str(chosen)) < 60 else "/tmp"
