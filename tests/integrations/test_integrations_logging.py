"""Logging that an application sets up itself: the recipes of the page on traces and logs."""

from __future__ import annotations

import asyncio
import io
import json
import logging.config
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from support import make_app
from tidegate import Tidegate
from tidegate.integrations.logging import add_task_fields

pytestmark = pytest.mark.anyio
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def app(tmp_path: Path) -> Tidegate:
    return make_app(tmp_path)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What a handler writes whose formatter and filter are named in a `logging.config`."""
    out = io.StringIO()
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "filters": {"task": {"()": "tidegate.integrations.logging.TaskFieldsFilter"}},
            "formatters": {"json": {"()": "tidegate.integrations.logging.JsonFormatter"}},
            "handlers": {
                "out": {
                    "class": "logging.StreamHandler",
                    "stream": out,
                    "formatter": "json",
                    "filters": ["task"],
                }
            },
            "loggers": {"shop": {"level": "INFO", "handlers": ["out"], "propagate": False}},
        }
    )
    yield out
    logging.getLogger("shop").handlers.clear()


async def test_a_configured_handler_writes_the_task_and_its_trace(app: Tidegate, lines: io.StringIO) -> None:
    log = logging.getLogger("shop")

    @app.task(name="shop:pay", queue="orders")
    async def pay() -> None:
        log.info("in the function")
        await asyncio.gather(asyncio.to_thread(log.info, "in a thread"), later())

    async def later() -> None:
        log.info("in another asyncio task", extra={"queue": "mine"})

    async with app.worker():
        handle = await pay.using(traceparent=TRACEPARENT).enqueue()
        await handle.result(timeout=20)
    log.info("outside")
    *inside, outside = [json.loads(line) for line in lines.getvalue().splitlines()]
    expected = {
        "task_id": handle.id,
        "run": 1,
        "queue": "orders",
        "function": "shop:pay",
        "trace_id": TRACE,
        "span_id": SPAN,
    }
    by_message = {line["message"]: line for line in inside}
    assert expected.items() <= by_message["in the function"].items()
    assert expected.items() <= by_message["in a thread"].items()
    assert (expected | {"queue": "mine"}).items() <= by_message["in another asyncio task"].items()
    assert not expected.keys() & outside.keys()


async def test_the_processor_for_structlog_adds_the_same_fields(app: Tidegate) -> None:
    events: list[Any] = []

    def keep(logger: Any, method: str, event: Any) -> Any:
        events.append(dict(event))
        raise structlog.DropEvent

    log = structlog.wrap_logger(structlog.PrintLogger(), processors=[add_task_fields, keep])

    @app.task(name="shop:pay")
    async def pay() -> None:
        log.info("paid", run="my own")

    async with app.worker():
        handle = await pay.using(traceparent=TRACEPARENT).enqueue()
        await handle.result(timeout=20)
    log.info("outside")
    assert events == [
        {
            "event": "paid",
            "run": "my own",
            "task_id": handle.id,
            "queue": "default",
            "function": "shop:pay",
            "trace_id": TRACE,
            "span_id": SPAN,
        },
        {"event": "outside"},
    ]
