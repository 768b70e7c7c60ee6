"""Serves `tidegate.js` next to the API, so that the module finds the API by its own URL."""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from tidegate.web.api_context import ApiContext
from tidegate.web.protected_routes import ProtectedRouter, ResponseSpec

MODULE = "/api/v1/tidegate.js"
"""The path of the module. The module is public: it contains no data, and a page's `import` cannot send a
token."""

FILE = Path(__file__).parents[1] / "static" / "tidegate.js"


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the route."""
    source = FILE.read_bytes()
    headers = {
        "Cache-Control": "no-cache",
        "ETag": f'"{hashlib.blake2b(source, digest_size=12).hexdigest()}"',
        "X-Content-Type-Options": "nosniff",
    }

    @api.public_route(
        MODULE,
        {200: ResponseSpec("The module", str), 304: ResponseSpec("Not changed")},
        media_type="text/javascript",
    )
    async def browser_module(request: Request) -> Response:
        """Return the ES module that submits, follows and cancels tasks from a page."""
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(source, 200, headers, "text/javascript")
