"""The simulated store: calls that are executed after their caller has stopped waiting."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

from simulation.event_log import EventLog
from simulation.faulty_store import SimulatedStore, StoreCondition
from simulation.user_code_faults import UserCodeFaults
from tidegate.testing.virtual_time import VirtualLoop, run_virtually


class _FirstChoice(random.Random):
    """Draws 0.999, then always 0.0: the first call is under way for a moment, and is executed late."""

    def __init__(self) -> None:
        self._left = [0.999]
        super().__init__()

    def random(self) -> float:
        return self._left.pop() if self._left else 0.0


def test_an_error_of_a_late_call_is_not_reported_to_the_loop(tmp_path: Path) -> None:
    loop = VirtualLoop()
    uncaught: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: uncaught.append(context))
    event_log = EventLog(loop.time, loop.time)
    event_log.user_code_faults = UserCodeFaults(random.Random(1), 1.0, lambda _: None, Counter())
    store = SimulatedStore(
        tmp_path / "queue.db",
        clock=loop.time,
        machine="w1.1",
        conditions=(StoreCondition(), StoreCondition()),
        background_faults=StoreCondition(),
        rng=_FirstChoice(),
        event_log=event_log,
        on_answer=lambda method, answer: None,
    )

    async def cancel_a_sent_call() -> None:
        await store._store.open()
        call = asyncio.ensure_future(store.list_cancel_requests("w1"))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await asyncio.sleep(10)
        assert event_log.injected["late commit"] == 1
        await store.close()

    run_virtually(cancel_a_sent_call(), loop)
    assert uncaught == []
