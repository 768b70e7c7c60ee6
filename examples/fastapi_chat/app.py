"""A chat page whose answers are streamed, and survive a reload of the page and a killed worker.

    pip install openai "tidegate[server,testing]"
    python app.py                  # the site, a worker and a simulated provider; open the address it prints

Or one by one, with any OpenAI-compatible service (OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL):

    tidegate worker app:queue
    uvicorn app:site

It answers from the notes in ../summarise/texts. The page is page/chat.js, on top of `tidegate.js`.
"""

import asyncio
import contextlib
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx2
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from tidegate import CallTimes, Context, Pool, Tidegate, Timings
from tidegate.integrations.fastapi import lifespan
from tidegate.web import Principal, Role, create_app

HERE = Path(__file__).parent


def words_of(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.lower()))


NOTES = {
    text: words_of(text)
    for text in (path.read_text("utf-8") for path in sorted((HERE.parent / "summarise/texts").glob("*.txt")))
}
"""Each note with the set of its words."""

# A person waits for each answer: poll often, and notice a lost worker within seconds.
queue = Tidegate(
    pools=[Pool("chat", queues=("chat",), concurrency=16, poll_interval=0.1)],
    timings=Timings(lease=3, beat=1, reap=1, drain_grace=5),
)
openai = queue.upstream("openai", times=CallTimes(seconds=30))
client: AsyncOpenAI


# --- in the worker ----------------------------------------------------------------------------------------


@queue.on_start
async def open_client() -> None:
    global client
    client = AsyncOpenAI(http_client=httpx2.AsyncClient(transport=openai.transport()))


@queue.on_stop
async def close_client() -> None:
    await client.close()


@queue.task(queue="chat", upstream=openai, priority="interactive", timeout=120, deadline="10m")
async def reply(ctx: Context, turns: list[dict[str, str]]) -> str:
    """Answer the last of these turns; the page reads along."""
    *before, last = turns
    question = " ".join(last["content"].split())
    prompt = f"Answer “{question}” from this note:\n\n{note_on(question)}"
    messages = cast(list[ChatCompletionMessageParam], [*before, {"role": "user", "content": prompt}])
    words: list[str] = []
    async for chunk in await client.chat.completions.create(
        model=os.environ.get("OPENAI_MODEL", "simulated-1"),
        messages=messages,
        stream=True,
    ):
        if chunk.choices and (word := chunk.choices[0].delta.content):
            words.append(word)
            await ctx.emit(word)
    return "".join(words)


def note_on(question: str) -> str:
    """Return the note that shares the most words with a question; rare words count more."""
    asked = words_of(question)
    rarity = {word: 1 / (1 + sum(word in words for words in NOTES.values())) for word in asked}
    return max(NOTES, key=lambda note: sum(rarity[word] for word in asked & NOTES[note]))


# --- in the web process -----------------------------------------------------------------------------------

CONTENT_SECURITY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


async def visitor(connection: Any) -> Principal | None:
    """Replace this with your login: the cookie identifies a visitor, who sees only their own tasks."""
    name = connection.cookies.get("visitor", "")
    return Principal(name, Role.SUBMITTER, tenant=name) if re.fullmatch(r"[\w-]{32}", name) else None


api = create_app(queue, authenticate=visitor)
site = FastAPI(openapi_url=None, lifespan=lifespan(queue, api=api))
site.mount("/tidegate", api)
site.mount("/page", StaticFiles(directory=HERE / "page"))


@site.get("/")
async def page(request: Request) -> FileResponse:
    answer = FileResponse(HERE / "page" / "index.html", headers={"Content-Security-Policy": CONTENT_SECURITY})
    if await visitor(request) is None:
        answer.set_cookie("visitor", secrets.token_urlsafe(24), httponly=True, samesite="strict")
    return answer


# --- everything at once -----------------------------------------------------------------------------------


async def main(port: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        if "OPENAI_BASE_URL" not in os.environ:
            await stack.enter_async_context(simulated_provider())
        holder = asyncio.create_task(keep_a_worker(), name="keep a worker")
        stack.push_async_callback(ended, holder)
        listening = stack.enter_context(socket.create_server(("127.0.0.1", port)))
        print(f"open http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        config = uvicorn.Config(site, log_level="warning", timeout_graceful_shutdown=2)
        # uvicorn raises the signal that stopped it once more: let it end this block, not the process.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        await uvicorn.Server(config).serve(sockets=[listening])


@contextlib.asynccontextmanager
async def simulated_provider() -> AsyncIterator[None]:
    """Run a provider that waits a little and then streams at reading speed."""
    from tidegate.testing.provider import ProviderSettings, SimulatedProvider

    pace = float(os.environ.get("CHAT_TOKENS_PER_SECOND", "12"))
    settings = ProviderSettings(latency_seconds=0.8, tokens_per_second=pace)
    async with SimulatedProvider(settings) as provider:
        os.environ |= {"OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": "simulated"}
        yield


async def keep_a_worker() -> None:
    """Run a worker, and the next one whenever it ends, as systemd or Kubernetes do for you elsewhere."""
    while True:
        command = [sys.executable, "-m", "tidegate.cli", "worker", "app:queue"]
        worker = await asyncio.create_subprocess_exec(*command)
        print(f"a worker runs; take it away while it answers: kill -9 {worker.pid}", flush=True)
        try:
            await worker.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                worker.terminate()
            await worker.wait()


async def ended(job: asyncio.Task[None]) -> None:
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)


if __name__ == "__main__":
    os.chdir(HERE)  # the worker imports `app` from here, and both use the same queue file
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8000))
