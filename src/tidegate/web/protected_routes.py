"""Routes that say who may use them. One that does not cannot be registered: what is not allowed is denied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tidegate.domain.access import Principal, Role
from tidegate.errors import ConfigError
from tidegate.web.problems import MEDIA_TYPE, Problem

ALL_ROLES = frozenset(Role)
READERS = frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN})
SUBMITTERS = frozenset({Role.SUBMITTER, Role.OPERATOR, Role.ADMIN})
OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN})
ADMINS = frozenset({Role.ADMIN})

_PAGE_PARAMETER = "limit"
"""The parameter that routes have which return a page of a list."""
_SHOWN = 100

Endpoint = Callable[..., Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class AccessRule:
    """What a route asks of whoever uses it."""

    roles: frozenset[Role]
    all_tenants: bool = False
    """It is about the whole installation: a tenant's token will not do."""

    def require_admitted(self, principal: Principal) -> None:
        """Return if this principal may use the route.

        Raises:
            Problem: The role or the tenant forbids it.
        """
        if principal.role not in self.roles:
            allowed = ", ".join(sorted(self.roles))
            raise Problem("forbidden", f"a {principal.role} may not do this; roles that may: {allowed}")
        if self.all_tenants and principal.tenant is not None:
            raise Problem("whole-installation")


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """One answer of a route, for the OpenAPI document."""

    description: str
    type: Any = None
    """What its body holds; None for no body."""
    headers: tuple[str, ...] = ()


def principal_of(connection: HTTPConnection) -> Principal:
    """Return who a request comes from, as the door found out."""
    principal: Principal = connection.scope["tidegate"]
    return principal


class ProtectedRouter:
    """Registers routes with what they need.

    Args:
        schema_of: Gives the schema of a type by reference and remembers it for the document.
    """

    def __init__(self, schema_of: Callable[[Any], dict[str, Any]]) -> None:
        self.router = APIRouter(redirect_slashes=False)
        self.access_rules: dict[tuple[str, str], AccessRule] = {}
        """By method (`WEBSOCKET` for sockets) and path."""
        self.open_paths: set[str] = set()
        self._schema_of = schema_of

    def route(
        self,
        method: str,
        path: str,
        access_rules: AccessRule,
        *,
        responses: Mapping[int, ResponseSpec],
        body: Any = None,
        media_type: str = "application/json",
    ) -> Callable[[Endpoint], Endpoint]:
        """Register a route; its docstring's first line is its summary."""

        def register(endpoint: Endpoint) -> Endpoint:
            self.access_rules[method, path] = access_rules
            summary, _, description = (endpoint.__doc__ or "").strip().partition("\n")
            self.router.add_api_route(
                path,
                endpoint,
                methods=[method],
                route_class_override=_route_class(access_rules),
                response_class=Response,
                response_model=None,
                summary=summary.rstrip("."),
                description=" ".join(description.split()),
                operation_id=endpoint.__name__,
                responses=self._openapi_responses(responses, media_type),
                openapi_extra=self._openapi_extra(body, access_rules),
            )
            return endpoint

        return register

    def public_route(
        self, path: str, responses: Mapping[int, ResponseSpec], *, media_type: str = "application/json"
    ) -> Callable[[Endpoint], Endpoint]:
        """Register a GET that needs no token: it must tell nothing of anybody's tasks."""

        def register(endpoint: Endpoint) -> Endpoint:
            self.open_paths.add(path)
            self.router.add_api_route(
                path,
                endpoint,
                methods=["GET"],
                response_class=Response,
                response_model=None,
                summary=(endpoint.__doc__ or "").strip().partition("\n")[0].rstrip("."),
                operation_id=endpoint.__name__,
                responses=self._openapi_responses(responses, media_type),
                openapi_extra={"security": []},
            )
            return endpoint

        return register

    def websocket_route(
        self, path: str, access_rules: AccessRule
    ) -> Callable[[Callable[..., Awaitable[None]]], Any]:
        """Register a WebSocket."""

        def register(endpoint: Callable[..., Awaitable[None]]) -> Any:
            self.access_rules["WEBSOCKET", path] = access_rules
            self.router.add_api_websocket_route(
                path, endpoint, dependencies=[Depends(_check_access(access_rules))]
            )
            return endpoint

        return register

    def _openapi_responses(
        self, responses: Mapping[int, ResponseSpec], media_type: str
    ) -> dict[int | str, dict[str, Any]]:
        listed: dict[int | str, dict[str, Any]] = {
            status: {
                "description": answer.description,
                "headers": {name: {"schema": {"type": "string"}} for name in answer.headers},
            }
            | ({"content": {media_type: {"schema": self._schema_of(answer.type)}}} if answer.type else {})
            for status, answer in responses.items()
        }
        problem = {"$ref": "#/components/schemas/ProblemDetails"}
        listed["default"] = {
            "description": "Refused: see the type of the problem",
            "content": {MEDIA_TYPE: {"schema": problem}},
        }
        return listed

    def _openapi_extra(self, body: Any, access_rules: AccessRule) -> dict[str, Any]:
        extra: dict[str, Any] = {
            "x-roles": sorted(access_rules.roles),
            "x-whole-installation": access_rules.all_tenants,
        }
        if body is not None:
            schema = self._schema_of(body)
            extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        return extra


def require_protected(routes: Iterable[BaseRoute], check_then_handle: ProtectedRouter) -> None:
    """Return if every route of an application was registered here.

    Raises:
        ConfigError: One was not, so nothing says who may use it.
    """
    paths = {path for _, path in check_then_handle.access_rules} | check_then_handle.open_paths
    for route in routes:
        path = getattr(route, "path", None)
        if path is not None and path not in paths:
            raise ConfigError(f"nothing says who may use {path}", fix="mount other routes beside the API")


def _check_access(access_rules: AccessRule) -> Callable[[HTTPConnection], Awaitable[None]]:
    async def check_access(connection: HTTPConnection) -> None:
        access_rules.require_admitted(principal_of(connection))

    return check_access


def _route_class(access_rules: AccessRule) -> type[APIRoute]:
    """Return a kind of route that asks before it reads anything else; a dependency would cost more."""

    class ProtectedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handler = super().get_route_handler()
            known = {parameter.alias for parameter in self.dependant.query_params}

            async def check_then_handle(request: Request) -> Response:
                access_rules.require_admitted(principal_of(request))
                if _PAGE_PARAMETER in known:
                    _require_known_parameters(request, known)
                return await handler(request)

            return check_then_handle

    return ProtectedRoute


def _require_known_parameters(request: Request, known: AbstractSet[str]) -> None:
    """Refuse a filter that does not exist: without it the page would hold what was to be left out."""
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        faults = [{"at": f"query.{name[:_SHOWN]}", "detail": "no such parameter"} for name in unknown[:10]]
        raise Problem("parameters", f"the parameters here are {', '.join(sorted(known))}", errors=faults)
