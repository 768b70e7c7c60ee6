"""Inside Starlette and FastAPI: a lifespan, and background tasks that survive the process.

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
from tidegate.errors import ConfigError
from tidegate.internals import core_of
from tidegate.readers import shown
from tidegate.task import TaskFunction

P = ParamSpec("P")

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]

_PENDING = "tidegate.tasks"
_REFUSED_FROM = 400


def lifespan(
    queue: Tidegate, *, api: Starlette | None = None, worker: bool = False, within: Lifespan | None = None
) -> Lifespan:
    """Return a lifespan for an application that uses a queue.

    Opens the store at the start and lets go of it at the end; `app.state.queue` is the queue.

    Args:
        queue: Which.
        api: The HTTP API of the queue, if it is mounted: a mounted application's own lifespan is never run.
        worker: Run a worker in this process too. It cannot kill a body that will not stop, and it ends with
            the process: for small sites and development; else run `tidegate worker`.
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
    """Return the queue of a request's application; a dependency for FastAPI.

    Raises:
        ConfigError: The application has none.
    """
    queue = getattr(request.app.state, "queue", None)
    if not isinstance(queue, Tidegate):
        raise ConfigError(
            "this application has no queue", fix="make it with lifespan=lifespan(queue), and let it start"
        )
    return queue


class DurableTasks:
    """In place of Starlette's `BackgroundTasks`: what is added here is on the disk before the answer is sent.

    So it survives the process, is retried, and can be followed by its id. The functions must be task
    functions. A dependency for FastAPI; needs `DurableTasksMiddleware`.
    """

    def __init__(self, request: HTTPConnection) -> None:
        pending = request.scope.get(_PENDING)
        if pending is None:
            raise ConfigError(
                "nobody stores the durable tasks of this application",
                fix="add it: app.add_middleware(DurableTasksMiddleware, queue=queue)",
            )
        self._pending: list[PreparedTask] = pending

    def add_task(
        self,
        function: TaskFunction[P, Any, Any] | ConfiguredTaskFunction[P, Any],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> str:
        """Add a task, to be stored when the answer begins; return its id.

        It is not stored if the answer is an error (status 400 or above), as background tasks are not run
        after an exception. With a `key=` that is taken the first task's id counts, not this one.

        Raises:
            ArgumentsError: The arguments do not fit the function.
            ConfigError: It is no task function.
        """
        if not isinstance(function, TaskFunction | ConfiguredTaskFunction):
            raise ConfigError(
                f"{shown(getattr(function, '__qualname__', function))} is no task function",
                fix="declare it with @queue.task, or use BackgroundTasks and lose it with the process",
            )
        task = function.prepare(*args, **kwargs)
        self._pending.append(task)
        return task.task_id


class DurableTasksMiddleware:
    """Stores what `DurableTasks` gathered, all or none, just before the answer begins.

    If they cannot be stored, the error is raised in place of the answer: nobody is told of success.

    Args:
        app: What is behind it.
        queue: Where to.
    """

    def __init__(self, app: ASGIApp, *, queue: Tidegate) -> None:
        self._app = app
        self._queue = queue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and store in between."""
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
