"""`create_app` builds the HTTP API of one application as an ASGI application."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from tidegate.app import Tidegate
from tidegate.errors import TidegateError
from tidegate.internals import core_of
from tidegate.store.protocol import Store
from tidegate.web.access_middleware import AccessMiddleware
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.openapi import Schemas, document
from tidegate.web.problems import Problem, problem_of, refuse
from tidegate.web.protected_routes import (
    ALL_ROLES,
    AccessRule,
    ProtectedRouter,
    ResponseSpec,
    require_protected,
)
from tidegate.web.routes import (
    alerts,
    approvals,
    autoscale,
    browser_module,
    controls,
    dead_letters,
    doubts,
    events,
    failures,
    health,
    maps,
    metrics,
    operations,
    overview,
    pauses,
    retention,
    schedules,
    statistics,
    submit,
    task_events,
    tasks,
)
from tidegate.web.settings import WebSettings
from tidegate.web.tokens import Authenticate, TokenAuthenticator
from tidegate.worker.maintenance.alert_jobs import AlertJobs
from tidegate.worker.maintenance.job import MaintenanceJob

log = logging.getLogger("tidegate.web")

_ROUTES = (
    submit,
    tasks,
    task_events,
    events,
    dead_letters,
    doubts,
    approvals,
    overview,
    statistics,
    failures,
    pauses,
    controls,
    schedules,
    operations,
    maps,
    alerts,
    retention,
    metrics,
    autoscale,
    health,
    browser_module,
)

_EXPOSED = ("Location", "Retry-After", "ETag", "Preference-Applied")


def create_app(
    app: Tidegate, *, settings: WebSettings | None = None, authenticate: Authenticate | None = None
) -> FastAPI:
    """Return the HTTP API of an application. Serve it alone or mount it into another ASGI application.

    Every route needs a token whose role allows it. A tenant's token gives access to that tenant's tasks only.

    Args:
        app: The application whose task functions may be submitted.
        settings: Hosts, origins and limits.
        authenticate: Replaces tokens: returns the `Principal` of a request, or None to refuse it. Called
            again while a stream is open. If it uses cookies, allow as few `origins` as possible.

    Example:
        >>> api = create_app(app, settings=WebSettings(hosts=("api.example.com",)))  # doctest: +SKIP
        >>> site.mount("/tidegate", api)  # doctest: +SKIP
    """
    settings = settings or WebSettings()
    authenticate = authenticate or TokenAuthenticator(core_of(app).opened_store, settings)
    context, schemas = ApiContext(core_of(app), settings, authenticate), Schemas()
    api = _Api(
        settings,
        title="Tidegate",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        exception_handlers=_HANDLERS,
        middleware=[Middleware(AccessMiddleware, authenticate=authenticate, settings=settings)],
    )
    # Not a router of its own, included afterwards: FastAPI would analyse each endpoint a second time.
    protected = ProtectedRouter(schemas.named, api.router)
    for routes in _ROUTES:
        routes.add_routes(protected, context)
    api.state.context = context
    api.state.protected = protected

    @protected.route(
        "GET", "/api/v1/openapi.json", AccessRule(ALL_ROLES), responses={200: ResponseSpec("The document")}
    )
    async def openapi_document(request: Request) -> Response:
        """Return this API's OpenAPI document."""
        return json_response(api.openapi())

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            api.openapi_schema = document(api, schemas)
        return api.openapi_schema

    api.openapi = openapi  # type: ignore[method-assign]
    return api


class _Api(FastAPI):
    """Adds the CORS headers to every response.

    Starlette sends a 500 outside of the middleware that an application adds, so the headers are added here.

    Args:
        settings: The allowed origins.
        options: Options of FastAPI.
    """

    def __init__(self, settings: WebSettings, **options: Any) -> None:
        super().__init__(**options)
        self._origins = settings.origins

    def build_middleware_stack(self) -> ASGIApp:
        """Return FastAPI's middleware stack, inside the CORS middleware."""
        stack = super().build_middleware_stack()
        if not self._origins:
            return stack
        return CORSMiddleware(
            stack,
            allow_origins=self._origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "Prefer"],
            expose_headers=_EXPOSED,
        )


@contextlib.asynccontextmanager
async def _lifespan(api: FastAPI) -> AsyncIterator[None]:
    require_protected(api.routes, api.state.protected)
    context: ApiContext = api.state.context
    context.shutdown.reset()
    alert_jobs = _alert_jobs(await context.store(), context.settings)
    for job in alert_jobs:
        job.start()
    try:
        yield
    finally:
        context.shutdown.trigger()
        for job in alert_jobs:
            await job.stop()
        await context.background.close()
        await context.audit.close()
        context.offload.close()


def _alert_jobs(store: Store, settings: WebSettings) -> Sequence[MaintenanceJob]:
    if settings.alerts is None or not settings.alerts.is_enabled:
        return ()
    return AlertJobs(store, settings.alerts, kind="web", rng=random.Random()).jobs


# --- error responses -----------------------------------------------------------------------------------


async def _problem(connection: Request | WebSocket, problem: Problem) -> Response | None:
    return await refuse(connection, problem)


async def _error(connection: Request | WebSocket, error: TidegateError) -> Response | None:
    return await refuse(connection, problem_of(error))


async def _invalid_parameters(connection: Request | WebSocket, error: Any) -> Response | None:
    field_errors = [
        {"at": ".".join(str(part) for part in field_error["loc"]), "detail": str(field_error["msg"])}
        for field_error in error.errors()
    ]
    detail = "; ".join(
        f"{field_error['at'].rpartition('.')[2]}: {field_error['detail']}" for field_error in field_errors
    )
    return await refuse(connection, Problem("parameters", detail, errors=field_errors))


async def _http(request: Request, error: HTTPException) -> Response | None:
    slug = "method" if error.status_code == 405 else "not-found"
    return await refuse(request, Problem(slug, headers=error.headers))


async def _internal(request: Request, error: Exception) -> Response | None:
    if isinstance(error, ClientDisconnect):
        log.info("%s %s: the client disconnected before it sent all", request.method, request.url.path)
        return Response(status_code=499)  # the client is gone and does not read this response
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return await refuse(request, Problem("internal"))


_HANDLERS: Mapping[Any, Any] = {
    Problem: _problem,
    TidegateError: _error,
    RequestValidationError: _invalid_parameters,
    WebSocketRequestValidationError: _invalid_parameters,
    HTTPException: _http,
    ClientDisconnect: _internal,
    Exception: _internal,
}
