"""The spans that OpenTelemetry gets: of enqueues, runs, steps and calls."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from canaries import CANARIES
from support import all_final, app_on, make_app
from tidegate import CallTimes, Context, Permanent, Tidegate, Transient
from tidegate.domain.spec import Fixed
from tidegate.internals import core_of
from tidegate.testing.provider import SimulatedProvider

pytestmark = pytest.mark.anyio
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def app(tmp_path: Path) -> Tidegate:
    return make_app(tmp_path)


def parented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tidegate:
    """Return an application whose runs join the trace of their enqueue."""
    monkeypatch.setenv("TIDEGATE_RUN_SPANS", "parent")
    return make_app(tmp_path)


def only(spans: list[Any]) -> Any:
    assert len(spans) == 1, [span.name for span in spans]
    return spans[0]


def hexes(context: Any) -> tuple[str, str]:
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


async def test_an_enqueue_is_a_producer_span_and_its_run_a_consumer_span_linked_to_it(
    telemetry: Any, app: Tidegate
) -> None:
    @app.task(name="greet", queue="mail")
    async def greet(name: str) -> str:
        return name

    async with app.worker() as worker:
        with trace.get_tracer("site").start_as_current_span("GET /") as request:
            handle = await greet.using(tenant="acme").enqueue("Ada")
        await handle.result(timeout=20)
        worker_id = worker.id
    send, process = only(telemetry.spans("send")), only(telemetry.spans("process"))
    assert (send.name, send.kind, process.name, process.kind) == (
        "send mail", SpanKind.PRODUCER, "process mail", SpanKind.CONSUMER
    )  # fmt: skip
    assert send.parent.span_id == request.get_span_context().span_id
    assert process.parent is None
    assert process.context.trace_id != send.context.trace_id
    assert hexes(only(process.links).context) == hexes(send.context)
    assert send.attributes == {
        "messaging.system": "tidegate",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": handle.id,
        "tidegate.task.name": "greet",
    }
    wait = process.attributes["tidegate.queue.wait"]
    assert 0 <= wait < 20
    assert process.attributes == {
        "messaging.system": "tidegate",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": handle.id,
        "messaging.client.id": worker_id,
        "tidegate.task.name": "greet",
        "tidegate.tenant": "acme",
        "tidegate.run": 1,
        "tidegate.attempt": 1,
        "tidegate.max_attempts": 3,
        "tidegate.queue.wait": wait,
        "tidegate.outcome": "succeeded",
    }
    assert process.status.status_code is StatusCode.UNSET


async def test_with_run_spans_parent_a_run_and_its_children_are_one_trace(
    telemetry: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = parented(tmp_path, monkeypatch)

    @app.task(name="child", queue="children")
    async def child() -> None: ...

    @app.task(name="parent")
    async def parent() -> str:
        with trace.get_tracer("mine").start_as_current_span("inside"):
            return (await child.enqueue()).id

    async with app.worker():
        handle = await parent.using(traceparent=TRACEPARENT, tracestate="vendor=1").enqueue()
        await all_final(app, [await handle.result(timeout=20)])
    by_name = {span.name: span for span in telemetry.spans()}
    assert {hexes(span.context)[0] for span in by_name.values()} == {TRACE}
    chain = ["send default", "process default", "inside", "send children", "process children"]
    assert f"{by_name[chain[0]].parent.span_id:016x}" == SPAN
    for above, below in itertools.pairwise(chain):
        assert by_name[below].parent.span_id == by_name[above].context.span_id
    assert by_name["process children"].context.trace_state.to_header() == "vendor=1"


async def test_each_run_of_a_retried_task_has_its_span_and_a_failure_its_exception(
    telemetry: Any, app: Tidegate
) -> None:
    text, secret = next(iter(CANARIES.values()))

    @app.task(name="flaky", max_attempts=2, backoff=Fixed(0.05))
    async def flaky() -> None:
        raise Transient(f"refused: {text}")

    async with app.worker():
        handle = await flaky.enqueue()
        await all_final(app, [handle.id])
    send = only(telemetry.spans("send"))
    first, last = telemetry.spans("process")
    assert [span.attributes["tidegate.outcome"] for span in (first, last)] == ["retrying", "dead"]
    assert [span.attributes["tidegate.run"] for span in (first, last)] == [1, 2]
    assert first.attributes["tidegate.charge"] == "attempt"
    assert first.attributes["tidegate.retry.delay"] > 0
    for span in (first, last):
        assert hexes(only(span.links).context) == hexes(send.context)
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes["error.type"] == "tidegate.verdicts.Transient"
        event = only(span.events)
        assert event.name == "exception"
        assert "test_otel_spans.py" in event.attributes["exception.stacktrace"]
        assert secret not in span.to_json()
        assert "refused" in event.attributes["exception.message"]


async def test_a_delayed_task_waits_between_its_spans_and_a_cancelled_run_is_no_error(
    telemetry: Any, app: Tidegate
) -> None:
    running = asyncio.Event()

    @app.task(name="endless")
    async def endless() -> None:
        running.set()
        await asyncio.sleep(3600)

    async with app.worker():
        handle = await endless.using(delay=0.3).enqueue()
        await running.wait()
        await handle.cancel()
        await all_final(app, [handle.id])
    send, process = only(telemetry.spans("send")), only(telemetry.spans("process"))
    assert process.start_time - send.end_time > 0.2e9
    assert process.attributes["tidegate.outcome"] == "cancelled"
    assert process.status.status_code is StatusCode.UNSET


async def test_a_task_that_ends_before_its_function_starts_still_has_a_span(
    telemetry: Any, app: Tidegate
) -> None:
    @app.task(name="takes_a_number")
    async def takes_a_number(n: int) -> None: ...

    from tidegate.testing.kit.stored_task import enqueue_stored

    handle = await asyncio.to_thread(enqueue_stored, app, "takes_a_number", {"a": ["no number"], "k": {}})
    async with app.worker():
        await all_final(app, [handle.id])
    process = only(telemetry.spans("process"))
    assert process.attributes["tidegate.outcome"] == "dead"
    assert process.attributes["error.type"].endswith("ArgumentsError")


async def test_many_tasks_of_one_enqueue_share_one_send_span(telemetry: Any, app: Tidegate) -> None:
    @app.task(name="double", queue="numbers")
    async def double(n: int) -> None: ...

    async with app.worker():
        handles = await double.enqueue_many([(n,) for n in range(3)])
        await all_final(app, [handle.id for handle in handles])
    send = only(telemetry.spans("send"))
    assert send.name == "send numbers"
    assert send.attributes["messaging.batch.message_count"] == 3
    assert {hexes(only(span.links).context) for span in telemetry.spans("process")} == {hexes(send.context)}


async def test_an_enqueue_that_fails_is_an_error_span(telemetry: Any) -> None:
    class Broken:
        async def open(self) -> None: ...

        async def enqueue(self, tasks: Any) -> Any:
            raise RuntimeError("the disk is full")

    app = app_on(Broken())

    @app.task(name="nothing")
    async def nothing() -> None: ...

    with pytest.raises(RuntimeError):
        await nothing.enqueue()
    send = only(telemetry.spans("send"))
    assert (send.status.status_code, send.attributes["error.type"]) == (StatusCode.ERROR, "RuntimeError")


async def test_a_call_of_a_provider_is_a_client_span_with_its_usage_and_without_the_prompt(
    telemetry: Any, app: Tidegate
) -> None:
    upstream = app.upstream("openai", times=CallTimes(seconds=5))
    asked = [{"role": "user", "content": "The secret of the tide"}]
    async with (
        SimulatedProvider() as provider,
        openai.AsyncOpenAI(
            base_url=provider.url, api_key="k", http_client=httpx2.AsyncClient(transport=upstream.transport())
        ) as client,
    ):

        @app.task(name="ask", upstream=upstream)
        async def ask(ctx: Context) -> Any:
            answer = await client.chat.completions.create(model="m-1", messages=asked, max_tokens=64)
            return answer.usage.model_dump()

        async with app.worker():
            handle = await ask.enqueue()
            stated = await handle.result(timeout=20)
    call, process = only(telemetry.spans("chat")), only(telemetry.spans("process"))
    assert (call.name, call.kind) == ("chat m-1", SpanKind.CLIENT)
    assert call.parent.span_id == process.context.span_id
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m-1",
        "gen_ai.request.max_tokens": 64,
        "gen_ai.usage.input_tokens": stated["prompt_tokens"],
        "gen_ai.usage.output_tokens": stated["completion_tokens"],
        "http.response.status_code": 200,
        "tidegate.upstream": "openai",
        "messaging.message.id": handle.id,
    }
    assert expected.items() <= dict(call.attributes).items()
    assert not any("secret of the tide" in span.to_json() for span in telemetry.spans())
    (tokens,) = telemetry.points("gen_ai.client.inference.usage.input_tokens")
    assert tokens.value == stated["prompt_tokens"]
    assert tokens.attributes["gen_ai.token.modality"] == "unknown"
    assert only(telemetry.points("gen_ai.client.inference.duration")).count == 1


async def test_a_refused_call_is_an_error_span_and_the_gate_parks(telemetry: Any, app: Tidegate) -> None:
    from tidegate.events import GateOpened, GateParked

    gates: list[Any] = []
    app.on_event(GateParked)(gates.append)
    app.on_event(GateOpened)(gates.append)
    answers = [
        httpx2.Response(429, headers={"retry-after": "1"}, json={"error": {"message": "slow down"}}),
        httpx2.Response(200, json={"usage": {"prompt_tokens": 3, "completion_tokens": 4}}),
    ]
    upstream = app.upstream("openai", times=CallTimes(seconds=5))
    client = httpx2.AsyncClient(
        transport=upstream.transport(httpx2.MockTransport(lambda request: answers.pop(0)))
    )

    @app.task(name="ask", upstream=upstream)
    async def ask() -> None:
        answer = await client.post("https://api.openai.com/v1/chat/completions", json={"model": "m"})
        answer.raise_for_status()

    async with app.worker():
        handle = await ask.enqueue()
        await all_final(app, [handle.id])
    refused, answered = telemetry.spans("chat m")
    assert refused.status.status_code is StatusCode.ERROR
    assert refused.attributes["http.response.status_code"] == 429
    assert answered.status.status_code is StatusCode.UNSET
    assert [type(gate) for gate in gates] == [GateParked, GateOpened]
    assert (gates[0].reason, gates[0].needs_person) == ("rate_limit", False)
    first, _ = telemetry.spans("process")
    assert (first.attributes["tidegate.outcome"], first.attributes["tidegate.charge"]) == ("retrying", "park")


async def test_a_step_is_a_span_of_its_run_and_the_spans_of_its_function_are_inside(
    telemetry: Any, app: Tidegate
) -> None:
    async def draw(item: str) -> str:
        with trace.get_tracer("mine").start_as_current_span("inside"):
            return item

    async def refuse() -> None:
        raise Permanent("no")

    @app.task(name="draws", queue="art")
    async def draws(ctx: Context) -> None:
        await asyncio.gather(*(ctx.step("draw", draw, item) for item in ("cat", "dog")))
        with trace.get_tracer("mine").start_as_current_span("after"):
            pass
        await ctx.step("refuse", refuse)

    async with app.worker():
        handle = await draws.enqueue()
        await all_final(app, [handle.id])
    process = only(telemetry.spans("process"))
    first, second = telemetry.spans("step draw")
    failed = only(telemetry.spans("step refuse"))
    assert {span.parent.span_id for span in (first, second, failed)} == {process.context.span_id}
    insides = telemetry.spans("inside")
    assert {span.parent.span_id for span in insides} == {first.context.span_id, second.context.span_id}
    assert only(telemetry.spans("after")).parent.span_id == process.context.span_id
    assert first.kind is SpanKind.INTERNAL
    assert first.attributes == {
        "messaging.message.id": handle.id,
        "tidegate.task.name": "draws",
        "tidegate.run": 1,
        "tidegate.step.name": "draw",
        "tidegate.step.key": first.attributes["tidegate.step.key"],
        "tidegate.step.outcome": "done",
    }
    assert failed.attributes["error.type"] == "Permanent"
    assert failed.status.status_code is StatusCode.ERROR


async def test_steps_of_an_earlier_run_have_no_spans_in_a_later_one(telemetry: Any, app: Tidegate) -> None:
    async def draw() -> str:
        return "cat"

    @app.task(name="again", backoff=Fixed(0.01))
    async def again(ctx: Context) -> None:
        await ctx.step("draw", draw)
        if ctx.run == 1:
            raise Transient("once")

    async with app.worker():
        await all_final(app, [(await again.enqueue()).id])
    assert len(telemetry.spans("process")) == 2
    assert only(telemetry.spans("step draw")).attributes["tidegate.run"] == 1


async def test_runs_and_enqueues_are_counted_and_timed(telemetry: Any, app: Tidegate) -> None:
    @app.task(name="double", queue="numbers")
    async def double(n: int) -> None:
        if n == 2:
            raise Permanent("no")

    async with app.worker():
        handles = await double.enqueue_many([(n,) for n in range(3)])
        await all_final(app, [handle.id for handle in handles])
    (sent,) = telemetry.points("messaging.client.sent.messages")
    assert (sent.value, sent.attributes["messaging.destination.name"]) == (3, "numbers")
    runs = telemetry.points("messaging.client.consumed.messages")
    assert {(run.attributes["tidegate.outcome"], run.value) for run in runs} == {
        ("succeeded", 2),
        ("dead", 1),
    }
    durations = telemetry.points("messaging.process.duration")
    assert sum(each.count for each in durations) == 3
    assert durations[0].explicit_bounds[-1] == 7_200
    assert not any("messaging.message.id" in each.attributes for each in durations)


@pytest.mark.parametrize("mode", ["off", "auto"])
async def test_off_records_nothing_and_auto_nothing_without_an_sdk(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("TIDEGATE_OPENTELEMETRY", mode)
    telemetry = request.getfixturevalue("telemetry") if mode == "off" else None
    app = make_app(tmp_path)

    @app.task(name="nothing")
    async def nothing() -> None: ...

    async with app.worker():
        handle = await nothing.enqueue()
        rows = await all_final(app, [handle.id])
    assert core_of(app)._sender.tracer is None
    assert telemetry is None or telemetry.spans() == []
    assert rows[handle.id].labels == {}


def test_a_client_without_opentelemetry_never_imports_it(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom tidegate import Tidegate\n"
        f"app = Tidegate('sqlite:///{tmp_path}/queue.db')\n"
        "@app.task(name='nothing')\nasync def nothing(): ...\n"
        "nothing.enqueue_sync()\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=tmp_path).returncode == 0
