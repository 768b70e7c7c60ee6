"""The simulated provider over HTTP: answers, refusals, the ledger, and its own control routes."""

import asyncio
import base64
import math
import random
import struct
import subprocess
import sys
from contextlib import AsyncExitStack

import httpx2
import pytest

from tidegate.errors import OptionError
from tidegate.testing.provider import POLICY_MARKER, Ledger, Outage, ProviderSettings, SimulatedProvider

pytestmark = pytest.mark.anyio

TEXT = "The tide came in at dawn. It left at noon! Nobody saw it go."


@pytest.fixture
async def serve():
    """Start a provider with these settings, and stop it after the test."""
    async with AsyncExitStack() as stack:

        async def start(monotonic=None, **settings):
            clocks = {"monotonic": monotonic} if monotonic else {}
            return await stack.enter_async_context(SimulatedProvider(ProviderSettings(**settings), **clocks))

        yield start


@pytest.fixture
async def http():
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(timeout=10, trust_env=False, limits=limits) as client:
        yield client


def messages(text=TEXT):
    return [{"role": "system", "content": "Summarise."}, {"role": "user", "content": text}]


async def chat(http, provider, text=TEXT, headers=None, **options):
    body = {"model": "m", "messages": messages(text), **options}
    return await http.post(f"{provider.url}/chat/completions", json=body, headers=headers)


async def control(http, provider, route, body=None):
    url = provider.url.replace("/v1", "/_sim/") + route
    return await (http.get(url) if body is None else http.post(url, json=body))


def error_of(response):
    error = response.json()["error"]
    return response.status_code, error["type"], error["code"]


# Answers


async def test_a_chat_is_answered_with_a_summary_and_its_usage(serve, http):
    provider = await serve()

    answer = (await chat(http, provider)).json()

    assert answer["object"] == "chat.completion"
    choice = answer["choices"][0]
    assert choice["message"]["content"] == "The tide came in at dawn. It left at noon!"
    assert choice["finish_reason"] == "stop"
    tokens_in, tokens_out = math.ceil(len("Summarise.") / 4) + math.ceil(len(TEXT) / 4), math.ceil(42 / 4)
    assert answer["usage"] == {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }


async def test_an_instruction_before_the_text_is_not_summarised(serve, http):
    provider = await serve()

    answer = (await chat(http, provider, "Sum up this page:\n\n潮水来了。它又走了。没人看见。")).json()

    assert answer["choices"][0]["message"]["content"] == "潮水来了。 它又走了。"


async def test_an_answer_is_cut_to_max_tokens(serve, http):
    provider = await serve()

    answer = (await chat(http, provider, max_tokens=4)).json()

    assert answer["choices"][0]["message"]["content"] == "The tide came…"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 4


async def test_parts_of_a_message_are_read_as_its_text(serve, http):
    provider = await serve()

    image = {"type": "image_url", "image_url": {"url": "x"}}
    parts = [{"type": "text", "text": "High water. Low water."}, image]

    assert "High water. Low water." in (await chat(http, provider, parts)).text


async def test_a_streamed_answer_equals_a_whole_answer(serve, http):
    provider = await serve()
    whole = (await chat(http, provider)).json()

    streamed = await chat(http, provider, stream=True, stream_options={"include_usage": True})

    assert streamed.headers["content-type"] == "text/event-stream"
    events = [line.removeprefix("data: ") for line in streamed.text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    chunks = [httpx2.Response(200, content=event).json() for event in events]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    printed = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1])
    assert printed == whole["choices"][0]["message"]["content"]


async def test_a_stream_comes_piece_by_piece_and_is_billed_when_it_begins(serve, http):
    provider = await serve(tokens_per_second=0.01)
    body = {"model": "m", "messages": messages(), "stream": True}

    async with http.stream("POST", f"{provider.url}/chat/completions", json=body) as response:
        first = await anext(response.aiter_bytes())

    assert b'"role":"assistant"' in first
    assert b"[DONE]" not in first
    assert provider.ledger.summary().billed == 1


