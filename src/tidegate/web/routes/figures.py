"""What can be submitted, how the queues are, who works, and who changed what."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tidegate.store.serving import serving
from tidegate.task import TaskFunction
from tidegate.web.guard import ADMINS, EVERYBODY, READERS, Answer, Guarded, Needs
from tidegate.web.room import Room, answer
from tidegate.web.routes.tasks import After, Limit
from tidegate.web.shown import audit_of, queue_of, worker_of
from tidegate.web.wire import AuditPage, FunctionOut, Functions, Queues, Workers


def add(api: Guarded, room: Room) -> None:
    """Register the routes."""

    @api.route(
        "GET", "/api/v1/functions", Needs(EVERYBODY), answers={200: Answer("The functions", Functions)}
    )
    async def list_functions(request: Request) -> Response:
        """Return the task functions that may be submitted, with the JSON Schema of their arguments."""
        functions = room.app.functions.values()
        return answer(
            Functions([function_of(one) for one in sorted(functions, key=lambda one: one.spec.name)])
        )

    @api.route("GET", "/api/v1/queues", Needs(READERS, whole=True), answers={200: Answer("Queues", Queues)})
    async def list_queues(request: Request) -> Response:
        """Return each queue at a glance."""
        store = await room.store()
        unserved = (await serving(store, await store.now())).unserved
        return answer(Queues([queue_of(stats) for stats in await store.queue_stats(unserved)]))

    @api.route(
        "GET", "/api/v1/workers", Needs(READERS, whole=True), answers={200: Answer("Workers", Workers)}
    )
    async def list_workers(request: Request) -> Response:
        """Return the pool processes that work, or whose tasks are not taken up again yet."""
        store = await room.store()
        now = await store.now()
        return answer(Workers([worker_of(row, now) for row in await store.workers()]))

    @api.route("GET", "/api/v1/audit", Needs(ADMINS, whole=True), answers={200: Answer("A page", AuditPage)})
    async def list_audit(request: Request, after: After = None, limit: Limit = 50) -> Response:
        """Return who changed what, the newest first. Entries are kept for a year."""
        limit = min(limit, room.settings.page_limit)
        entries = await (await room.store()).audit(after=after, limit=limit)
        following = entries[-1].id if len(entries) == limit else None
        return answer(AuditPage([audit_of(entry) for entry in entries], following))


def function_of(function: TaskFunction[..., object, object]) -> FunctionOut:
    """Return a task function as it is shown."""
    spec, signature = function.spec, function.signature
    first_line = (function.__doc__ or "").strip().partition("\n")[0]
    return FunctionOut(
        spec.name, spec.queue, spec.priority.word, signature.text, first_line, signature.schema()
    )
