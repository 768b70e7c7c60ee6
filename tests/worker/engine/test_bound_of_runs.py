"""A run ends within its timeout, the stop grace and a lease, no matter what fails at its end."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from support import EVERYDAY_ON_SQLITE, until
from tidegate import Failure, Pool, State, Tidegate, Timings, on
from tidegate.codec.signature import Signature
from tidegate.domain.outcome import FinishStatus, Outcome
from tidegate.domain.states import FINAL
from tidegate.errors import StoreUnavailableError
from tidegate.internals import core_of
from tidegate.store.protocol import Store

pytestmark = pytest.mark.anyio

TIMEOUT = 0.5
TIMES = Timings(lease=3.0, reap=0.2, promote=0.1, stop_grace=0.3, cancel_poll=0.1)
BOUND = TIMEOUT + TIMES.stop_grace + TIMES.lease

Break = Callable[[Tidegate, Store, pytest.MonkeyPatch], None]


def broken(*_: object, **__: object) -> Any:
    raise KeyError("broken")


def spec(**values: object) -> Break:
    """Return a step that gives the function unchecked settings, as an older version would have."""

    def act(app: Tidegate, store: Store, patch: pytest.MonkeyPatch) -> None:
        function = app.function("body")
        function.spec = copy.copy(function.spec)
        for name, value in values.items():
            object.__setattr__(function.spec, name, value)

    return act


def classifier_raises(app: Tidegate, store: Store, patch: pytest.MonkeyPatch) -> None:
    app.classifier(broken)


def classifier_delays(app: Tidegate, store: Store, patch: pytest.MonkeyPatch) -> None:
    @app.classifier
    def slow(error: BaseException) -> Failure | None:
        time.sleep(0.5)  # it blocks the loop, as user code can
        return None


def classification_raises(app: Tidegate, store: Store, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tidegate.worker.engine.outcome_decider.classify", broken)


def encoder_raises(app: Tidegate, store: Store, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Signature, "encode_result", broken)


def decoder_raises(app: Tidegate, store: Store, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Signature, "load", broken)


def store_is_unreachable(app: Tidegate, store: Store, patch: pytest.MonkeyPatch) -> None:
    """The store answers the first three writes of outcomes with an outage, the first of them late."""
    finish, left = store.finish, [0.3, 0.0, 0.0]

    async def unreachable(outcomes: Sequence[Outcome]) -> list[FinishStatus]:
        if left:
            await asyncio.sleep(left.pop(0))
            raise StoreUnavailableError("away")
        return await finish(outcomes)

    patch.setattr(store, "finish", unreachable)


def store_refuses_all_but_the_fallback_outcome(
    app: Tidegate, store: Store, patch: pytest.MonkeyPatch
) -> None:
    finish = store.finish

    async def choosy(outcomes: Sequence[Outcome]) -> list[FinishStatus]:
        if any("cannot be stored" not in getattr(outcome, "why", "") for outcome in outcomes):
            raise ValueError("not storable")
        return await finish(outcomes)

    patch.setattr(store, "finish", choosy)


BREAKS: dict[str, Break] = {
    "nothing": spec(),
    "a backoff of text": spec(backoff="5s"),
    "rules that are none": spec(rules=5),
    "attempts of text": spec(max_attempts="1"),
    "a timeout that is no number": spec(timeout=math.nan),
    "a classifier that raises": classifier_raises,
    "a classifier that delays": classifier_delays,
    "a classification that raises": classification_raises,
    "an encoder that raises": encoder_raises,
    "a decoder that raises": decoder_raises,
    "a store that is unreachable": store_is_unreachable,
    "a store that refuses": store_refuses_all_but_the_fallback_outcome,
}


ENDED_BY = (
    decoder_raises,
    BREAKS["attempts of text"],
    store_refuses_all_but_the_fallback_outcome,
    BREAKS["a timeout that is no number"],
)
"""With these, a function that returns is dead too: it never started, or its result cannot be stored."""


async def returns() -> int:
    return 1


async def fails() -> int:
    raise ValueError("its own")


async def will_not_stop() -> int:
    while not LET_GO.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
    return 1


LET_GO = threading.Event()
"""Set at the end of a test, because the loop waits for the tasks left on it."""


@pytest.fixture(autouse=True)
def _end_leftovers() -> Iterator[None]:
    LET_GO.clear()
    yield
    LET_GO.set()


ENDS: list[Callable[[], Any]] = [returns, fails, will_not_stop]


@EVERYDAY_ON_SQLITE
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("act", BREAKS.values(), ids=list(BREAKS))
async def test_a_run_is_over_within_its_timeout_the_stop_grace_and_a_lease(
    store_url: str, act: Break, end: Callable[[], Awaitable[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Tidegate(store_url, timings=TIMES, pools=[Pool(concurrency=4, poll_interval=0.05)])
    app.task(end, name="body", timeout=TIMEOUT, max_attempts=1, retry=[on(ValueError)])
    store = await core_of(app).opened_store()
    handle = await app.function("body").enqueue()
    act(app, store, monkeypatch)
    try:
        async with app.worker():

            async def is_over() -> bool:
                return (await handle.status()).state in FINAL

            await until(is_over, within=BOUND, what="the run is over")
            state = (await handle.status()).state
        assert state is (State.SUCCEEDED if end is returns and act not in ENDED_BY else State.DEAD)
    finally:
        LET_GO.set()
        await app.aclose()
