"""What steps and maps cost on both stores: a step, a re-run over finished steps, a map against an enqueue.

    PYTHONPATH=tests .venv/bin/python -m benchmarks.steps [--store sqlite|postgres] [--json FILE]

Each figure has its goal; the exit code is 1 if one is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import log_progress
from pgserver import postgres_server
from tidegate import Context, Fixed, Pool, Tidegate, Transient
from tidegate.internals import core_of

STEPS = 200
RECORDED = 1_000
ROUNDS = 5
MOST_CALLS = 2.0
MOST_CACHED_CALLS = 3.0
"""A result from the cache costs at most one call more than a step without a cache."""
MOST_RERUN_SECONDS = 1.0
ITEMS = 100_000
MAP_ROUNDS = 3
MOST_MAP_TIMES = 2.0


async def _answer(number: int) -> dict[str, int]:
    return {"number": number}


def _application(url: str) -> Tidegate:
    app = Tidegate(url, pools=[Pool(concurrency=64, poll_interval=0.02)])

    @app.task(name="bench:steps")
    async def steps(ctx: Context, count: int, is_parallel: bool) -> float:
        """Do steps; return the seconds that they took."""
        started_at = time.perf_counter()
        if is_parallel:
            await asyncio.gather(*[ctx.step("answer", _answer, number) for number in range(count)])
        else:
            for number in range(count):
                await ctx.step("answer", _answer, number)
        return time.perf_counter() - started_at

    @app.task(name="bench:cached")
    async def cached(ctx: Context, count: int, group: int) -> float:
        """Do steps with a cache; return the seconds that they took."""
        started_at = time.perf_counter()
        for number in range(count):
            await ctx.step("answer", _answer, group * count + number, cache="1h")
        return time.perf_counter() - started_at

    @app.task(name="bench:again", backoff=Fixed(0.01))
    async def again(ctx: Context, count: int) -> float:
        """Do steps and fail; in the next run return the seconds that it took to come past them."""
        started_at = time.perf_counter()
        await asyncio.gather(*[ctx.step("answer", _answer, number) for number in range(count)])
        if ctx.run == 1:
            raise Transient("once")
        return time.perf_counter() - started_at

    @app.task(name="bench:item")
    async def item(number: int) -> None: ...

    return app


@asynccontextmanager
async def _store_url(kind: str) -> AsyncIterator[str]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as directory:
            yield f"sqlite:///{directory}/queue.db"
    else:
        with postgres_server() as server:
            yield server.url()


class _CountedStore:
    """A store that counts the calls of each method."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return method(*args, **kwargs)

        return counted


async def measure(kind: str) -> list[dict[str, Any]]:
    """Return each figure on one store: the median of the rounds, and the least."""
    async with _store_url(kind) as url:
        app = _application(url)
        await core_of(app).store.migrate()
        counted = _CountedStore(core_of(app).store)
        core_of(app).store = counted
        steps, again, cached = (
            core_of(app).functions[f"bench:{name}"] for name in ("steps", "again", "cached")
        )
        rows: dict[str, list[float]] = {
            "step, one after another": [],
            "step, 200 at once": [],
            "store calls a step, one after another": [],
            "step with a cache that does the work": [],
            "step that is answered from the cache": [],
            "store calls of such work": [],
            "store calls of such an answer": [],
            "re-run over 1,000 steps": [],
        }
        async with app.worker():
            for number in range(ROUNDS + 1):
                before = counted.calls.copy()
                alone = await (await steps.enqueue(STEPS, False)).result(120)
                calls = _calls_of_steps(counted.calls - before)
                before = counted.calls.copy()
                missed = await (await cached.enqueue(STEPS, number)).result(120)
                calls_of_work = _calls_of_steps(counted.calls - before)
                before = counted.calls.copy()
                found = await (await cached.enqueue(STEPS, number)).result(120)
                calls_of_answer = _calls_of_steps(counted.calls - before)
                together = await (await steps.enqueue(STEPS, True)).result(120)
                rerun = await (await again.enqueue(RECORDED)).result(120)
                if number:  # the first round warms up
                    rows["step, one after another"].append(alone / STEPS * 1000)
                    rows["step, 200 at once"].append(together / STEPS * 1000)
                    rows["store calls a step, one after another"].append(calls / STEPS)
                    rows["step with a cache that does the work"].append(missed / STEPS * 1000)
                    rows["step that is answered from the cache"].append(found / STEPS * 1000)
                    rows["store calls of such work"].append(calls_of_work / STEPS)
                    rows["store calls of such an answer"].append(calls_of_answer / STEPS)
                    rows["re-run over 1,000 steps"].append(rerun)
        await app.aclose()
    rows |= await _measure_maps(kind)
    goals = {
        f"map of {ITEMS:,}, times the enqueue": MOST_MAP_TIMES,
        "store calls a step, one after another": MOST_CALLS,
        "store calls of such an answer": MOST_CACHED_CALLS,
        "re-run over 1,000 steps": MOST_RERUN_SECONDS,
    }
    units = {
        "step, one after another": "ms",
        "step, 200 at once": "ms",
        "step with a cache that does the work": "ms",
        "step that is answered from the cache": "ms",
        "re-run over 1,000 steps": "s",
        "progress of that map": "ms",
    }
    return [
        {
            "figure": name,
            "store": kind,
            "median": round(statistics.median(values), 3),
            "least": round(min(values), 3),
            "unit": units.get(name, ""),
            "goal": goals.get(name),
        }
        for name, values in rows.items()
    ]


def _calls_of_steps(made: Counter[str]) -> int:
    """Return how many of these calls of the store were made for steps."""
    return sum(calls for name, calls in made.items() if name.endswith(("_steps", "_cached_step")))


async def _measure_maps(kind: str) -> dict[str, list[float]]:
    """Return the time of a map as a multiple of that of `enqueue_many`, and the time to read its progress.

    Each round has a store of its own. Which of the two comes first changes from round to round.
    """
    rows: dict[str, list[float]] = {f"map of {ITEMS:,}, times the enqueue": [], "progress of that map": []}
    for number in range(MAP_ROUNDS):
        async with _store_url(kind) as url:
            app = _application(url)
            await core_of(app).store.migrate()
            item = core_of(app).functions["bench:item"]
            seconds: dict[str, float] = {}
            for what in ("map", "plain") if number % 2 else ("plain", "map"):
                started_at = time.perf_counter()
                if what == "map":
                    handle = await item.map(number for number in range(ITEMS))
                else:
                    await item.enqueue_many((number,) for number in range(ITEMS))
                seconds[what] = time.perf_counter() - started_at
            started_at = time.perf_counter()
            await handle.progress()
            rows["progress of that map"].append((time.perf_counter() - started_at) * 1000)
            rows[f"map of {ITEMS:,}, times the enqueue"].append(seconds["map"] / seconds["plain"])
            await app.aclose()
    return rows


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=["sqlite", "postgres"], action="append")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    for kind in options.store or ["sqlite", "postgres"]:
        log_progress(f"  steps on {kind}")
        found += asyncio.run(measure(kind))
    missed = [each for each in found if each["goal"] is not None and each["median"] > each["goal"]]
    for each in found:
        goal = "" if each["goal"] is None else f"≤ {each['goal']:g} {'MISSED' if each in missed else 'ok'}"
        line = f"{each['figure']:<40} {each['store']:<9} {each['median']:>8.3f} {each['unit']:<2}"
        print(f"{line} (least {each['least']:.3f}) {goal}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
