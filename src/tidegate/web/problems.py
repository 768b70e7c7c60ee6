"""The problems (RFC 9457) of refused requests. `docs/reference/problems.md` describes every type."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from tidegate.codec.plain import to_json as encode
from tidegate.domain.text import redacted_text
from tidegate.errors import (
    ApprovalNotFoundError,
    ArgumentsError,
    DataRemovedError,
    DoubtNotFoundError,
    KeyConflictError,
    MapNotFoundError,
    NotAcceptedError,
    OperationNotFoundError,
    OptionError,
    SchemaError,
    StoreBusyError,
    StoreError,
    TaskNotFoundError,
    TidegateError,
    UnknownFunctionError,
    UnknownScheduleError,
    UsageError,
)

MEDIA_TYPE = "application/problem+json"
PAGES = "/api/v1/problems/"
NO_STORE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Headers of responses about tasks: do not cache them, and do not guess their type."""

_MAX_DETAIL = 1_000
"""The most characters of a detail, which may quote the request."""


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One type of problem."""

    status: int
    title: str
    fix: str


PROBLEM_TYPES: Mapping[str, ProblemType] = MappingProxyType(
    {
        slug: ProblemType(**kind)
        for slug, kind in tomllib.loads(
            Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
        ).items()
    }
)
"""The types by slug, which is the last part of their URL. Read from `problems.toml`."""


class Problem(Exception):  # noqa: N818 - the word of RFC 9457
    """An exception that refuses a request.

    Args:
        slug: The type of the problem.
        detail: What is wrong with this request; it names fields and types, but no values that may be secret.
        errors: The errors in several places, each `{"at": …, "detail": …}`.
        headers: Headers of the response.
        facts: Further members of the response.
    """

    def __init__(
        self,
        slug: str,
        detail: str = "",
        *,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(detail)
        self.slug = slug
        self.kind = PROBLEM_TYPES[slug]
        self.detail = detail
        self.errors = errors
        self.headers = dict(headers or {})
        self.facts = facts

    def response(self, connection: HTTPConnection) -> Response:
        """Return the response to this request."""
        body: dict[str, Any] = {
            "type": f"{connection.scope.get('root_path', '')}{PAGES}{self.slug}",
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": redacted_text(self.detail, _MAX_DETAIL) or self.kind.fix,
        }
        if self.errors:
            body["errors"] = [
                {name: redacted_text(text, _MAX_DETAIL) for name, text in error.items()}
                for error in self.errors
            ]
        headers = NO_STORE | self.headers
        return Response(encode(body | self.facts), self.kind.status, headers, MEDIA_TYPE)


def problem_of(error: TidegateError) -> Problem:
    """Return the problem that reports an error of Tidegate over HTTP."""
    text = error.message + (f"; {error.fix}" if error.fix else "")
    facts: dict[str, Any] = {"code": error.code}
    if isinstance(error, ArgumentsError):
        return Problem("arguments", text, errors=[_field_path(error)] if error.path else (), **facts)
    if isinstance(error, KeyConflictError):
        return Problem("key-conflict", text, **facts)
    if isinstance(
        error,
        TaskNotFoundError
        | OperationNotFoundError
        | MapNotFoundError
        | DoubtNotFoundError
        | ApprovalNotFoundError
        | UnknownScheduleError,
    ):
        return Problem("not-found", text, **facts)
    if isinstance(error, UnknownFunctionError):
        return Problem("unknown-function", text, **facts)
    if isinstance(error, DataRemovedError):
        return Problem("removed", text, **facts)
    if isinstance(error, NotAcceptedError):
        return Problem("refused", text, **facts)
    if isinstance(error, OptionError | UsageError):
        return Problem("option", text, **facts)
    if isinstance(error, StoreBusyError):
        return Problem("store-busy", headers={"Retry-After": "1"}, **facts)
    if isinstance(error, StoreError):
        return Problem("store-unavailable", headers={"Retry-After": "2"}, **facts)
    if isinstance(error, SchemaError):
        return Problem("not-ready", **facts)
    return Problem("internal", **facts)


async def refuse(connection: Request | WebSocket, problem: Problem) -> Response | None:
    """Send a problem in response to a request, or to a WebSocket that is not open yet."""
    response = problem.response(connection)
    if isinstance(connection, Request):
        return response
    if "websocket.http.response" in connection.scope.get("extensions", {}):
        await connection.send_denial_response(response)
    else:
        await connection.close(1008, problem.slug)
    return None


def _field_path(error: ArgumentsError) -> dict[str, str]:
    return {"at": f"args.{error.path}", "detail": error.message}
