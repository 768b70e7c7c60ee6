"""The SQL function that autoscalers call: the same rule as in Python."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator

import pytest
from store_build import Build, SettableClock, succeeded

from pgserver import Server
from postgres_support import SCHEMA, emptied
from tidegate.domain.spec import Window
from tidegate.limits.pauses import PauseKind
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.monitor.scaling import decide_scaling
from tidegate.policy.autoscale import PoolScaling
from tidegate.store.postgres.roles import role
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.rows import CrashPolicy

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(postgres: Server) -> AsyncIterator[PostgresStore]:
    emptied(postgres)
    store = PostgresStore(postgres.url(user=role(SCHEMA, "worker")))
    yield store
    await store.close()


@pytest.fixture
def asked(postgres: Server) -> Iterator[object]:
    """Ask the function as the role that only reads, as KEDA would."""
    with postgres.connect(user=role(SCHEMA, "reader")) as reader:

        def ask(queues: list[str], slots: int, target: float, backlog: int | None) -> int:
            row = reader.execute(
                f"SELECT {SCHEMA}.desired_workers(%s, %s, %s, %s)", [queues, slots, target, backlog]
            ).fetchone()
            return int(row[0])

        yield ask


@pytest.mark.parametrize("seed", range(6))
async def test_the_function_and_the_python_rule_give_the_same_number(
    store: PostgresStore, asked: object, seed: int
) -> None:
    rng = random.Random(seed)
    build = Build(store, SettableClock())
    limits = Limits(
        windows=(Window("requests_per_minute", rng.choice([30, 600, 6_000]), 60.0),),
        max_in_flight=rng.choice([None, 3, 50]),
        slow_start_seconds=0.0,
    )
    await store.declare_limits(
        [LimitDeclaration(GateKind.UPSTREAM, "openai", limits), LimitDeclaration(GateKind.UPSTREAM, "closed")]
    )
    for queue, upstream in [("calls", "openai"), ("calls", ""), ("other", "openai"), ("other", "closed")]:
        function = f"app:{queue}"
        if rng.random() < 0.7:
            worker = await build.worker()
            await build.enqueue(3, queue=queue, upstream="", function=function)
            request = build.request(worker, queues=(queue,), functions={function: CrashPolicy()})
            tasks = (await store.claim(request)).tasks
            await build.done(*[succeeded(task.fence) for task in tasks[: rng.randint(0, 3)]])
        await build.enqueue(rng.randint(1, 400), queue=queue, upstream=upstream, function=function)
    await store.park_gate("closed", seconds=None, why="")
    await build.enqueue(50, queue="paused")
    await store.pause(PauseKind.QUEUE, "paused", by="ada", why="")
    for queues in (["*"], ["calls"], ["other", "paused"], ["nobody"]):
        for target, backlog in ((60.0, None), (0.01, None), (60.0, 100)):
            scaling = PoolScaling(8, target_seconds=target, backlog_per_worker=backlog)
            expected = await decide_scaling(store, queues, scaling)
            assert asked(queues, 8, target, backlog) == expected.workers, expected.reason  # type: ignore[operator]
