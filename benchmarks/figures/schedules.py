"""Fire 10,000 schedules at one moment, and look at them when none is due: CPU of the firing process, SQLite.

A round that finds nothing due happens once a second in each worker and scheduler. The tasks that fire are
stored, not run. The time per tick includes cron, the record of the tick, and the enqueue of its task.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path

from benchmarks.harness import OURS, ResultLine, Settings, run_in_turns
from benchmarks.processes import fresh_directory, run_child
from tidegate.codec import CODEC
from tidegate.domain.schedule import ScheduledTask, ScheduleRule
from tidegate.policy.ticks import next_tick
from tidegate.schedule.firing import ScheduleFirer
from tidegate.store.schedule_rows import NewSchedule
from tidegate.store.sqlite.store import SqliteStore

SCHEDULES = 10_000
MOST_MS = 1.0
START = 1_800_000_000.0
ROUNDS_WITHOUT_TICKS = 200


class Clock:
    """The store's clock, moved by hand."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


def measure(settings: Settings) -> list[ResultLine]:
    """Return the CPU per tick, and per round without a due tick."""

    def run() -> dict[str, float]:
        with fresh_directory() as directory:
            return run_child("benchmarks.figures.schedules", directory, "fire", n=SCHEDULES)

    values = run_in_turns(settings.rounds, {OURS: run})
    tick = ResultLine(f"{SCHEDULES:,} schedules fire, CPU per tick", "ms", values["tick_ms"])
    tick.add_goal(f"≤ {MOST_MS:g} ms", tick.median(OURS) <= MOST_MS)
    idle = ResultLine(f"a round with none of {SCHEDULES:,} due, CPU", "ms", values["idle_ms"])
    idle.add_goal(f"≤ {MOST_MS:g} ms", idle.median(OURS) <= MOST_MS)
    return [tick, idle]


async def fire(directory: Path, n: int) -> dict[str, float]:
    """Store the schedules, half of them with a time zone, and fire each once."""
    clock = Clock()
    store = SqliteStore(directory / "queue.db", clock=clock)
    await store.open()
    task = ScheduledTask(function="app:work", queue="main", args='{"a":[],"k":{"n":1}}', codec_tag=CODEC)
    rules = [
        ScheduleRule(cron="*/5 * * * *"),
        ScheduleRule(cron="*/5 7-20 * * 1-5", timezone="Europe/Berlin"),
    ]
    await store.declare_schedules(
        "app:app",
        "one",
        [
            NewSchedule(f"s{number:05d}", rules[number % 2], task, next_tick(rules[0], START))
            for number in range(n)
        ],
        grace_seconds=60.0,
    )
    firer = ScheduleFirer(store, rng=random.Random(1))
    began = time.process_time()
    for _ in range(ROUNDS_WITHOUT_TICKS):
        await firer.run_once()
    idle = (time.process_time() - began) / ROUNDS_WITHOUT_TICKS
    clock.now += 300.0
    began = time.process_time()
    fired = await firer.fire_due()
    tick = (time.process_time() - began) / n
    assert fired == n, fired
    await store.close()
    return {"tick_ms": tick * 1_000, "idle_ms": idle * 1_000}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(fire(Path.cwd(), json.loads(sys.argv[2])["n"]))))
