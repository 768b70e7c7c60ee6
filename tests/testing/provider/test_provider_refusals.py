"""What the simulated provider refuses, and how it says so."""

import asyncio
import math
import random

import pytest
from provider_support import chat, control, error_of

from tidegate.testing.provider import POLICY_MARKER

pytestmark = pytest.mark.anyio


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
