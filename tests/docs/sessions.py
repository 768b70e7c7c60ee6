"""Do what a page shows, from its first block to its last, in one empty directory.

- A block that names its file (`# app.py` in its first line, or `<!-- file: site/index.html -->` above it) is written.
- A console block is typed into a terminal. Each command must succeed, and each line of output that the page shows
  must be printed: `…` stands for any text, and ids, moments and durations may differ. A command that only reads is
  repeated until it prints what is shown.
- `<!-- terminal: worker -->` above a console block: it is typed into another terminal, whose last command may go on.
  `<!-- terminal: worker, Ctrl-C first -->` interrupts that command first.
- `<!-- not run: the reason -->`: it is left out.

In commands, `ID` is the dead letter that failed last (`tidegate dead …`), else the newest task. Each fingerprint of a
page stands for a group of failures of the store. Ports are replaced by free ones, so that several pages can be done at
once.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import psutil
from pages import Block, all_blocks

_SECONDS = 180.0
"""Time for one command, and for what a terminal must print."""
_PORT = re.compile(r"(?:(?<=127\.0\.0\.1:)|(?<=localhost:)|(?<=--port ))\d{4,5}")
_FINGERPRINT = re.compile(
    r"(?:(?<=--fingerprint )|(?<=--reviewed )|(?<=resolve )|(?<=mute )|(?<=reopen ))[0-9a-f]{8}\b"
)
_READING = (
    "tidegate status",
    "tidegate tasks ls",
    "tidegate tasks show",
    "tidegate dead ls",
    "tidegate stats",
    "tidegate dead stats",
    "tidegate dead groups",
    "curl -s localhost",
)
_VARYING = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?", "MOMENT"),
    (r"\d+(?:\.\d+)? (?:ms|s|min|h)\b", "DURATION"),
    (r"\s+", " "),
)


@dataclass(slots=True)
class Command:
    """A line after `$ `, with the lines of output that the page shows below it."""

    line: str
    shown: list[str]


@dataclass(slots=True)
class Session:
    """A reader at work in one directory. Used as a context manager, it ends what still runs there."""

    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    _ports: dict[str, str] = field(default_factory=dict)
    _fingerprints: dict[str, str] = field(default_factory=dict)
    _terminals: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for name in list(self._terminals):
            self._close(name)

    def do(self, page: Path, *, after: str = "", before: str = "") -> None:
        """Do everything that the page shows, or what stands after one of its lines and before another."""
        lines = page.read_text(encoding="utf-8").splitlines()
        first = lines.index(after) if after else 0
        last = lines.index(before) if before else len(lines)
        for block in all_blocks(page):
            if block.note.startswith("not run") or not first < block.line <= last:
                continue
            if block.file is not None:
                self.write(block.file, block.text)
            elif block.language == "console":
                self.type(block)

    def write(self, name: str, text: str) -> None:
        """Save a file."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._with_free_ports(text), encoding="utf-8")

    def type(self, block: Block) -> None:
        """Type the commands of a block into its terminal."""
        typed = [
            Command(command.line, [self._with_free_ports(line) for line in command.shown])
            for command in commands_of(block)
        ]
        if block.note.startswith("terminal: "):
            name, _, key = block.note.removeprefix("terminal: ").partition(", ")
            self._type_elsewhere(name, typed, interrupt=key == "Ctrl-C first")
            return
        for command in typed:
            self._run(command)

    def enter(self, line: str, *, terminal: str = "", shown: Sequence[str] = ()) -> None:
        """Type one command, into another terminal if one is named."""
        command = Command(line, list(shown))
        if terminal:
            self._type_elsewhere(terminal, [command], interrupt=False)
        else:
            self._run(command)

    def output(self, terminal: str) -> str:
        """Return what a terminal has printed."""
        return (self.directory.parent / f"{terminal}.out").read_text(encoding="utf-8", errors="replace")

    def port(self, shown: str) -> str:
        """Return the port that stands for one that the page names."""
        if shown not in self._ports:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self._ports[shown] = str(probe.getsockname()[1])
        return self._ports[shown]

    def _run(self, command: Command) -> None:
        line = self._ready(command.line)
        ends_at = time.monotonic() + _SECONDS
        while True:
            done = subprocess.run(
                ["bash", "-c", _remembering(self._memory("main"), line)],
                cwd=self.directory,
                env=self._environment(),
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
            printed = (done.stdout + done.stderr).decode(errors="replace")
            missing = missing_lines(command.shown, printed)
            if done.returncode == 0 and not missing:
                return
            is_reading = line.startswith(_READING)
            if not is_reading or time.monotonic() > ends_at:
                raise AssertionError(
                    f"$ {line}\nexit code {done.returncode}, not printed: {missing}\n{printed}"
                )
            time.sleep(0.3)

    def _type_elsewhere(self, name: str, typed: list[Command], *, interrupt: bool) -> None:
        path = self.directory.parent / f"{name}.out"
        if interrupt:
            self._press_ctrl_c(name)
        if name not in self._terminals:
            with path.open("ab") as output:
                self._terminals[name] = subprocess.Popen(
                    ["bash"],
                    cwd=self.directory,
                    env=self._environment(),
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                )
        start = path.stat().st_size
        keyboard = self._terminals[name].stdin
        assert keyboard is not None
        for command in typed:
            keyboard.write(f"{self._ready(command.line)}\n".encode())
        keyboard.flush()
        shown = [line for command in typed for line in command.shown]
        ends_at = time.monotonic() + _SECONDS
        while missing := missing_lines(shown, path.read_bytes()[start:].decode(errors="replace")):
            if time.monotonic() > ends_at:
                raise AssertionError(f"terminal {name} has not printed {missing}\n{self.output(name)}")
            time.sleep(0.1)

    def _press_ctrl_c(self, name: str) -> None:
        """Interrupt what runs in a terminal, and wait until it has ended."""
        shell = psutil.Process(self._terminals[name].pid)
        running = shell.children()
        for process in running:
            process.send_signal(signal.SIGINT)
        _, still = psutil.wait_procs(running, timeout=_SECONDS)
        assert not still, f"terminal {name} does not stop\n{self.output(name)}"

    def _close(self, name: str) -> None:
        """Close a terminal: end what runs there, then its shell."""
        terminal = self._terminals.pop(name)
        shell = psutil.Process(terminal.pid)
        processes = shell.children(recursive=True)
        for process in shell.children():
            process.terminate()
        _, still = psutil.wait_procs(processes, timeout=_SECONDS)
        for process in still:
            process.kill()
        assert terminal.stdin is not None
        terminal.stdin.close()
        terminal.wait(timeout=_SECONDS)

    def _environment(self) -> dict[str, str]:
        (self.directory.parent / "home").mkdir(exist_ok=True)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TIDEGATE_", "OPENAI_", "ANTHROPIC_", "PYTEST_", "COV"))
        }
        scratch = self.directory.parent / "scratch"
        return kept | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.directory.parent / "home"),
            "TIDEGATE_SCRATCH": str(scratch),
            "COLUMNS": "160",
            **self.environment,
        }

    def _memory(self, terminal: str) -> Path:
        return self.directory.parent / f"{terminal}.env"

    def _with_free_ports(self, text: str) -> str:
        return _PORT.sub(lambda found: self.port(found[0]), text)

    def _ready(self, line: str) -> str:
        """Return a command with free ports, fingerprints of the store, and the id of a task for `ID`."""
        if re.match(r"tidegate web\b", line) and "--port" not in line:
            line += " --port 4180"
        line = self._with_free_ports(line)
        line = _FINGERPRINT.sub(lambda found: self._fingerprint(found[0]), line)
        if re.search(r"\bID\b", line):
            line = re.sub(r"\bID\b", self._task_id(dead="tidegate dead" in line), line)
        return line

    def _task_id(self, *, dead: bool) -> str:
        command = ["dead", "ls"] if dead else ["tasks", "ls"]
        return str(self._listed(*command)[0]["task_id"])

    def _fingerprint(self, shown: str) -> str:
        """Return the first digits of the group that stands for a fingerprint that the page names."""
        if shown not in self._fingerprints:
            digits = [str(group["fingerprint"])[:8] for group in self._listed("dead", "groups")]
            free = [each for each in digits if each not in self._fingerprints.values()]
            assert free, f"no group of failures is left to stand for {shown}"
            self._fingerprints[shown] = free[0]
        return self._fingerprints[shown]

    def _listed(self, *command: str) -> list[dict[str, object]]:
        listed = subprocess.run(
            ["tidegate", *command, "--json"],
            cwd=self.directory,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
        return [json.loads(line) for line in listed.stdout.splitlines()]


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a console block, each with its shown output."""
    commands: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append(Command(re.sub(r"\s+# .*$", "", line.removeprefix("$ ")), []))
        elif commands and commands[-1].line.endswith("\\"):
            commands[-1].line = commands[-1].line[:-1] + line.strip()
        elif commands and line.strip():
            commands[-1].shown.append(line)
    return commands


def missing_lines(shown: list[str], printed: str) -> list[str]:
    """Return the shown lines that were not printed."""
    real = [_comparable(line) for line in printed.splitlines()]
    return [line for line in shown if not any(_pattern(line).fullmatch(other) for other in real)]


def _pattern(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part.strip()) for part in _comparable(line).split("…")))


def _comparable(line: str) -> str:
    for pattern, word in _VARYING:
        line = re.sub(pattern, word, line)
    return line.strip()


def _remembering(memory: Path, line: str) -> str:
    """Return a script that runs the line with the exports and in the directory of the lines before it."""
    place = shlex.quote(str(memory))
    return (
        f'[ -e {place} ] && . {place}\n{line}\nrc=$?\n{{ export -p; echo cd "$PWD"; }} > {place}\nexit $rc\n'
    )
