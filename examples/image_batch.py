"""Thirty images in one task, whose worker is killed twice: no finished image is paid for again.

    pip install "tidegate[testing]"
    python image_batch.py              # against a simulated provider
    python image_batch.py 100

Each image is a step, so its result is kept. Only the calls that were in flight at a kill are made again: the
ledger of doubts lists each of them.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil

from tidegate import CallTimes, Context, Pool, Tidegate, Timings
from tidegate.testing.provider import ProviderSettings, SimulatedProvider

# The worker's processes get the same variable.
os.environ.setdefault(
    "TIDEGATE_DATABASE_URL", f"sqlite:///{Path(tempfile.mkdtemp(prefix='image-batch-')) / 'queue.db'}"
)
# A short lease, so that a killed worker is missed after a few seconds. The default of 60 s suits most work.
app = Tidegate(pools=[Pool(concurrency=1, poll_interval=0.1)], timings=Timings(lease=4.0, beat=0.5, reap=0.5))
images = app.upstream("images", provider="openai", times=CallTimes(seconds=30))
client: httpx2.AsyncClient


@app.on_start
async def open_client() -> None:
    global client
    client = httpx2.AsyncClient(base_url=os.environ["PROVIDER_URL"], transport=images.transport())


@app.on_stop
async def close_client() -> None:
    await client.aclose()


async def draw(prompt: str) -> str:
    """Return what the provider draws. The simulated one draws with words."""
    answer = await client.post(
        "chat/completions",
        json={"model": "simulated-1", "messages": [{"role": "user", "content": prompt}]},
    )
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"])


@app.task
async def draw_all(ctx: Context, count: int) -> int:
    prompts = [f"A lighthouse in the style of painter {number}" for number in range(1, count + 1)]
    three_at_once = asyncio.Semaphore(3)

    async def one(prompt: str) -> str:
        async with three_at_once:
            return await ctx.step("image", draw, prompt)

    return len(await asyncio.gather(*map(one, prompts)))


@contextlib.contextmanager
def worker() -> Iterator[None]:
    """Run a worker in processes of its own, and kill it at the end of the block."""
    command = [sys.executable, "-m", "tidegate.cli", "worker", "image_batch:app"]
    process = subprocess.Popen(command, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        for each in (*psutil.Process(process.pid).children(recursive=True), process):
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                each.send_signal(signal.SIGKILL)
        process.wait()


async def main(count: int) -> None:
    settings = ProviderSettings(latency_seconds=0.3)
    async with SimulatedProvider(settings) as provider:
        os.environ["PROVIDER_URL"] = provider.url
        handle = await draw_all.enqueue(count)
        for part in (1 / 3, 2 / 3):
            with worker():
                async with asyncio.timeout(120):
                    while provider.ledger.summary().billed < count * part:  # noqa: ASYNC110 - a ledger has no event
                        await asyncio.sleep(0.05)
            print(f"killed the worker after {provider.ledger.summary().billed} paid calls")
        with worker():
            drawn = await handle.result(timeout=120)
        paid = provider.ledger.summary().billed
    doubts = await app.admin.doubts.list(state=None, task=handle.id)
    print(f"{drawn} images, {paid} paid calls, {len(doubts)} calls in doubt:")
    for doubt in doubts:
        print(f"  doubt {doubt.id}: {doubt.step}, run {doubt.run}, {doubt.state}: {doubt.cause}")
    print("each call that was paid twice is listed" if paid <= drawn + len(doubts) else "a call was lost")
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 30))
