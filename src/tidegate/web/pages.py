"""A directory of static pages, served beside the API from one address: `tidegate web --pages DIR`.

Pages need no token, as `tidegate.js` needs none: they load before anybody can send one. The API's own paths
come first, so no file can take the place of a route.
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
from tidegate.web.access_middleware import demand_host, known_hosts
from tidegate.web.problems import Problem, refuse
from tidegate.web.settings import WebSettings

API = "/api/"
"""Every path below is the API's, also one that it does not know."""
INDEX = "index.html"
_PROJECT_FILES = ("tidegate.toml", "pyproject.toml")
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "base-uri 'self'; frame-ancestors 'self'; object-src 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""A page shares its origin with the API, so no other site may put it into a frame. Where its scripts come
from is the page's own matter: it can say more in a `<meta>` element."""
_NOT_FOUND = "<!doctype html>\n<title>Not found</title>\n<h1>Not found</h1>\n"


def demand_pages(directory: Path, database: Path | None) -> None:
    """Return if a directory may be served to everybody.

    Args:
        directory: Of the pages.
        database: The SQLite file of the application, if it has one.

    Raises:
        ConfigError: It is none, or it holds the project or the database.
    """
    if not directory.is_dir():
        raise ConfigError(f"there is no directory {directory}", fix="name the directory of the pages")
    found = [name for name in _PROJECT_FILES if (directory / name).exists()]
    if database is not None and database.resolve().is_relative_to(directory.resolve()):
        found.append(database.name)
    if found:
        raise ConfigError(
            f"the files of {directory} would be shown to everybody, {found[0]} among them",
            fix="put the pages into a directory of their own",
        )


class Pages:
    """Answers what is no path of the API with files of a directory.

    Files and directories whose names begin with a dot are not there, nor is what a link leads to elsewhere.

    Args:
        api: The API.
        directory: Of the pages; `index.html` is that of `/`, and `404.html` answers for what is missing.
        settings: Names the hosts a request may be for.
    """

    def __init__(self, api: FastAPI, directory: Path, settings: WebSettings) -> None:
        self._api: ASGIApp = api
        self._routes = api.router.routes
        self._directory = directory
        self._files = StaticFiles(directory=directory, html=True)
        self._hosts = known_hosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what the API answers; answer the rest."""
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
            demand_host(request, self._hosts)
        except Problem as problem:
            return await refuse(request, problem)
        try:
            response = await self._file(request.scope)
        except (HTTPException, OSError, ValueError):  # also a file that this process may not read
            response = HTMLResponse(_NOT_FOUND, 404)
        response.headers.update(_HEADERS)
        return response

    async def _file(self, scope: Scope) -> Response:
        path = self._files.get_path(scope)
        if any(part.startswith(".") for part in Path(path).parts if part != "."):
            raise HTTPException(404)
        return await self._files.get_response(path, scope)
