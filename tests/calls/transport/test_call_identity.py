"""The identities of calls: the same in each run, and different for each call of a run."""

from __future__ import annotations

import asyncio

import pytest
from transport_clients import URL, Network, client_with_transport, in_a_run, ok

from tidegate.steps.current import CurrentStep, enter_step

pytestmark = pytest.mark.anyio


async def keys_of(step: str, run: int) -> list[str]:
    """Return the idempotency keys of three calls that one execution of a step makes."""
    network = Network(ok())
    in_a_run("task a", run=run)

    async def execute() -> None:
        enter_step(CurrentStep(step))
        async with client_with_transport(network) as http:
            for content in ("one", "two", "one"):
                await http.post(URL, json={"input": content})

    await asyncio.create_task(execute())
    return [request.headers["idempotency-key"] for request in network.requests]


async def test_calls_in_a_step_have_keys_of_the_step_that_each_execution_of_it_repeats() -> None:
    first = await keys_of("task a:step:1:image", run=1)
    assert len(set(first)) == 3
    assert await keys_of("task a:step:1:image", run=1) == first
    assert await keys_of("task a:step:1:image", run=2) == first
    assert not set(await keys_of("task a:step:2:image", run=1)) & set(first)