async def test_embeddings_have_length_one_and_can_be_packed(serve, http):
    provider = await serve()
    body = {"model": "e", "input": ["ebb and flow", "flow and ebb", "sand"], "dimensions": 8}

    plain = (await http.post(f"{provider.url}/embeddings", json=body)).json()
    body["encoding_format"] = "base64"
    packed = (await http.post(f"{provider.url}/embeddings", json=body)).json()

    vectors = [item["embedding"] for item in plain["data"]]
    assert [math.hypot(*vector) for vector in vectors] == pytest.approx([1, 1, 1])
    assert vectors[0] == vectors[1] != vectors[2]
    unpacked = struct.unpack("<8f", base64.b64decode(packed["data"][2]["embedding"]))
    assert unpacked == pytest.approx(vectors[2])
    assert plain["usage"] == {"prompt_tokens": 3 + 3 + 1, "total_tokens": 7}


@pytest.mark.parametrize(("given", "count"), [([1, 2, 3], 1), ([[1, 2], [3]], 2), ("text", 1)])
async def test_embedding_inputs_may_be_tokens(serve, http, given, count):
    provider = await serve()

    answer = await http.post(f"{provider.url}/embeddings", json={"model": "e", "input": given})

    assert len(answer.json()["data"]) == count


async def test_models_and_health_are_served_and_are_no_calls(serve, http):
    provider = await serve(models=("small", "large"))

    listed = (await http.get(f"{provider.url}/models")).json()
    health = await http.get(provider.url.replace("/v1", "/healthz"))

    assert [model["id"] for model in listed["data"]] == ["small", "large"]
    assert health.status_code == 200
    assert provider.ledger.count() == 0


# Refusals


async def test_over_the_request_limit_a_429_names_the_exact_wait(serve, http):
    clock = [0.0]
    provider = await serve(monotonic=lambda: clock[0], requests_per_minute=6, requests_burst=1)
    assert (await chat(http, provider)).status_code == 200

    clock[0] = 7.5
    refused = await chat(http, provider)

    assert error_of(refused) == (429, "requests", "rate_limit_exceeded")
    assert refused.json()["error"]["param"] is None
    assert refused.headers["retry-after"] == "3"
    assert refused.headers["retry-after-ms"] == "2500"
    assert refused.headers["x-ratelimit-limit-requests"] == "6"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused.headers["x-ratelimit-reset-requests"] == "2.5s"
    assert "Please try again in 2.5s." in refused.json()["error"]["message"]
    clock[0] = 10.0
    assert (await chat(http, provider)).status_code == 200
    assert provider.ledger.summary().throttled == 1


async def test_tokens_are_counted_as_prompt_plus_the_longest_answer(serve, http):
    provider = await serve(monotonic=lambda: 0.0, tokens_per_minute=100, context_window=10)

    first = await chat(http, provider, "x" * 40, max_tokens=50)
    second = await chat(http, provider, "y" * 40, max_tokens=50)

    # 3 for the system message, 10 for the text, 50 for the answer; refused for its length, but counted.
    assert first.headers["x-ratelimit-remaining-tokens"] == str(100 - 63)
    assert error_of(second) == (429, "tokens", "rate_limit_exceeded")
    assert second.headers["retry-after-ms"] == str(math.ceil(26 * 600))


async def test_a_request_larger_than_the_bucket_is_refused_without_a_wait(serve, http):
    provider = await serve(tokens_per_minute=100)

    refused = await chat(http, provider, max_tokens=200)

    assert error_of(refused) == (429, "tokens", "rate_limit_exceeded")
    assert "Request too large for m" in refused.json()["error"]["message"]
    assert "Limit 100, Requested 218" in refused.json()["error"]["message"]
    assert "retry-after" not in refused.headers
    assert provider.ledger.count(outcome="too_large") == 1
    assert provider.ledger.summary().throttled == 0


async def test_every_answer_has_a_request_id_and_the_state_of_the_limits(serve, http):
    provider = await serve(requests_per_minute=10, tokens_per_minute=10_000)
    responses = [
        await chat(http, provider),
        await chat(http, provider, POLICY_MARKER),
        await chat(http, provider, stream=True),
        await http.post(f"{provider.url}/embeddings", json={"model": "e", "input": "x"}),
        await http.get(f"{provider.url}/models"),
    ]
    await provider.begin_outage("503")
    responses.append(await chat(http, provider))

    assert [response.status_code for response in responses] == [200, 400, 200, 200, 200, 503]
    for response in responses:
        assert {
            f"x-ratelimit-{what}-{dimension}"
            for what in ("limit", "remaining", "reset")
            for dimension in ("requests", "tokens")
        } <= set(response.headers)
    ids = [response.headers["x-request-id"] for response in responses]
    assert len(set(ids)) == len(ids)
    assert {call.id for call in provider.ledger.calls()} == set(ids) - {ids[4]}


