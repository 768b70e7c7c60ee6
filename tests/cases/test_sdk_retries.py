"""An SDK's own retries multiply with ours; through the transport they do not."""

from __future__ import annotations

import anthropic
import httpx2
import openai
import pytest

from support import all_final
from tidegate import Fixed, Tidegate

pytestmark = pytest.mark.anyio


class AlwaysDown:
    """A provider that answers every request with 500, or drops the connection, and counts them."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.requests = 0

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests += 1
        if not self.answers:
            raise httpx2.ReadError("connection lost", request=request)
        return httpx2.Response(500, json={"error": {"type": "server_error"}})


@pytest.fixture(autouse=True)
def _impatient_sdks(monkeypatch: pytest.MonkeyPatch) -> None:
    for sdk in (openai.AsyncOpenAI, anthropic.AsyncAnthropic):
        monkeypatch.setattr(sdk, "_calculate_retry_timeout", lambda *_, **__: 0.0)


@pytest.mark.parametrize("answers", [True, False], ids=["500", "connection lost"])
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("client_with_transport", "requests"), [(True, 3), (False, 9)], ids=["transport", "bare SDK"]
)
async def test_three_attempts_are_three_requests_with_the_transport_and_nine_without(
    app: Tidegate, kind: str, answers: bool, client_with_transport: bool, requests: int
) -> None:
    provider = AlwaysDown(answers=answers)
    wire = httpx2.MockTransport(provider)
    http = httpx2.AsyncClient(transport=app.upstream("u").transport(wire) if client_with_transport else wire)

    @app.task(name="t", max_attempts=3, backoff=Fixed(0.01))
    async def ask() -> None:
        asked = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
        if kind == "openai":
            await openai.AsyncOpenAI(api_key="k", http_client=http).chat.completions.create(**asked)
        else:
            client = anthropic.AsyncAnthropic(api_key="k", http_client=http)
            await client.messages.create(max_tokens=5, **asked)

    async with app.worker():
        handle = await ask.enqueue()
        rows = await all_final(app, [handle.id])
    assert rows[handle.id].counters.attempts == 3
    assert rows[handle.id].reason == ("server_error" if answers else "network")
    assert provider.requests == requests
