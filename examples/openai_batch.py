"""A batch through the real `openai` client, made polite by one line: the transport of an upstream.

    pip install openai "tidegate[testing]"
    python openai_batch.py              # against a simulated provider that throttles and fails
    python openai_batch.py 200

For the real service set OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL; then it costs money. The worker
runs in this very process here; `tidegate worker` is the way for anything that lasts.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

import httpx2
from openai import AsyncOpenAI

from tidegate import CallTimes, Pool, TaskFailedError, Tidegate
from tidegate.testing.provider import ProviderSettings, SimulatedProvider

app = Tidegate(
    f"sqlite:///{Path(tempfile.mkdtemp(prefix='openai-batch-')) / 'queue.db'}",
    pools=[Pool(concurrency=20, poll_interval=0.1)],
)
# The quota is declared once. All workers keep to it together, so few calls get a 429.
openai = app.upstream("openai", requests_per_minute=1200, times=CallTimes(seconds=20))
client: AsyncOpenAI


@app.on_start
async def open_client() -> None:
    """Open one client for each worker process. Its own retries are left on: the transport sees to them."""
    global client
    http = httpx2.AsyncClient(transport=openai.transport())
    client = AsyncOpenAI(base_url=os.environ["OPENAI_BASE_URL"], http_client=http)


@app.on_stop
async def close_client() -> None:
    await client.close()


@app.task(upstream=openai, timeout=60)
async def summarise(text: str) -> str:
    answer = await client.chat.completions.create(
        model=os.environ.get("OPENAI_MODEL", "simulated-1"),
        messages=[{"role": "user", "content": f"Summarise in one sentence:\n\n{text}"}],
        max_tokens=60,
    )
    return answer.choices[0].message.content or ""


async def main(count: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        provider = None
        if "OPENAI_BASE_URL" not in os.environ:
            provider = await stack.enter_async_context(SimulatedProvider(BUSY))
            os.environ |= {"OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": "simulated"}
        await stack.enter_async_context(app.worker())
        handles = [await summarise.enqueue(f"The tide came in at {hour} o'clock.") for hour in range(count)]
        failed = 0
        for handle in handles:
            try:
                await handle.result(timeout=300)
            except TaskFailedError as error:
                failed += 1
                print(f"{handle.id}: {error.facts['reason']}")
        print(f"{count - failed} of {count} summarised: {await handles[0].result(timeout=1)}")
        if provider is not None:
            outcomes = Counter(call.outcome for call in provider.ledger.calls())
            print(f"{outcomes.total()} calls:", ", ".join(f"{n} {what}" for what, n in outcomes.items()))
    await app.aclose()


BUSY = ProviderSettings(
    requests_per_minute=1200, requests_burst=20, latency_seconds=0.1, overload_probability=0.02
)
"""What the simulated provider can take, and how often it is overloaded even so."""

if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 60))
