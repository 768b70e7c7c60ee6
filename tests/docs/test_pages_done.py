"""The how-to pages, done literally: files saved, commands typed, output compared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from pages import ROOT, blocks
from sessions import Session

from tidegate.testing.provider import SimulatedProvider

HOW_TO = ROOT / "docs" / "how-to"
EMPTY = [
    "deploy",
    "make-a-task-safe-to-repeat",
    "many-machines",
    "move-off-celery",
    "schedules",
    "trace-and-log",
    "use-several-keys",
    "write-tasks",
]
"""Pages that need nothing but an empty directory."""
ELSEWHERE = {
    "approvals": "tests/cli/test_cli_approvals.py runs the commands on tasks that ask",
    "debug-a-dead-task": "tests/cli/test_cli_replay.py runs the command on stored tasks",
    "doubts": "tests/cli/test_cli_doubts.py runs the commands on calls in doubt",
    "maps": "tests/cli/test_cli_maps.py runs the commands on stored maps",
    "provider-jobs": "tests/cli/test_cli_provider_jobs.py runs the command on a task that waits for a job",
    "suspend": "tests/cli/test_cli_events.py and tests/web/test_web_task_events.py send what it sends",
    "redrive-many-dead-letters": "tests/cli/test_cli_dead.py runs the commands on stored tasks",
    "test-your-tasks": "its own test runs what it shows",
}

FAILING = """
from tidegate import Permanent, Tidegate

app = Tidegate()


@app.task
async def check(text: str) -> str:
    raise Permanent(f"not {text}", reason=text)
"""


def _with_dead_letters(session: Session) -> None:
    """A queue with a worker and three dead letters in two groups."""
    session.write("app.py", FAILING)
    session.write("tidegate.toml", 'app = "app:app"\n')
    session.enter("tidegate worker", terminal="worker")
    for reason in ("auth", "auth", "content_policy"):
        session.enter(f"tidegate enqueue check {reason}")
    session.enter("tidegate dead ls", shown=["3 of 3 dead letters"])


def _with_a_database(session: Session) -> None:
    """A queue without tasks and workers."""
    session.enter("tidegate db upgrade")


SET_UP: dict[str, Callable[[Session], None]] = {
    "alerts": _with_a_database,
    "control-live": _with_a_database,
    "know-what-happened": _with_dead_letters,
    "operate": _with_dead_letters,
    "watch-and-scale": _with_a_database,
}
SLOW = {"operate"}


def _do(name: str, tmp_path: Path, environment: dict[str, str]) -> None:
    directory = tmp_path / "empty"
    directory.mkdir()
    with Session(directory, environment) as session:
        if name in SET_UP:
            SET_UP[name](session)
        session.do(HOW_TO / f"{name}.md")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in [*EMPTY, *SET_UP]],
)
def test_what_the_page_shows_can_be_done_as_printed(name: str, tmp_path: Path) -> None:
    _do(name, tmp_path, {})


@pytest.mark.anyio
@pytest.mark.timeout(600)
async def test_the_calls_of_the_page_on_providers_can_be_made_as_printed(tmp_path: Path) -> None:
    async with SimulatedProvider() as provider:
        variables = {"OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": "simulated"}
        await asyncio.to_thread(_do, "call-providers", tmp_path, variables)


def test_every_how_to_page_with_commands_is_done_by_a_test() -> None:
    shown = {page.stem for page in HOW_TO.glob("*.md") if blocks(page, "console")}

    assert shown - {*EMPTY, *SET_UP, *ELSEWHERE} == {"call-providers"}
