"""`tidegate top`: one frame as text, and the live view on a terminal with its keys."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from dataclasses import replace
from io import StringIO

import cli_support
import pytest
from cli_support import succeeded
from rich.console import Console

from tidegate.cli.top_frame import build_frame
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.spec import Window
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.policy.drain import Drain, DrainKind
from tidegate.store.overview_rows import OverviewRow, TopRow
from tidegate.store.rows import QueueStats


def dead(task):
    failure = Failure(Verdict.PERMANENT, Reason.CONTENT_POLICY, "no [bold]such\x1b[31m text", "app.No")
    return cli_support.dead(task, failure)


def busy(workspace):
    limits = Limits((Window("requests_per_minute", 6, 60.0),))
    declared = [LimitDeclaration(GateKind.UPSTREAM, "openai", limits)]
    workspace.ask(lambda store: store.declare_limits(declared))
    workspace.add()
    workspace.work(succeeded)
    workspace.add()
    workspace.work(dead)
    workspace.declare(workspace.greet)
    workspace.add(30, upstream="openai")
    workspace.add(2, queue="lonely queue")


@pytest.mark.parametrize("width", [60, 80, 140])
def test_one_frame_fits_the_width_and_shows_queues_upstreams_workers_and_failures(workspace, width):
    busy(workspace)

    lines = workspace.run("top", "--once", COLUMNS=str(width)).stdout.splitlines()
    text = "\n".join(lines)

    assert max(map(len, lines)) <= width
    assert re.match(r"tidegate  \d\d:\d\d:\d\d UTC  32 waiting, 0 running, 1 dead", lines[0])
    (default,) = [line.split() for line in lines if line.startswith("default ") and "%" not in line][:1]
    assert default[1:3] == ["30", "0"]
    assert "openai" in text
    assert "content_policy" in text or width < 80
    assert "\x1b" not in text


def test_a_wide_frame_names_the_constraint_with_its_numbers_and_a_narrow_one_by_its_name(workspace):
    busy(workspace)

    assert "upstream openai lets 6 per minute start" in workspace.run("top", "--once", COLUMNS="180").stdout
    narrow = workspace.run("top", "--once", COLUMNS="80").stdout
    assert re.search(r"^default +30 +0 .* requests", narrow, re.MULTILINE)
    assert re.search(r"^lonely queue +2 +0 .* unknown", narrow, re.MULTILINE)


def test_markup_and_control_characters_of_a_message_are_shown_as_they_are(workspace):
    busy(workspace)
    output = workspace.run("top", "--once", COLUMNS="160").stdout
    assert r"app.No: no [bold]such\x1b[31m text" in output


def test_an_empty_database_says_what_to_do(workspace):
    output = workspace.run("top", "--once").stdout
    assert "no tasks yet; enqueue one: tidegate enqueue FUNCTION ARG" in output
    assert "no live worker; start one: tidegate worker MODULE:APP" in output


def frame_lines(found: TopRow, width: int, height: int) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height)
    console.print(build_frame(found, width=width, height=height))
    return console.file.getvalue().splitlines()


def test_a_frame_of_many_queues_fits_the_height_and_keeps_the_busiest():
    queues = [QueueStats(f"queue {number}", ready=number) for number in range(200)]
    growing = Drain(DrainKind.NEVER, None, "slots", "4 slots", 12.0)
    queues[7] = replace(queues[7], ready=900, drain=growing)
    lines = frame_lines(TopRow(OverviewRow(0.0, queues, [], []), []), 80, 24)
    assert len(lines) <= 24
    assert lines[2].startswith("queue 7 ")
    assert "never -12/min" in lines[2]
    assert lines[3].startswith("queue 199 ")


class Terminal:
    """`tidegate top` on a pseudo-terminal."""

    def __init__(self, database: str, columns: int = 80, rows: int = 24) -> None:
        self.main, other = pty.openpty()
        environment = os.environ | {"COLUMNS": str(columns), "LINES": str(rows), "TERM": "xterm"}
        command = [sys.executable, "-m", "tidegate.cli", "top", "--database", database]
        self.process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, env=environment, close_fds=True
        )
        os.close(other)
        self.seen = ""

    def wait_for(self, text: str, seconds: float = 60.0) -> None:
        """Read until the text is on the screen."""
        ends_at = time.monotonic() + seconds
        while text not in self.seen:
            left = ends_at - time.monotonic()
            ready, _, _ = select.select([self.main], [], [], max(0.0, left))
            assert ready, f"{text!r} is not shown: {self.seen!r}"
            self.seen += os.read(self.main, 65_536).decode(errors="replace")

    def press(self, key: str) -> None:
        """Press a key; what was shown before is forgotten."""
        self.seen = ""
        os.write(self.main, key.encode())

    def close(self) -> None:
        """End the process if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.main)


def test_the_live_view_refreshes_pauses_with_p_and_quits_with_q(workspace):
    workspace.add(3)
    terminal = Terminal(str(workspace.database))
    try:
        terminal.wait_for("3 waiting")
        terminal.wait_for("p pauses, q quits")
        workspace.add(4)
        terminal.wait_for("7 waiting")
        terminal.press("p")
        terminal.wait_for("paused (p continues)")
        workspace.add(1)
        terminal.press("p")
        terminal.wait_for("8 waiting")
        terminal.press("q")
        assert terminal.process.wait(timeout=60) == 0
        terminal.wait_for("\x1b[?1049l")  # the screen from before is back
    finally:
        terminal.close()
