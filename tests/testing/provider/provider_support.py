"""Calls of the simulated provider, by a client or by hand on a raw connection."""

import asyncio
import json
from contextlib import asynccontextmanager

TEXT = "The tide came in at dawn. It left at noon! Nobody saw it go."
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "High water."}]}).encode()


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


def raw_call(body=BODY, *headers):
    head = ["POST /v1/chat/completions HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def connected(provider):
    """Open a raw connection, closed afterwards whatever became of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
    try:
        async with asyncio.timeout(10):
            yield reader, writer
    finally:
        writer.transport.abort()


async def read_response(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(line.split(":")[1] for line in head.split("\r\n") if line.startswith("content-length"))
    return int(head.split()[1]), await reader.readexactly(int(length))


async def until(condition, seconds=10):
    """Poll briefly until the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)
