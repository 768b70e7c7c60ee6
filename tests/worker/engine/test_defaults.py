"""The defaults fit real providers and do not contradict each other."""

from __future__ import annotations

import logging

import pytest

from tidegate import NO_LIMIT, Tidegate
from tidegate.calls.settings import CallTimes
from tidegate.cli.doctor import CheckLevel, check_stop
from tidegate.internals import core_of
from tidegate.worker.application import short_timeouts
from tidegate.worker.settings import Timings, drain_grace


@pytest.fixture
def app(tmp_path):
    app = Tidegate(f"sqlite:///{tmp_path}/queue.db")
    openai = app.upstream("openai")
    openai.transport()

    @app.task(name="asks", upstream=openai)
    async def asks(text: str) -> str:
        return text

    @app.task(name="counts")
    async def counts(number: int) -> int:
        return number

    @app.task(name="waits", upstream=openai, timeout=NO_LIMIT)
    async def waits(number: int) -> int:
        return number

    return app


def test_a_call_may_take_as_long_as_the_providers_sdks_allow():
    assert CallTimes() == CallTimes(seconds=600, connect_seconds=5, idle_seconds=120)


def test_the_timeout_of_a_function_with_an_upstream_is_longer_than_its_calls(app):
    timeouts = {name: function.spec.timeout for name, function in core_of(app).functions.items()}
    assert timeouts == {"asks": 900.0, "counts": 300.0, "waits": NO_LIMIT}
    assert short_timeouts(core_of(app)) == []


@pytest.mark.parametrize(
    ("given", "timeouts", "seconds"),
    [(None, [900.0, 300.0], 25.0), (None, [3.0], 3.0), (None, [], 0.0), ("10m", [900.0], 600.0)],
)
def test_the_default_drain_grace_is_shorter_than_the_platforms_kill_time(given, timeouts, seconds):
    assert drain_grace(Timings(drain_grace=given), timeouts) == seconds


@pytest.mark.anyio
async def test_no_default_raises_a_warning(app, caplog):
    with caplog.at_level(logging.WARNING):
        async with app.worker():
            pass
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_doctor_reports_which_limit_to_raise_for_long_calls(app):
    found = check_stop(Timings(), core_of(app).functions.values())
    assert found.level is CheckLevel.OK
    assert "25 s" in found.detail
    assert "terminationGracePeriodSeconds" in found.fix
    assert "TimeoutStopSec" in found.fix
    assert check_stop(Timings(drain_grace="2h"), list(core_of(app).functions.values())[:2]).fix == ""
