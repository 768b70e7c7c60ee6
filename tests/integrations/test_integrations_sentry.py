"""Sentry: transactions of runs and events of failures, through its real SDK and a transport in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

from support import all_final, make_app
from tidegate import OptionError, Permanent, Tidegate, Transient
from tidegate.domain.spec import Fixed
from tidegate.integrations.sentry import use_sentry

pytestmark = pytest.mark.anyio
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


class InMemory(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            if item.type in ("event", "transaction"):
                assert item.payload.json is not None
                self.sent.append(item.payload.json)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.sent if each.get("type", "event") == kind]


@pytest.fixture
def sentry() -> Iterator[InMemory]:
    transport = InMemory()
    sentry_sdk.init(
        dsn="http://key@localhost/1",
        transport=transport,
        traces_sample_rate=1.0,
        default_integrations=False,
        integrations=[LoggingIntegration()],
    )
    yield transport
    sentry_sdk.get_global_scope().set_client(None)
    sentry_sdk.get_global_scope().clear()


@pytest.fixture
def app(tmp_path: Path) -> Tidegate:
    return make_app(tmp_path)


def declare(app: Tidegate) -> Any:
    @app.task(name="shop:fails", queue="orders", max_attempts=2, backoff=Fixed(0.05))
    async def fails(text: str) -> None:
        sentry_sdk.set_tag("mine", text)
        raise Transient("no answer: api_key=sk-ant-REDACTED")

    return fails


async def test_each_run_is_a_transaction_and_the_first_continues_the_trace(
    sentry: InMemory, app: Tidegate
) -> None:
    fails = declare(use_sentry(app))
    async with app.worker():
        handle = await fails.using(traceparent=TRACEPARENT, tenant="acme").enqueue("one")
        await all_final(app, [handle.id])
    first, second = sentry.of("transaction")
    for each, run in ((first, "1"), (second, "2")):
        assert each["transaction"] == "shop:fails"
        assert each["contexts"]["trace"]["op"] == "queue.process"
        assert each["contexts"]["trace"]["status"] == "internal_error"
        assert each["tags"] == {
            "tidegate.task_id": handle.id,
            "tidegate.function": "shop:fails",
            "tidegate.queue": "orders",
            "tidegate.run": run,
            "tidegate.tenant": "acme",
            "tidegate.trace_id": TRACE,
            "mine": "one",
        }
    assert first["contexts"]["trace"]["trace_id"] == TRACE
    assert second["contexts"]["trace"]["trace_id"] != TRACE


async def test_a_dead_task_is_one_event_although_its_log_line_is_an_error(
    sentry: InMemory, app: Tidegate
) -> None:
    fails = declare(use_sentry(app))
    async with app.worker():
        handle = await fails.enqueue("one")
        await all_final(app, [handle.id])
        logging.getLogger("tidegate.worker").error("another problem")
    dead, other = sentry.of("event")
    assert other["logentry"]["message"] == "another problem"
    (raised,) = dead["exception"]["values"]
    assert (raised["type"], raised["module"]) == ("Transient", "tidegate.verdicts")
    assert raised["stacktrace"]["frames"][-1]["function"] == "fails"
    assert raised["stacktrace"]["frames"][-1]["filename"].endswith("test_integrations_sentry.py")
    assert dead["level"] == "error"
    assert dead["contexts"]["tidegate"]["why"] == "all 2 attempts spent"
    assert dead["tags"]["tidegate.reason"] == "unknown"
    assert dead["tags"]["tidegate.run"] == "2"
    assert dead["tags"]["mine"] == "one"
    assert "sk-ant-REDACTED" not in str(sentry.sent)


async def test_with_attempts_each_charged_failure_is_an_event_and_parks_are_none(
    sentry: InMemory, app: Tidegate
) -> None:
    fails = declare(use_sentry(app, events="attempts", transactions=False))
    async with app.worker():
        handle = await fails.enqueue("one")
        await all_final(app, [handle.id])
    assert [event["level"] for event in sentry.of("event")] == ["warning", "error"]
    assert sentry.of("transaction") == []


async def test_with_none_nothing_but_transactions_is_sent(sentry: InMemory, app: Tidegate) -> None:
    fails = declare(use_sentry(app, events="none"))
    async with app.worker():
        handle = await fails.enqueue("one")
        await all_final(app, [handle.id])
    assert sentry.of("event") == []
    assert len(sentry.of("transaction")) == 2


async def test_tags_and_breadcrumbs_of_one_task_are_not_on_another(sentry: InMemory, app: Tidegate) -> None:
    use_sentry(app)

    @app.task(name="noisy", max_attempts=1)
    async def noisy(text: str) -> None:
        sentry_sdk.set_tag(f"tag-{text}", text)
        sentry_sdk.add_breadcrumb(message=f"crumb {text}")
        raise Permanent(text)

    async with app.worker():
        handles = await noisy.enqueue_many([("one",), ("two",), ("three",)])
        await all_final(app, [handle.id for handle in handles])
    assert len(sentry.of("event")) == 3
    for event in sentry.of("event"):
        text = event["exception"]["values"][0]["value"]
        assert [name for name in event["tags"] if name.startswith("tag-")] == [f"tag-{text}"]
        crumbs = [crumb["message"] for crumb in event["breadcrumbs"]["values"]]
        assert [crumb for crumb in crumbs if crumb.startswith("crumb")] == [f"crumb {text}"]


def test_another_word_for_the_events_is_refused(sentry: InMemory, app: Tidegate) -> None:
    with pytest.raises(OptionError) as refused:
        use_sentry(app, events="all")  # type: ignore[arg-type]
    assert "dead, attempts, none" in str(refused.value)