async def test_the_content_policy_refuses_marked_and_blocked_prompts(serve, http):
    marked, phrased = await serve(), await serve(blocked_phrases=("Red Tide",))

    assert error_of(await chat(http, marked, f"a {POLICY_MARKER} b")) == (
        400,
        "invalid_request_error",
        "content_policy_violation",
    )
    assert error_of(await chat(http, phrased, "the red tide"))[2] == "content_policy_violation"
    assert (await chat(http, phrased, f"a {POLICY_MARKER} b")).status_code == 200


async def test_a_prompt_beyond_the_context_window_is_refused(serve, http):
    provider = await serve(context_window=20)

    refused = await chat(http, provider, "x" * 100)
    inputs = await http.post(f"{provider.url}/embeddings", json={"model": "e", "input": ["x" * 80] * 3})

    assert error_of(refused) == (400, "invalid_request_error", "context_length_exceeded")
    assert "maximum context length is 20 tokens" in refused.json()["error"]["message"]
    assert inputs.status_code == 200, "each input has the window to itself"


async def test_a_wrong_key_is_refused_without_being_repeated(serve, http):
    provider = await serve(api_keys=("right",))

    for headers in ({"authorization": "Bearer wrong-and-secret"}, {}, {"authorization": "Basic right"}):
        refused = await chat(http, provider, headers=headers)
        assert error_of(refused) == (401, "invalid_request_error", "invalid_api_key")
        assert "secret" not in refused.text
    assert (await chat(http, provider, headers={"authorization": "Bearer right"})).status_code == 200
    assert (await http.get(f"{provider.url}/models")).status_code == 401


async def test_an_unknown_model_is_not_found(serve, http):
    provider = await serve(models=("other",))

    assert error_of(await chat(http, provider)) == (404, "invalid_request_error", "model_not_found")


async def test_a_spent_budget_is_a_429_that_names_no_wait(serve, http):
    provider = await serve(budget_calls=2)

    statuses = [(await chat(http, provider, str(number))).status_code for number in range(2)]
    refused = await chat(http, provider, "one more")

    assert statuses == [200, 200]
    assert error_of(refused) == (429, "insufficient_quota", "insufficient_quota")
    assert "retry-after" not in refused.headers
    assert provider.ledger.summary().throttled == 0


async def test_calls_in_flight_cannot_overdraw_the_budget(serve, http):
    provider = await serve(budget_calls=3, latency_seconds=0.02)

    responses = await asyncio.gather(*(chat(http, provider, str(number)) for number in range(10)))

    assert sorted(response.status_code for response in responses) == [200] * 3 + [429] * 7


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'{"model": "m"}',
        b'{"model": 1, "messages": [{"role": "user", "content": "x"}]}',
        b'{"model": "m", "messages": []}',
        b'{"model": "m", "messages": [{"content": "x"}]}',
        b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": -1}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\xff"}]}',
        b"[" * 100_000,
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
    ],
)
async def test_an_invalid_body_gets_a_400_and_is_recorded(serve, http, body):
    provider = await serve()

    refused = await http.post(f"{provider.url}/chat/completions", content=body)

    assert error_of(refused) == (400, "invalid_request_error", None)
    (call,) = provider.ledger.calls()
    assert (call.status, call.billed, call.content_hash) == (400, False, "")
    assert (await chat(http, provider)).status_code == 200


async def test_embedding_inputs_of_mixed_kinds_are_a_400(serve, http):
    provider = await serve()

    refused = await http.post(f"{provider.url}/embeddings", json={"model": "e", "input": ["a", 1]})

    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "input"


async def test_unknown_paths_and_methods_are_refused_and_are_no_calls(serve, http):
    provider = await serve()

    assert (await http.get(f"{provider.url}/chat/completions")).status_code == 405
    assert (await http.post(f"{provider.url}/images")).status_code == 404
    assert (await control(http, provider, "nothing")).status_code == 404
    assert (await http.head(f"{provider.url}/models")).status_code == 405
    assert provider.ledger.count() == 0


