"""Use Tidegate inside FastAPI: the names of `tidegate.integrations.starlette`, and annotated dependencies.

Example:
    >>> @site.post("/signup", status_code=202)  # doctest: +SKIP
    ... async def signup(mail: str, tasks: DurableTasksDep) -> dict[str, str]:
    ...     return {"task_id": tasks.add_task(welcome, mail)}
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from tidegate.app import Tidegate
from tidegate.integrations.starlette import DurableTasks, DurableTasksMiddleware, lifespan, queue_of


def _durable_tasks(request: Request) -> DurableTasks:
    return DurableTasks(request)


QueueDep = Annotated[Tidegate, Depends(queue_of)]
"""Dependency: the queue of the application."""

DurableTasksDep = Annotated[DurableTasks, Depends(_durable_tasks)]
"""Dependency: `DurableTasks`, which replaces `BackgroundTasks`."""

__all__ = ["DurableTasks", "DurableTasksDep", "DurableTasksMiddleware", "QueueDep", "lifespan", "queue_of"]
