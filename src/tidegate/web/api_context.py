"""What all routes share: the application, the limits, and functions that write responses."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Path
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from tidegate.application.core import Core
from tidegate.codec.plain import is_plain, plain
from tidegate.codec.plain import to_json as encode
from tidegate.domain.access import Principal
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskRow
from tidegate.store.short_ids import full_ids
from tidegate.web.audit import AuditLog
from tidegate.web.background import BackgroundWork
from tidegate.web.capacity import NoCapacityError, SharedCapacity
from tidegate.web.offload import Offload
from tidegate.web.problems import NO_STORE, Problem
from tidegate.web.protected_routes import principal_of
from tidegate.web.request_body import read_json
from tidegate.web.settings import WebSettings
from tidegate.web.shutdown import ShutdownSignal
from tidegate.web.submit import Submitter
from tidegate.web.tokens import Authenticate

T = TypeVar("T")

_MIN_BODY_BYTES = 16_384
"""The least size, in bytes, that a request in flight counts for."""

TaskId = Annotated[str, Path(description="A task id: a UUID, or its first digits.", max_length=64)]


class ApiContext:
    """The objects that the routes of one API use.

    Args:
        core: The core of the application whose tasks are served.
        settings: Limits.
        authenticate: Returns who a request comes from.
    """

    def __init__(self, core: Core, settings: WebSettings, authenticate: Authenticate) -> None:
        self.core = core
        self.settings = settings
        self.authenticate = authenticate
        self.submitter = Submitter(core)
        self.audit = AuditLog(core.opened_store, core.next_id)
        self.background = BackgroundWork()
        """Runs what goes on after its response."""
        self.offload = Offload()
        self.waiters = SharedCapacity(settings.waiters)
        """Limits the requests that wait for the end of a task."""
        self.followers = SharedCapacity(settings.followers)
        """Limits the open streams."""
        self._body_bytes = SharedCapacity(settings.bodies_in_flight)
        self.shutdown = ShutdownSignal()

    async def store(self) -> Store:
        """Return the open store."""
        return await self.core.opened_store()

    async def read_json(
        self,
        request: Request,
        kind: type[T],
        *,
        default: bytes = b"",
        items: int | None = None,
        values: int | None = None,
    ) -> T:
        """Read a JSON body with this API's limits. See `request_body.read_json`."""
        return await read_json(
            request, kind, self.settings, self.offload, default=default, items=items, values=values
        )

    async def read_body(
        self, request: Request, kind: type[T], *, default: bytes = b"", items: int | None = None
    ) -> T:
        """Read a JSON body of at most `body_limit` bytes, and count its bytes as in flight while it is read.

        Raises:
            Problem: The body is not such a body, or too many bytes are in flight.
        """
        with self.body_in_flight(request, self.settings.body_limit):
            return await self.read_json(request, kind, default=default, items=items)

    @contextlib.contextmanager
    def body_in_flight(self, request: Request, largest: int) -> Iterator[None]:
        """Count the bytes of a request's body as in flight for the block.

        Args:
            request: The request.
            largest: The most bytes that a body of this route may have. They are counted if the request gives
                no length.

        Raises:
            Problem: The token, its tenant, or all requests together have too many bytes in flight.
        """
        declared = request.headers.get("content-length", "")
        size = int(declared) if declared.isascii() and declared.isdigit() else largest
        try:
            with self._body_bytes.take(principal_of(request), max(size, _MIN_BODY_BYTES)):
                yield
        except NoCapacityError:
            raise Problem("too-many-requests", headers={"Retry-After": "1"}) from None

    async def plain(self, stored: bytes) -> msgspec.Raw:
        """Return a stored result as plain JSON. A long result is converted in a thread."""
        size = 0 if is_plain(stored) else len(stored)
        return await self.offload.run(size, plain, stored)

    async def is_still_admitted(self, connection: HTTPConnection) -> bool:
        """Return whether the client of an open stream would still be admitted, as the same principal."""
        try:
            return await self.authenticate(connection) == principal_of(connection)
        except Problem:
            return False

    async def row(self, task_id: str, principal: Principal) -> TaskRow:
        """Return a task that the principal may see.

        Raises:
            Problem: There is no such task, or it belongs to another tenant. The response is the same for
                both.
        """
        (full,) = await self.full_ids([task_id], principal)
        row = (await (await self.store()).read_tasks([full])).get(full)
        if row is None or not principal.may_see(row.tenant):
            raise task_not_found(task_id)
        return row

    async def full_ids(self, task_ids: Sequence[str], principal: Principal) -> list[str]:
        """Return the full ids, each once, of the tasks that the given ids and short ids name.

        Only tasks that the principal may see count.

        Raises:
            OptionError: A short id matches several of these tasks.
        """
        return await full_ids(await self.store(), task_ids, tenant=principal.tenant)

    async def visible_tasks(self, task_ids: Sequence[str], principal: Principal) -> dict[str, TaskRow]:
        """Return those of these tasks that the principal may see."""
        rows = await (await self.store()).read_tasks(task_ids)
        return {task_id: row for task_id, row in rows.items() if principal.may_see(row.tenant)}


def task_not_found(task_id: str) -> Problem:
    """Return the problem for a task that is unknown, deleted, or of another tenant."""
    return Problem(
        "not-found",
        f"no task has the id {task_id[:64]}; finished tasks are deleted after their retention time",
    )


def location_of(connection: HTTPConnection, task_id: str) -> str:
    """Return the path of a task's status, including the path under which this API is mounted."""
    return f"{connection.scope.get('root_path', '')}/api/v1/tasks/{task_id}"


def json_response(value: Any, status: int = 200, **headers: str) -> Response:
    """Return a JSON response. Write `_` for `-` in the names of headers."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Response(encode(value), status, NO_STORE | named, "application/json")


def etag_response(request: Request, value: Any) -> Response:
    """Return a JSON response with an ETag, or 304 if the client has the same content already."""
    body = encode(value)
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = NO_STORE | {"Cache-Control": "no-cache, private", "ETag": tag}
    known = request.headers.get("if-none-match", "")
    if known == "*" or tag in (part.strip().removeprefix("W/") for part in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, "application/json")
