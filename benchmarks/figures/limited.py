"""Limited: the same no-op drain without an upstream, with a plain one, and with limits that never bind.

On SQLite with one worker process, and on PostgreSQL with one and with four. Needs `PYTHONPATH=tests`.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

from benchmarks.harness import ResultLine, Settings, run_in_turns
from benchmarks.limited import STORES, Work
from benchmarks.limited import measure as measure_round
from pgserver import postgres_server

LEAST_SHARE = 0.8
"""Of the rate of the drain without an upstream."""
WITHOUT = "none"


def measure(settings: Settings) -> list[ResultLine]:
    """Return rate and CPU of each kind of drain, compared with the drain without an upstream."""
    lines = []
    for store in STORES:
        with postgres_server() if store == "postgres" else nullcontext(None) as server:
            for workers in (1, 4) if server is not None else (1,):
                contestants = {
                    upstream: partial(
                        measure_round, server, Work(n=settings.n, upstream=upstream, workers=workers)
                    )
                    for upstream in ("limits", "plain", WITHOUT)
                }
                values = run_in_turns(settings.rounds, contestants)
                for upstream in ("limits", "plain"):
                    where = f"{store}, {workers} at work, {upstream}"
                    pair = {
                        name: {who: rounds[who] for who in (upstream, WITHOUT)}
                        for name, rounds in values.items()
                    }
                    rate = ResultLine(f"drain, {where}", "/s", pair["rate"], base=WITHOUT)
                    ratio = rate.ratio()
                    rate.add_goal(f"≥ {LEAST_SHARE} of none", ratio is not None and ratio >= LEAST_SHARE)
                    lines += [
                        rate,
                        ResultLine(f"CPU of 1,000 tasks, {where}", "s", pair["cpu"], base=WITHOUT),
                        ResultLine(f"commits, {where}", "", pair["commits"], base=WITHOUT),
                    ]
    return lines
