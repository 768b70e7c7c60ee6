"""Task functions with jobs at a provider, which is a folder: each job is a file."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tidegate import Context, Fixed, Pending, Pool, Tidegate, Timings
from tidegate.context import waits

waits.SUSPEND_SECONDS = 0.1  # in every process that imports this: tests must not wait for 5 s

app = Tidegate(
    pools=[Pool(concurrency=2, poll_interval=0.05)],
    timings=Timings(lease=0.6, beat=0.15, reap=0.2, promote=0.05, stop_grace=0.3, cancel_poll=0.05),
)
EVERY = 0.2


def folder() -> Path:
    return Path(os.environ["PROVIDER"])


def note(what: str, **facts: object) -> None:
    with open(os.environ["LEDGER"], "a") as file:
        file.write(json.dumps({"what": what, "pid": os.getpid(), **facts}) + "\n")
        file.flush()
        os.fsync(file.fileno())


def hang_if_asked(where: str) -> None:
    """Wait here while the test has a file of this name: it kills the worker meanwhile."""
    if (folder() / f"hang-{where}").exists():
        note("hangs", where=where)
        while (folder() / f"hang-{where}").exists():
            time.sleep(0.02)


def submit(key: str) -> str:
    job_id = f"job-{len(list(folder().glob('job-*'))) + 1}"
    (folder() / job_id).write_text(key)
    note("submit", key=key, job=job_id)
    hang_if_asked("submit")
    return job_id


def poll(job_id: str) -> Pending | str:
    note("poll", job=job_id)
    hang_if_asked("poll")
    if (folder() / "done").exists():
        return f"result of {job_id}"
    return Pending()


def cancel(job_id: str) -> None:
    note("cancel", job=job_id)
    hang_if_asked("cancel")


def find(key: str) -> str | None:
    note("find", key=key)
    return next((job.name for job in sorted(folder().glob("job-*")) if job.read_text() == key), None)


def do_job(ctx: Context, in_doubt: str) -> str:
    """Do the job in a plain function."""
    return ctx.remote_sync(
        "video",
        lambda: submit(ctx.idempotency_key),
        poll,
        every=EVERY,
        max_every=EVERY,
        find=find if in_doubt == "find" else None,
        in_doubt="ask" if in_doubt == "ask" else "repeat",
        cancel=cancel,
    )


@app.task(backoff=Fixed(0.05), max_attempts=2)
async def in_loop(ctx: Context, in_doubt: str = "repeat") -> str:
    return await ctx.remote(
        "video",
        lambda: submit(ctx.idempotency_key),
        poll,
        every=EVERY,
        max_every=EVERY,
        find=find if in_doubt == "find" else None,
        in_doubt="ask" if in_doubt == "ask" else "repeat",
        cancel=cancel,
    )


@app.task(backoff=Fixed(0.05), max_attempts=2)
def in_thread(ctx: Context, in_doubt: str = "repeat") -> str:
    return do_job(ctx, in_doubt)


@app.task(backoff=Fixed(0.05), max_attempts=2, runs_in="process")
def in_child(ctx: Context, in_doubt: str = "repeat") -> str:
    return do_job(ctx, in_doubt)