async def test_an_overload_strikes_the_same_calls_in_every_order(serve, http):
    texts = [f"text {number}" for number in range(40)]

    async def fates(order):
        provider = await serve(overload_probability=0.5, overload_statuses=(503, 529), seed=7)
        responses = await asyncio.gather(*(chat(http, provider, text) for text in order))
        assert provider.ledger.summary().billed == sum(response.status_code == 200 for response in responses)
        return {text: response.status_code for text, response in zip(order, responses, strict=True)}

    first = await fates(texts)
    second = await fates(random.Random(1).sample(texts, len(texts)))

    assert first == second
    assert set(first.values()) == {200, 503, 529}


async def test_an_overload_does_not_refuse_one_content_for_ever(serve, http):
    provider = await serve(overload_probability=0.5)

    statuses = {(await chat(http, provider)).status_code for _ in range(40)}

    assert statuses == {200, 503}


async def test_a_fault_of_the_simulation_is_a_500_and_not_the_end(serve, http, caplog):
    provider = await serve()
    provider.ledger.close()

    refused = await chat(http, provider)

    assert error_of(refused) == (500, "server_error", None)
    assert "the simulated provider failed on a request" in caplog.text
    assert (await http.get(f"{provider.url}/models")).status_code == 200


# The ledger


async def test_content_paid_twice_is_found(serve, http):
    provider = await serve()
    for text in ("once", "twice", "twice", "thrice", "thrice", "thrice"):
        await chat(http, provider, text)
    await chat(http, provider, "twice", temperature=0.5, stream=True)

    paid = provider.ledger.paid_twice()
    summary = (await control(http, provider, "ledger/summary")).json()

    assert [times for _, times in paid] == [3, 3]
    assert summary == {
        "calls": 7,
        "billed": 7,
        "throttled": 0,
        "by_status": {"200": 7},
        "paid_twice": 4,
        "contents": 3,
        "in_flight": 0,
    }


async def test_content_is_the_same_however_its_json_is_written(serve, http):
    provider = await serve()
    for body in (
        b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}',
        b'{"messages":[{"content":"\\u0078","role":"user"}],"seed":1,"model":"m"}',
        b'{"model": "n", "messages": [{"role": "user", "content": "x"}]}',
    ):
        await http.post(f"{provider.url}/chat/completions", content=body)

    first, second, third = (call.content_hash for call in provider.ledger.calls())

    assert first == second != third


async def test_a_call_is_recorded_with_all_its_fields(serve, http):
    provider = await serve()
    response = await chat(http, provider, headers={"Idempotency-Key": "k-1"})

    (call,) = provider.ledger.calls()

    assert call.id == response.headers["x-request-id"]
    assert (call.method, call.path, call.model) == ("POST", "/v1/chat/completions", "m")
    assert (call.idempotency_key, call.status, call.billed) == ("k-1", 200, True)
    assert (call.tokens_in, call.tokens_out, call.outcome) == (18, 11, "answered")
    assert len(call.content_hash) == 64
    assert call.received_at > 1_700_000_000
    assert provider.ledger.count(status=200, billed=True, outcome="answered") == 1
    assert provider.ledger.count(status=429) == 0


async def test_a_real_provider_bills_a_repeated_idempotency_key_again(serve, http):
    provider = await serve()

    for _ in range(2):
        await chat(http, provider, headers={"Idempotency-Key": "k"})

    assert provider.ledger.summary().paid_twice == 1


async def test_an_honoured_idempotency_key_gets_the_first_answer_unbilled(serve, http):
    provider = await serve(honour_idempotency=True, latency_seconds=0.02, requests_per_minute=1)
    key = {"Idempotency-Key": "k"}

    together = await asyncio.gather(*(chat(http, provider, headers=key) for _ in range(5)))
    later = await chat(http, provider, headers=key, stream=True)
    other = await chat(http, provider, "other text", headers=key)

    assert [response.status_code for response in together] == [200] * 5
    assert later.status_code == 200
    assert later.headers["content-type"] == "text/event-stream"
    assert error_of(other) == (400, "idempotency_error", "idempotency_key_reused")
    assert provider.ledger.summary().billed == 1
    assert provider.ledger.count(outcome="replayed") == 5


