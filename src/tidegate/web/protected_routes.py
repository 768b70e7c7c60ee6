"""Routes with access rules. A route without a rule cannot be registered, so access is denied by default."""

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
"""The parameter of every route that returns one page of a list."""
_SHOWN = 100

Endpoint = Callable[..., Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Who may use a route."""

    roles: frozenset[Role]
    all_tenants: bool = False
    """The route is about the whole installation, so a token of one tenant is refused."""

    def require_admitted(self, principal: Principal) -> None:
        """Raise `Problem` unless this principal may use the route.

        Raises:
            Problem: The principal's role or tenant does not allow this.
        """
        if principal.role not in self.roles:
            allowed = ", ".join(sorted(self.roles))
            raise Problem(
                "forbidden", f"the role {principal.role} may not do this; roles that may: {allowed}"
            )
        if self.all_tenants and principal.tenant is not None:
            raise Problem("whole-installation")


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """One response of a route, for the OpenAPI document."""

    description: str
    type: Any = None
    """The type of the body; None for no body."""
    headers: tuple[str, ...] = ()


def principal_of(connection: HTTPConnection) -> Principal:
    """Return the principal that `AccessMiddleware` found for the request."""
    principal: Principal = connection.scope["tidegate"]
    return principal


class ProtectedRouter:
    """Registers routes together with their access rules.

    Args:
        schema_of: Returns a reference to the schema of a type and adds the type to the OpenAPI document.
        router: Where the routes go.
    """

    def __init__(self, schema_of: Callable[[Any], dict[str, Any]], router: APIRouter) -> None:
        self.router = router
        self.access_rules: dict[tuple[str, str], AccessRule] = {}
        """By method (`WEBSOCKET` for sockets) and path."""
        self.open_routes: set[tuple[str, str]] = set()
        """Those that need no token, by method and path."""
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
        """Register a route. The first line of its docstring becomes its summary."""

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
                status_code=min(responses),  # for the document; endpoints return their own
                summary=summary.rstrip("."),
                description=" ".join(description.split()),
                operation_id=endpoint.__name__,
                responses=self._openapi_responses(responses, media_type),
                openapi_extra=self._openapi_extra(body, access_rules),
            )
            return endpoint

        return register

    def public_route(
        self,
        path: str,
        responses: Mapping[int, ResponseSpec],
        *,
        method: str = "GET",
        media_type: str = "application/json",
    ) -> Callable[[Endpoint], Endpoint]:
        """Register a route that needs no token.

        Such a route must not reveal anything about tasks, unless its path is a credential itself.
        """

        def register(endpoint: Endpoint) -> Endpoint:
            self.open_routes.add((method, path))
            self.router.add_api_route(
                path,
                endpoint,
                methods=[method],
                response_class=Response,
                response_model=None,
                status_code=min(responses),  # for the document; endpoints return their own
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
                "description": spec.description,
                "headers": {name: {"schema": {"type": "string"}} for name in spec.headers},
            }
            | ({"content": {media_type: {"schema": self._schema_of(spec.type)}}} if spec.type else {})
            for status, spec in responses.items()
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


def require_protected(routes: Iterable[BaseRoute], router: ProtectedRouter) -> None:
    """Raise `ConfigError` unless every route was registered with `router`.

    Raises:
        ConfigError: A route was not registered there, so it has no access rule.
    """
    paths = {path for _, path in (*router.access_rules, *router.open_routes)}
    for route in routes:
        path = getattr(route, "path", None)
        if path is not None and path not in paths:
            raise ConfigError(
                f"the route {path} has no access rule", fix="add it to your own application, not to the API"
            )


def _check_access(access_rules: AccessRule) -> Callable[[HTTPConnection], Awaitable[None]]:
    async def check_access(connection: HTTPConnection) -> None:
        access_rules.require_admitted(principal_of(connection))

    return check_access


def _route_class(access_rules: AccessRule) -> type[APIRoute]:
    """Return a route class that checks access before it reads the request; a dependency would be slower."""

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
    """Refuse an unknown filter. Ignoring it would return items that the client wanted to leave out."""
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        errors = [{"at": f"query.{name[:_SHOWN]}", "detail": "no such parameter"} for name in unknown[:10]]
        raise Problem("parameters", f"the parameters here are {', '.join(sorted(known))}", errors=errors)
