"""Gates and limits that the tests of this folder declare, and failures that park them."""

from __future__ import annotations

from dataclasses import replace

from store_build import retrying

from tidegate.domain.failure import CallFailure, Failure, Reason, Verdict
from tidegate.domain.outcome import Charge, Retrying
from tidegate.domain.spec import Window
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimedTask

MINUTE = Window("requests_per_minute", 60, 60.0)
SLOW = CallFailure(Reason.RATE_LIMIT, wait_seconds=10.0)
DOWN = CallFailure(Reason.SERVER_ERROR)
NO_LIMITS = Limits()


def upstream(name: str = "u", limits: Limits = NO_LIMITS) -> LimitDeclaration:
    return LimitDeclaration(GateKind.UPSTREAM, name, limits)


async def declared(store: Store, limits: Limits = NO_LIMITS, name: str = "u") -> None:
    await store.declare_limits([upstream(name, limits)])


async def gate(store: Store, name: str = "u"):
    return next(row.gate for row in await store.list_upstreams() if row.name == name)


def parked(task: ClaimedTask, call_failure: CallFailure = SLOW, delay: float = 10.0) -> Retrying:
    failure = Failure(Verdict.TRANSIENT, call_failure.reason, wait_seconds=call_failure.wait_seconds)
    return replace(
        retrying(task.fence, delay=delay, failure=failure, charge=Charge.PARK), call_failure=call_failure
    )
