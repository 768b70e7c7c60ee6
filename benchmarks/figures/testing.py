"""Testing: CPU time of a test with a kit, and of the jumps of its clock.

A jump with nothing due, and a jump to a task that is due, which is claimed, run and finished there.
"""

from __future__ import annotations

import time
from datetime import timedelta

from benchmarks.harness import OURS, ResultLine, Settings, run_in_turns
from tidegate import Tidegate
from tidegate.testing import Kit

TESTS = 50
JUMPS = 10_000
DUE = 1_000
MOST_SETUP_MS = 20.0
MOST_JUMP_SECONDS = 2.0

app = Tidegate("sqlite:////dev/null/never-opened.db")


@app.task(name="benchmark:noop")
async def noop(number: int) -> None:
    """Do nothing."""


def measure(settings: Settings) -> list[ResultLine]:
    """Return CPU time, which noise hardly touches."""
    values = run_in_turns(settings.rounds, {OURS: _round})
    setup = ResultLine("test kit: enter and leave", "CPU ms", values["setup"])
    setup.add_goal(f"≤ {MOST_SETUP_MS:g} ms", setup.median(OURS) <= MOST_SETUP_MS)
    test = ResultLine("test kit: a test that enqueues and drains one task", "CPU ms", values["test"])
    jumps = ResultLine(f"test kit: {JUMPS:,} jumps with nothing due", "CPU s", values["jumps"])
    jumps.add_goal(f"≤ {MOST_JUMP_SECONDS:g} s", jumps.median(OURS) <= MOST_JUMP_SECONDS)
    due = ResultLine(f"test kit: one advance over {DUE:,} due moments", "CPU s", values["due"])
    return [setup, test, jumps, due]


def _round() -> dict[str, float]:
    _enter_and_leave(1)  # the empty store is made once in each process
    return {
        "setup": 1000 * _timed(lambda: _enter_and_leave(TESTS)) / TESTS,
        "test": 1000 * _timed(lambda: _drain_one(TESTS)) / TESTS,
        "jumps": _jumps(),
        "due": _due_moments(),
    }


def _enter_and_leave(times: int) -> None:
    for _ in range(times):
        with Kit(app):
            pass


def _drain_one(times: int) -> None:
    for number in range(times):
        with Kit(app) as kit:
            noop.enqueue_sync(number)
            assert kit.drain_sync().succeeded == 1


def _jumps() -> float:
    with Kit(app) as kit:
        noop.using(delay=timedelta(days=365)).enqueue_sync(0)

        def jump() -> None:
            for _ in range(JUMPS):
                kit.advance_sync(minutes=1)

        return _timed(jump)


def _due_moments() -> float:
    with Kit(app) as kit:
        for number in range(DUE):
            noop.using(delay=float(60 * (number + 1))).enqueue_sync(number)
        began_at = time.process_time()
        assert kit.advance_sync(minutes=DUE + 1, limit="10m").succeeded == DUE
        return time.process_time() - began_at


def _timed(work: object) -> float:
    assert callable(work)
    began_at = time.process_time()
    work()
    return time.process_time() - began_at
