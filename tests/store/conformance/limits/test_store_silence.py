"""Upstreams that answer nobody: a report parks them, and an answer that any process got opens them."""

from __future__ import annotations

import pytest
from store_build import Build, SettableClock, succeeded

from tidegate.domain.failure import CallFailure, Reason
from tidegate.limits.settings import GateKind, LimitDeclaration
from tidegate.limits.silence import NOT_ANSWERING
from tidegate.limits.values import GateState
from tidegate.store.protocol import Store

pytestmark = pytest.mark.anyio

SILENT = CallFailure(Reason.TIMEOUT, message="no call was answered for 60 s", silent_seconds=60.0)


async def test_a_silent_upstream_gives_no_task_but_a_probe_and_opens_with_the_first_answer(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u")])
    first = await build.run(upstream="u")
    await build.enqueue(3, upstream="u")
    clock.advance(10.0)
    gate = await store.report_failure("u", SILENT)
    assert (gate.state, gate.reason) == (GateState.PARKED, NOT_ANSWERING)
    worker = await build.worker()
    assert await build.claim(worker) == []
    clock.advance(1.1)
    (probe,) = await build.claim(worker)
    assert probe.is_probe
    await store.report_success("u")
    (row,) = await store.list_upstreams()
    assert row.gate.state is GateState.FLOWING
    await build.done(succeeded(first.fence), succeeded(probe.fence))


async def test_a_silence_of_one_process_parks_nothing_while_another_is_answered(
    store: Store, clock: SettableClock
) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u")])
    clock.advance(55.0)
    await store.report_success("u")
    clock.advance(5.0)
    assert (await store.report_failure("u", SILENT)).state is GateState.FLOWING
