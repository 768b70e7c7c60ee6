"""Serves a directory of static pages together with the API: `tidegate web --pages DIR`.

Pages need no token, like `tidegate.js`: a browser loads them before it can send one. The API's own paths
come first, so a file cannot replace a route.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.errors import ConfigError
from tidegate.web.access_middleware import known_hosts, require_host
from tidegate.web.problems import Problem, refuse
from tidegate.web.settings import WebSettings

API = "/api/"
"""Every path below this one belongs to the API, even if it is unknown."""
INDEX = "index.html"
_PROJECT_FILES = ("tidegate.toml", "pyproject.toml")
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "base-uri 'self'; frame-ancestors 'self'; object-src 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""A page shares its origin with the API, so no other site may embed it in a frame. A page can restrict its
own scripts with a `<meta>` element."""
_NOT_FOUND = "<!doctype html>\n<title>Not found</title>\n<h1>Not found</h1>\n"


def require_servable(directory: Path, database: Path | None) -> None:
    """Raise `ConfigError` unless the directory may be served to everybody.

    Args:
        directory: The directory of the pages.
        database: The SQLite file of the application, if it has one.

    Raises:
        ConfigError: The directory does not exist, or it holds the project or the database.
    """
    if not directory.is_dir():
        raise ConfigError(f"there is no directory {directory}", fix="give the directory of the pages")
    found = [name for name in _PROJECT_FILES if (directory / name).exists()]
    if database is not None and database.resolve().is_relative_to(directory.resolve()):
        found.append(database.name)
    if found:
        raise ConfigError(
            f"everybody could read the files in {directory}, also {found[0]}",
            fix="put the pages into a directory of their own",
        )


class Pages:
    """Serves files of a directory for every path that is not one of the API.

    Names that begin with a dot, and links that lead out of the directory, are not served.

    Args:
        api: The API.
        directory: The directory of the pages. `index.html` is the page of `/`; `404.html` is sent for missing
            files.
        settings: Names the hosts that requests may use.
    """

    def __init__(self, api: FastAPI, directory: Path, settings: WebSettings) -> None:
        self._api: ASGIApp = api
        self._routes = api.router.routes
        self._directory = directory
        self._files = StaticFiles(directory=directory, html=True)
        self._hosts = known_hosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass requests for the API on; serve a file for the others."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or self._is_of_api(scope):
            await self._api(scope, receive, send)
            return
        response = await self._response(Request(scope, receive))
        if response is not None:
            await response(scope, receive, send)

    def _is_of_api(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if path == "/":
            return not (self._directory / INDEX).is_file()
        return path.startswith(API) or any(
            route.matches(scope)[0] is not Match.NONE for route in self._routes
        )

    async def _response(self, request: Request) -> Response | None:
        try:
            require_host(request, self._hosts)
        except Problem as problem:
            return await refuse(request, problem)
        try:
            response = await self._file(request.scope)
        except (HTTPException, OSError, ValueError):  # this also covers a file that this process may not read
            response = HTMLResponse(_NOT_FOUND, 404)
        response.headers.update(_HEADERS)
        return response

    async def _file(self, scope: Scope) -> Response:
        path = self._files.get_path(scope)
        if any(part.startswith(".") for part in Path(path).parts if part != "."):
            raise HTTPException(404)
        return await self._files.get_response(path, scope)
