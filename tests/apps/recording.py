"""Task functions that call a provider through SDKs, and know nothing of steps. Their calls are recorded."""

from __future__ import annotations

import os

import anthropic
import httpx2
import openai

from tidegate import Fixed, Pool, Tidegate

app = Tidegate(pools=[Pool(concurrency=4, poll_interval=0.05)])
chat = app.upstream("openai", record=True)
messages = app.upstream("anthropic", record=True)
RETRIES = {"backoff": Fixed(0.05), "max_attempts": 3}


@app.task(upstream=chat, **RETRIES)
async def asked(count: int, is_stream: bool) -> list[str]:
    """Ask OpenAI's interface one question after the other."""
    http = httpx2.AsyncClient(transport=chat.transport())
    answers = []
    async with openai.AsyncOpenAI(base_url=os.environ["PROVIDER"], api_key="k", http_client=http) as client:
        for number in range(count):
            asking = [{"role": "user", "content": f"The tide came in at {number}."}]
            if not is_stream:
                answer = await client.chat.completions.create(model="m", messages=asking)
                answers.append(answer.choices[0].message.content or "")
                continue
            pieces = await client.chat.completions.create(model="m", messages=asking, stream=True)
            answers.append("".join([piece.choices[0].delta.content or "" async for piece in pieces]))
    return answers


@app.task(upstream=messages, runs_in="thread", **RETRIES)
def asked_plainly(count: int, is_stream: bool) -> list[str]:
    """Ask Anthropic's interface one question after the other, in a plain function."""
    http = httpx2.Client(transport=messages.transport(httpx2.HTTPTransport()))
    url = os.environ["PROVIDER"].removesuffix("/v1")
    answers = []
    with anthropic.Anthropic(base_url=url, api_key="k", http_client=http) as client:
        for number in range(count):
            asking = [{"role": "user", "content": f"The tide came in at {number}."}]
            if is_stream:
                with client.messages.stream(model="m", messages=asking, max_tokens=50) as stream:
                    answers.append("".join(stream.text_stream))
            else:
                answer = client.messages.create(model="m", messages=asking, max_tokens=50)
                answers.append("".join(block.text for block in answer.content if block.type == "text"))
    return answers
