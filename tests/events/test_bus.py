"""The event bus, and what `app.on_event` accepts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from support import make_app
from tidegate import OptionError
from tidegate.events import EVENTS, Event, EventBus, GateOpened, WorkerStarted
from tidegate.internals import core_of

OPENED = GateOpened(upstream="openai", key="")


def test_subscribers_get_events_of_their_type_in_the_order_of_their_subscriptions() -> None:
    bus, seen = EventBus(), []
    bus.subscribe(GateOpened, lambda event: seen.append(("first", event)))
    bus.subscribe(GateOpened, lambda event: seen.append(("second", event)))
    bus.subscribe(WorkerStarted, lambda event: seen.append(("other", event)))
    bus.emit(OPENED)
    assert seen == [("first", OPENED), ("second", OPENED)]


def test_a_bus_wants_only_events_that_something_subscribes_to() -> None:
    bus = EventBus()
    assert not any(bus.wants(kind) for kind in EVENTS)
    bus.subscribe(GateOpened, lambda event: None)
    assert [kind for kind in EVENTS if bus.wants(kind)] == [GateOpened]


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(1)])
def test_a_subscriber_that_raises_is_logged_once_and_stops_no_other(
    raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    bus, seen = EventBus(), []

    def broken(event: GateOpened) -> None:
        raise raised

    bus.subscribe(GateOpened, broken)
    bus.subscribe(GateOpened, seen.append)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            bus.emit(OPENED)
    assert seen == [OPENED] * 3
    (record,) = caplog.records
    assert "broken of GateOpened failed" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is raised


def test_ctrl_c_in_a_subscriber_is_not_swallowed() -> None:
    bus = EventBus()

    def interrupted(event: GateOpened) -> None:
        raise KeyboardInterrupt

    bus.subscribe(GateOpened, interrupted)
    with pytest.raises(KeyboardInterrupt):
        bus.emit(OPENED)


def test_on_event_subscribes_the_decorated_function_and_returns_it(tmp_path: Path) -> None:
    app, seen = make_app(tmp_path), []

    @app.on_event(GateOpened)
    def note(event: GateOpened) -> None:
        seen.append(event.upstream)

    note(OPENED)
    core_of(app).events.emit(OPENED)
    assert seen == ["openai", "openai"]


async def _async(event: Any) -> None: ...


@pytest.mark.parametrize(
    ("kind", "subscriber", "fix"),
    [
        ("RunFinished", print, "use one of TaskEnqueued, RunStarted"),
        (Event, print, "use one of TaskEnqueued"),
        (GateOpened, "print", "pass a function"),
        (GateOpened, _async, "nothing would await"),
        (GateOpened, lambda: None, "takes one argument"),
        (GateOpened, lambda one, two: None, "takes one argument"),
    ],
)
def test_on_event_refuses_what_could_never_be_called(
    tmp_path: Path, kind: Any, subscriber: Any, fix: str
) -> None:
    with pytest.raises(OptionError) as refused:
        make_app(tmp_path).on_event(kind)(subscriber)
    assert fix in str(refused.value)
