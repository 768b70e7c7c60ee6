"""What a command finds around itself: missing streams, a user without a name, signals blocked by its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def run(directory: Path, shell: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", shell.replace("tidegate", f"'{sys.executable}' -m tidegate.cli")],
        cwd=directory,
        env=os.environ | {"TIDEGATE_DATABASE_URL": f"sqlite:///{directory}/queue.db"} | env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_command_works_without_its_standard_streams(tmp_path: Path, closed: str) -> None:
    assert run(tmp_path, f"tidegate version {closed}").returncode == 0


def test_a_token_is_made_by_a_user_without_a_name(tmp_path: Path) -> None:
    made = run(
        tmp_path,
        "tidegate tokens create first --role admin --all-tenants",
        PYTHONPATH=str(_without_names(tmp_path)),
        **dict.fromkeys(("LOGNAME", "USER", "LNAME", "USERNAME"), ""),
    )
    assert (made.returncode, made.stdout[:3]) == (0, "tg_"), made.stderr
    listed = run(tmp_path, "tidegate tokens ls")
    assert "valid" in listed.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
def test_a_token_that_cannot_be_printed_is_not_stored(tmp_path: Path) -> None:
    assert run(tmp_path, "tidegate tokens create lost --role admin --all-tenants >/dev/full").returncode != 0
    listed = run(tmp_path, "tidegate tokens ls").stdout
    assert "lost" not in listed or "revoked" in listed


def _without_names(directory: Path) -> Path:
    """A directory whose `sitecustomize` makes the user one without an entry in /etc/passwd."""
    workspace = directory / "site"
    workspace.mkdir()
    (workspace / "sitecustomize.py").write_text(
        "import pwd\ndef missing(uid):\n    raise KeyError(f'getpwuid(): uid not found: {uid}')\n"
        "pwd.getpwuid = missing\n"
    )
    return workspace


def test_signals_that_the_parent_blocked_or_ignored_work_again() -> None:
    code = (
        "import signal\n"
        "from tidegate.worker.signals import reset_inherited_signals\n"
        "reset_inherited_signals()\n"
        "print(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())), signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL)\n"
    )

    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    done = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=block,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.split() == ["0", "True"]
