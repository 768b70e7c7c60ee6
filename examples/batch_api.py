"""Thirty prompts through a Batch API, whose worker is killed twice: no batch is submitted twice.

    pip install "tidegate[testing]"
    python batch_api.py                # against a simulated Batch API: an hour takes a third of a second

A batch costs half, and is done within 24 hours, or expires. Here the provider does one prompt an hour, so
that six of thirty expire: they are submitted alone. Both kills come after the provider has created a batch
and before the worker knows of it: the next run finds it by its idempotency key. Between polls the task holds
no slot.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import psutil

from tidegate import Context, Pending, Pool, Tidegate, Timings
from tidegate.testing.provider import BatchApiSettings, SimulatedBatchApi

# The worker's processes get the same variable.
os.environ.setdefault(
    "TIDEGATE_DATABASE_URL", f"sqlite:///{Path(tempfile.mkdtemp(prefix='batch-api-')) / 'queue.db'}"
)
# A short lease, so that a killed worker is missed after a few seconds. The default of 60 s suits most work.
app = Tidegate(pools=[Pool(concurrency=1, poll_interval=0.1)], timings=Timings(lease=4.0, beat=0.5, reap=0.5))


@contextlib.asynccontextmanager
async def provider() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=os.environ["BATCH_API_URL"]) as client:
        yield client


async def find(key: str) -> str | None:
    """Return the batch that was submitted with this key."""
    async with provider() as client:
        found = (await client.get("batches")).raise_for_status().json()["data"]
    return next((batch["id"] for batch in found if batch["metadata"].get("key") == key), None)


async def poll(batch_id: str) -> Pending | dict[str, str]:
    """Return the answers of a batch that has ended: completed, or expired with a part of them."""
    async with provider() as client:
        batch = (await client.get(f"batches/{batch_id}")).raise_for_status().json()
        counts = batch["request_counts"]
        if batch["status"] == "in_progress":
            return Pending(done=counts["completed"], total=counts["total"])
        output = (await client.get(f"files/{batch['output_file_id']}/content")).raise_for_status()
    lines = [json.loads(line) for line in output.text.splitlines()]
    return {line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"] for line in lines}


async def cancel(batch_id: str) -> None:
    async with provider() as client:
        (await client.post(f"batches/{batch_id}/cancel")).raise_for_status()


@app.task
async def ask_all(ctx: Context, count: int) -> int:
    prompts = {f"prompt-{number}": f"describe lighthouse {number}" for number in range(1, count + 1)}

    async def submit(items: dict[str, str]) -> str:
        lines = [
            json.dumps({
                "custom_id": name, "method": "POST", "url": "/v1/chat/completions",
                "body": {"model": "simulated-1", "messages": [{"role": "user", "content": prompt}]},
            })
            for name, prompt in items.items()
        ]  # fmt: skip
        async with provider() as client:
            file = (await client.post("files", content="\n".join(lines))).raise_for_status().json()
            batch = await client.post(
                "batches",
                json={
                    "input_file_id": file["id"],
                    "endpoint": "/v1/chat/completions",
                    "completion_window": "24h",
                    "metadata": {"key": ctx.idempotency_key},
                },
            )
        return str(batch.raise_for_status().json()["id"])

    answers = await ctx.remote_batch(
        "prompts", prompts, submit, poll, find=find, cancel=cancel, every=6, max_every=6, timeout="26h",
        provider="simulated",
    )  # fmt: skip
    return len(answers)


@contextlib.contextmanager
def worker() -> Iterator[None]:
    """Run a worker in processes of its own, and kill it at the end of the block."""
    command = [sys.executable, "-m", "tidegate.cli", "worker", "batch_api:app"]
    process = subprocess.Popen(command, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        for each in (*psutil.Process(process.pid).children(recursive=True), process):
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                each.send_signal(signal.SIGKILL)
        process.wait()


async def main(count: int) -> None:
    settings = BatchApiSettings(hour_seconds=0.33, requests_per_hour=count / 30, latency_seconds=1.0)
    async with SimulatedBatchApi(settings) as api:
        os.environ["BATCH_API_URL"] = api.url
        handle = await ask_all.enqueue(count)
        for batches in (1, 2):
            with worker():
                while api.submitted < batches:  # noqa: ASYNC110 - the simulated provider has no event for it
                    await asyncio.sleep(0.02)
            print(f"killed the worker before it knew of batch {batches}")
        with worker():
            answered = await handle.result(timeout=120)
        print(f"{answered} answers, {api.submitted} batches, {len(api.paid_twice())} prompts paid twice")
        print(f"${api.dollars():.3f} instead of ${count * 0.002:.3f}")
    [job] = await app.admin.tasks.provider_jobs(handle.id)
    print(f"job {job.job_id}: {job.state}, submitted {job.submits} times, polled {job.polls} times")
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 30))
