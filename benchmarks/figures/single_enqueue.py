"""Single durable enqueue: one client, one task a transaction, each waited for."""

from __future__ import annotations

from benchmarks.harness import LIMIT, Contestant, ResultLine, Settings, run_in_turns
from benchmarks.processes import fresh_directory, run_child

ASYNC, SYNC = "async", "sync"


def measure(settings: Settings) -> list[ResultLine]:
    """Return tasks stored a second, by the async and by the sync method."""
    n = max(1, settings.n // 10)

    def client(what: str) -> Contestant:
        def run() -> dict[str, float]:
            with fresh_directory() as directory:
                return run_child("benchmarks.client", directory, what, n=n)

        return run

    def limit() -> dict[str, float]:
        with fresh_directory() as directory:
            return run_child("benchmarks.limit", directory, "enqueue", n=n, batch=1)

    contestants = {ASYNC: client("single_async"), SYNC: client("single_sync"), LIMIT: limit}
    rates = run_in_turns(settings.rounds, contestants)["rate"]
    return [
        ResultLine(f"single enqueue, {api} API", "/s", {api: rates[api], LIMIT: rates[LIMIT]})
        for api in (ASYNC, SYNC)
    ]
