"""Use Tidegate inside Starlette and FastAPI: a lifespan, and background tasks that survive the process.

Example:
    >>> queue = Tidegate()  # doctest: +SKIP
    >>> api = create_app(queue)  # doctest: +SKIP
    >>> site = FastAPI(lifespan=lifespan(queue, api=api))  # doctest: +SKIP
    >>> site.mount("/tidegate", api)  # doctest: +SKIP
    >>> site.add_middleware(DurableTasksMiddleware, queue=queue)  # doctest: +SKIP
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, ParamSpec

from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.app import Tidegate
from tidegate.configured import ConfiguredTaskFunction, PreparedTask
from tidegate.domain.readers import shown
from tidegate.errors import ConfigError
from tidegate.internals import core_of
from tidegate.task import TaskFunction

P = ParamSpec("P")

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]

_PENDING = "tidegate.tasks"
_REFUSED_FROM = 400


def lifespan(
    queue: Tidegate, *, api: Starlette | None = None, worker: bool = False, within: Lifespan | None = None
) -> Lifespan:
    """Return a lifespan for an application that uses a queue.

    Opens the store at the start and closes it at the end; `app.state.queue` is the queue.

    Args:
        queue: The queue.
        api: The HTTP API of the queue, if it is mounted: Starlette does not run a mounted application's
            lifespan.
        worker: Whether to run a worker in this process too. Such a worker cannot kill a function that does
            not stop, and ends with the process. For small sites and development; otherwise run `tidegate
            worker`.
        within: Another lifespan to run inside this one.
    """

    @contextlib.asynccontextmanager
    async def alive(app: Any) -> AsyncIterator[None]:
        app.state.queue = queue
        async with contextlib.AsyncExitStack() as stack:
            await core_of(queue).opened_store()
            stack.push_async_callback(queue.aclose)
            if api is not None:
                await stack.enter_async_context(api.router.lifespan_context(api))
            if worker:
                await stack.enter_async_context(queue.worker())
            if within is not None:
                await stack.enter_async_context(within(app))
            yield

    return alive


def queue_of(request: Request) -> Tidegate:
    """Return the queue of a request's application. A dependency for FastAPI.

    Raises:
        ConfigError: The application has no queue.
    """
    queue = getattr(request.app.state, "queue", None)
    if not isinstance(queue, Tidegate):
        raise ConfigError(
            "this application has no queue",
            fix="create it with lifespan=lifespan(queue), and make sure that the lifespan runs",
        )
    return queue


class DurableTasks:
    """Replaces Starlette's `BackgroundTasks`: tasks added here are on disk before the response is sent.

    So they survive the process, are retried, and can be followed by their ids. The functions must be task
    functions. A dependency for FastAPI; needs `DurableTasksMiddleware`.
    """

    def __init__(self, request: HTTPConnection) -> None:
        pending = request.scope.get(_PENDING)
        if pending is None:
            raise ConfigError(
                "this application has no middleware that stores durable tasks",
                fix="add it: app.add_middleware(DurableTasksMiddleware, queue=queue)",
            )
        self._pending: list[PreparedTask] = pending

    def add_task(
        self,
        function: TaskFunction[P, Any, Any] | ConfiguredTaskFunction[P, Any],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> str:
        """Add a task, which is enqueued just before the response starts; return its id.

        The task is dropped if the response is an error (status 400 or above). If another task has the same
        `key=`, that task is kept under its own id and this one is dropped.

        Raises:
            ArgumentsError: The arguments do not fit the function.
            ConfigError: `function` is not a task function.
        """
        if not isinstance(function, TaskFunction | ConfiguredTaskFunction):
            raise ConfigError(
                f"{shown(getattr(function, '__qualname__', function))} is not a task function",
                fix="declare it with @queue.task, or use BackgroundTasks, which do not survive the process",
            )
        task = function.prepare(*args, **kwargs)
        self._pending.append(task)
        return task.task_id


class DurableTasksMiddleware:
    """Enqueues the tasks of `DurableTasks`, all or none, just before the response starts.

    If they cannot be enqueued, the error is raised and the response is not sent.

    Args:
        app: The ASGI application to wrap.
        queue: The queue to enqueue to.
    """

    def __init__(self, app: ASGIApp, *, queue: Tidegate) -> None:
        self._app = app
        self._queue = queue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and enqueue its tasks before the response starts."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        pending: list[PreparedTask] = []
        scope[_PENDING] = pending

        async def send_after_storing(message: Message) -> None:
            if message["type"] == "http.response.start" and pending:
                if message["status"] < _REFUSED_FROM:
                    await self._queue.enqueue_many(list(pending))
                pending.clear()
            await send(message)

        await self._app(scope, receive, send_after_storing)
