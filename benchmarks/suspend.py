"""How soon suspended tasks start that are all due at one moment, on both stores.

    PYTHONPATH=tests .venv/bin/python -m benchmarks.suspend [--store sqlite|postgres] [--tasks 10000]

One embedded worker with 64 slots runs them. The figure is the time from the moment at which all are due to
the start of the last one; the goal is 30 s for 10,000 tasks. The exit code is 1 if it is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import log_progress
from pgserver import postgres_server
from tidegate import Context, Pool, State, Tidegate
from tidegate.internals import core_of

TASKS = 10_000
MOST_SECONDS = 30.0
_MARGIN_SECONDS = 20.0


@asynccontextmanager
async def _store_url(kind: str) -> AsyncIterator[str]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as directory:
            yield f"sqlite:///{directory}/queue.db"
    else:
        with postgres_server() as server:
            yield server.url()


async def measure(kind: str, tasks: int) -> dict[str, Any]:
    """Return the seconds until every task was suspended, and until the last one started again."""
    starts: list[float] = []
    wake_at = 0.0
    async with _store_url(kind) as url:
        app = Tidegate(url, pools=[Pool(concurrency=64, poll_interval=0.05)])

        @app.task(name="bench:sleeper")
        async def sleeper(ctx: Context) -> None:
            await ctx.sleep(max(0.0, wake_at - time.time()))
            starts.append(time.time())

        core = core_of(app)
        await core.store.migrate()
        function = core.functions["bench:sleeper"]
        began = time.time()
        wake_at = began + tasks / 250 + _MARGIN_SECONDS
        await app.enqueue_many(function.prepare() for _ in range(tasks))
        async with app.worker():
            while await _count(core, State.SUSPENDED) < tasks:
                if time.time() > wake_at:
                    raise SystemExit(f"{kind}: not all tasks were suspended before they were due")
                await asyncio.sleep(0.2)
            suspended = time.time() - began
            while len(starts) < tasks:
                await asyncio.sleep(0.1)
        await app.aclose()
    return {
        "figure": f"{tasks:,} suspended tasks due at one moment: the last one starts after",
        "store": kind,
        "seconds": round(max(starts) - wake_at, 2),
        "first_seconds": round(min(starts) - wake_at, 2),
        "suspended_after_seconds": round(suspended, 1),
        "goal": MOST_SECONDS,
    }


async def _count(core: Any, state: State) -> int:
    stats = await core.store.get_queue_stats()
    return sum(getattr(each, state.value) for each in stats)


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=["sqlite", "postgres"], action="append")
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = []
    for kind in options.store or ["sqlite", "postgres"]:
        log_progress(f"  suspended tasks on {kind}")
        found.append(asyncio.run(measure(kind, options.tasks)))
        print(found[-1])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(each["seconds"] > each["goal"] for each in found))


if __name__ == "__main__":
    sys.exit(main())
