"""Summarise text files with a chat model that is slow, limited by a quota and sometimes down.

    python -m tidegate.testing.provider --port 8801 --latency 1 --rpm 60 --rpm-burst 10   # terminal 1
    PROVIDER_URL=http://127.0.0.1:8801/v1 tidegate worker app:app     # terminal 2, in this directory
    python app.py texts/*.txt                                         # terminal 3, in this directory

Any OpenAI-compatible service will do: set PROVIDER_URL, PROVIDER_KEY and PROVIDER_MODEL.
"""

import asyncio
import os
import sys
from pathlib import Path

import httpx2

from tidegate import CallTimes, Context, Exponential, TaskFailedError, Tidegate

app = Tidegate()
# All tasks share the state of the provider: a 429 parks it, and one task probes whether an outage is over.
provider = app.upstream("provider", provider="openai", times=CallTimes(seconds=30))
client: httpx2.AsyncClient


@app.on_start
async def open_client() -> None:
    """Open one client for each worker process, so that its tasks share connections."""
    global client
    client = httpx2.AsyncClient(
        base_url=os.environ["PROVIDER_URL"],
        headers={"Authorization": f"Bearer {os.environ.get('PROVIDER_KEY', 'none')}"},
        transport=provider.transport(),
    )


@app.on_stop
async def close_client() -> None:
    await client.aclose()


@app.task(
    queue="summaries",
    upstream=provider,
    timeout=60,
    max_attempts=5,
    backoff=Exponential(base=2, cap=60),  # waits for the provider's sake cost no attempt
)
async def summarise(ctx: Context, path: str, audience: str = "a busy reader", words: int = 60) -> str:
    text = await asyncio.to_thread(Path(path).read_text, "utf-8")
    prompt = f"Summarise this for {audience} in at most {words} words:\n\n{text}"
    answer = await client.post(
        "chat/completions",
        json={
            "model": os.environ.get("PROVIDER_MODEL", "simulated-1"),
            "messages": [{"role": "user", "content": prompt}],
        },
        headers={"Idempotency-Key": ctx.task_id},  # the same for every run of this task
    )
    answer.raise_for_status()  # status and headers decide whether, and when, it is tried again
    return str(answer.json()["choices"][0]["message"]["content"])


async def main(paths: list[str]) -> None:
    handles = {path: await summarise.enqueue(path) for path in paths}
    for path, handle in handles.items():
        try:
            print(f"{Path(path).name}: {await handle.result(timeout=300)}")
        except TaskFailedError as error:
            print(f"{Path(path).name}: not summarised ({error.facts['reason']})")


if __name__ == "__main__":
    asyncio.run(main([str(Path(path).resolve()) for path in sys.argv[1:]]))
