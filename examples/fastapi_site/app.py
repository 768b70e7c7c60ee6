"""A FastAPI site that submits tasks and lets its pages follow them.

    pip install "tidegate[server]"
    uvicorn app:site
    curl -si localhost:8000/signup -H 'Content-Type: application/json' -d '{"mail": "ada@example.com"}'
    curl -sN localhost:8000/tidegate/api/v1/tasks/ID/events

The worker runs in the web process here (`worker=True`). For real work leave that out and run
`tidegate worker app:queue`.
"""

import asyncio

from fastapi import FastAPI
from pydantic import BaseModel

from tidegate import Context, Tidegate
from tidegate.integrations.fastapi import DurableTasksDep, DurableTasksMiddleware, QueueDep, lifespan
from tidegate.web import WebSettings, create_app

queue = Tidegate()


@queue.task
async def welcome(ctx: Context, mail: str) -> str:
    for line in ("Dear reader,", f"welcome, {mail}.", "Yours, the site"):
        await ctx.emit(line)
        await asyncio.sleep(0.1)
    return f"sent to {mail}"


# For this machine only: on the internet make tokens, or give `authenticate=` your own login.
api = create_app(queue, settings=WebSettings(open_without_tokens=True))
site = FastAPI(lifespan=lifespan(queue, api=api, worker=True))
site.add_middleware(DurableTasksMiddleware, queue=queue)
site.mount("/tidegate", api)


class Signup(BaseModel):
    mail: str


@site.post("/signup", status_code=202)
async def signup(asked: Signup, tasks: DurableTasksDep) -> dict[str, str]:
    """On the disk before this answer leaves; `BackgroundTasks` would lose it with the process."""
    return {"task_id": tasks.add_task(welcome, asked.mail)}


@site.get("/welcomed/{task_id}")
async def welcomed(task_id: str, queue: QueueDep) -> dict[str, str]:
    return {"state": (await queue.status(task_id)).state.value}
