"""The ledger of the simulated provider, and idempotency keys."""

import asyncio

import pytest
from provider_support import chat, control, error_of

from tidegate.testing.provider import Ledger

pytestmark = pytest.mark.anyio


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
