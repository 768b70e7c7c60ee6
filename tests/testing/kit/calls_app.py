"""An application whose tasks call providers by SDKs, with transports made before any test."""

from __future__ import annotations

import anthropic
import httpx
import httpx2
import openai

from tidegate import CallTimes, Tidegate

app = Tidegate("sqlite:////dev/null/never-opened.db")
gpt = app.upstream("openai", times=CallTimes(seconds=60, idle_seconds=30))
claude = app.upstream("anthropic")
plain = app.upstream("plain", requests_per_minute=60)

OPENAI = openai.AsyncOpenAI(api_key="sk-test", http_client=httpx2.AsyncClient(transport=gpt.transport()))
OPENAI_SYNC = openai.OpenAI(
    api_key="sk-test", http_client=httpx2.Client(transport=gpt.transport(httpx2.HTTPTransport()))
)
ANTHROPIC = anthropic.AsyncAnthropic(
    api_key="sk-test", http_client=httpx2.AsyncClient(transport=claude.transport())
)
PLAIN = httpx.AsyncClient(
    transport=plain.transport(httpx.AsyncHTTPTransport()), base_url="https://plain.test"
)


@app.task(upstream=gpt, max_attempts=2)
async def summarise(text: str) -> str | None:
    answer = await OPENAI.chat.completions.create(
        model="gpt-5-mini", messages=[{"role": "user", "content": text}]
    )
    return answer.choices[0].message.content


@app.task(upstream=gpt, max_attempts=2)
def summarise_sync(text: str) -> str | None:
    answer = OPENAI_SYNC.chat.completions.create(
        model="gpt-5-mini", messages=[{"role": "user", "content": text}]
    )
    return answer.choices[0].message.content


@app.task(upstream=gpt, max_attempts=2)
async def stream(text: str) -> list[str]:
    chunks = await OPENAI.chat.completions.create(
        model="gpt-5-mini", messages=[{"role": "user", "content": text}], stream=True
    )
    return [chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices]


@app.task(upstream=gpt)
async def respond(text: str) -> str:
    return (await OPENAI.responses.create(model="gpt-5-mini", input=text)).output_text


@app.task(upstream=claude)
async def ask(text: str) -> str:
    answer = await ANTHROPIC.messages.create(
        model="claude-x", max_tokens=100, messages=[{"role": "user", "content": text}]
    )
    return "".join(block.text for block in answer.content if block.type == "text")


@app.task(upstream=claude)
async def ask_stream(text: str) -> str:
    async with ANTHROPIC.messages.stream(
        model="claude-x", max_tokens=100, messages=[{"role": "user", "content": text}]
    ) as answer:
        return await answer.get_final_text()


@app.task(upstream=plain)
async def fetch(path: str) -> object:
    response = await PLAIN.get(path)
    response.raise_for_status()
    return response.json()