async def test_a_refused_call_leaves_its_idempotency_key_free(serve, http):
    provider = await serve(honour_idempotency=True, overload_probability=1.0)
    key = {"Idempotency-Key": "k"}

    refused = await asyncio.gather(*(chat(http, provider, headers=key) for _ in range(3)))
    await provider.change(overload_probability=0.0)
    answered = await chat(http, provider, headers=key)

    assert [response.status_code for response in refused] == [503] * 3
    assert answered.status_code == 200
    assert provider.ledger.count(outcome="answered") == 1


async def test_a_ledger_file_is_continued_and_can_be_read_while_open(serve, http, tmp_path):
    path = tmp_path / "ledger.db"
    first = await serve(ledger_path=path)
    await chat(http, first)
    await first.stop()

    second = await serve(ledger_path=path, budget_calls=2)
    statuses = [(await chat(http, second)).status_code for _ in range(2)]
    reader = Ledger(path)

    assert statuses == [200, 429]
    assert reader.summary().calls == 3
    assert reader.paid_twice() == [(reader.calls()[0].content_hash, 2)]
    reader.close()


# Control


async def test_settings_can_change_while_running(serve, http):
    provider = await serve()

    response = await control(
        http,
        provider,
        "settings",
        {
            "requests_per_minute": 1,
            "window_seconds": 30,
            "outages": [{"start_seconds": 900, "end_seconds": 901, "kind": "hang"}],
        },
    )

    assert response.json() == {"changed": ["outages", "requests_per_minute", "window_seconds"]}
    assert provider.settings.outages == (Outage(900, 901, "hang"),)
    assert [(await chat(http, provider)).status_code for _ in range(2)] == [200, 429]
    await provider.change(requests_per_minute=None)
    assert (await chat(http, provider)).status_code == 200


async def test_a_changed_limit_does_not_refill_the_bucket(serve, http):
    provider = await serve(monotonic=lambda: 0.0, requests_per_minute=1)
    await chat(http, provider)

    await provider.change(requests_per_minute=100)

    assert (await chat(http, provider)).status_code == 429


async def test_reset_starts_over(serve, http):
    provider = await serve(monotonic=lambda: 0.0, requests_per_minute=1, budget_calls=1)
    await chat(http, provider)
    await control(http, provider, "settings", {"latency_seconds": 0.001})
    await control(http, provider, "outage", {"kind": "503"})

    assert (await control(http, provider, "reset", {})).json() == {"reset": True}

    assert provider.settings.latency_seconds == 0
    assert provider.ledger.count() == 0
    assert (await chat(http, provider)).status_code == 200


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("settings", {"no_such": 1}),
        ("settings", {"port": 1}),
        ("settings", {"latency_seconds": "slow"}),
        ("settings", {"latency_seconds": -1}),
        ("settings", {"outages": [{"start_seconds": 2, "end_seconds": 1}]}),
        ("settings", [1]),
        ("outage", {"kind": "flood"}),
        ("outage", {"kind": "503", "seconds": 0}),
        ("outage", {"kind": "refuse"}),
        ("outage", {}),
    ],
)
async def test_a_control_request_that_cannot_work_is_a_400_and_changes_nothing(serve, http, route, body):
    provider = await serve()

    refused = await control(http, provider, route, body)

    assert refused.status_code == 400
    assert refused.json()["error"]["message"]
    assert provider.settings == ProviderSettings()
    assert (await chat(http, provider)).status_code == 200


@pytest.mark.parametrize(
    "settings",
    [
        {"requests_per_minute": 0},
        {"window_seconds": 0},
        {"latency_jitter": 1.5},
        {"overload_probability": -0.1},
        {"overload_probability": math.nan},
        {"overload_statuses": (500,)},
        {"overload_statuses": ()},
        {"tokens_per_second": 0},
    ],
)
async def test_settings_that_cannot_work_are_refused_at_once(settings):
    with pytest.raises(OptionError):
        ProviderSettings(**settings)


def test_importing_tidegate_loads_nothing_of_the_provider():
    code = "import sys, tidegate, tidegate.testing; print(sorted({'uvicorn', 'starlette', 'httpx2'} & set(sys.modules)))"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=True)

    assert loaded.stdout.strip() == b"[]"


def test_a_missing_server_package_is_named_with_the_fix():
    code = "import sys; sys.modules['uvicorn'] = None; import tidegate.testing.provider"

    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=False)

    assert b"needs uvicorn \xe2\x86\x92 pip install 'tidegate[testing]'" in failed.stderr
