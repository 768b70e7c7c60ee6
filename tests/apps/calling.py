"""A plain function that calls a real sync SDK through the transport, in a child process."""

from __future__ import annotations

import os

import httpx2
import openai

from tidegate import Pool, Tidegate

app = Tidegate(pools=[Pool(concurrency=4, poll_interval=0.05)])
upstream = app.upstream("openai", requests_per_second=20)
client: openai.OpenAI


@app.on_child_start
def open_client() -> None:
    global client
    http = httpx2.Client(transport=upstream.transport())
    client = openai.OpenAI(base_url=os.environ["PROVIDER_URL"], api_key="k", http_client=http)


@app.task(upstream=upstream)
def chain(number: int, calls: int) -> str | None:
    answer = None
    for call in range(calls):
        asked = [{"role": "user", "content": f"The tide of {number}, {call}."}]
        answer = client.chat.completions.create(model="m", messages=asked).choices[0].message.content
    return answer
