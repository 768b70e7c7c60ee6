"""Serve the HTTP API of the demo's queue with `tidegate web`, and create a token for it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tidegate.domain.access import Role, digest_of, make_token
from tidegate.store.access import NewToken
from tidegate.store.protocol import Store
from tidegate.testing.demo.processes import DemoProcess

APPLICATION = "tidegate.testing.demo.application:app"


class DemoApi:
    """Serves the demo's queue on a free local port. Requests need the token.

    Args:
        directory: The directory of the demo.
        env: Environment variables for the application, the same as for the worker.
        store: The open store of the queue.
        token_seconds: How long the token is valid.
    """

    def __init__(
        self, directory: Path, env: Mapping[str, str], *, store: Store, token_seconds: float
    ) -> None:
        arguments = ["-m", "tidegate.cli", "web", APPLICATION, "--port", "0"]
        self._process = DemoProcess("web", arguments, directory, env)
        self._store = store
        self._token_seconds = token_seconds
        self._token = ""

    async def wait_for_address(self) -> str:
        """Wait until the API is served. Return a text with the URL of the API and a read-only token.

        Raises:
            TidegateError: The server did not start.
        """
        url = (await self._process.wait_for_log(r"the API answers at (\S+)"))[1]
        return (
            f"the API answers at {url} while the demo runs; try it with this token:\n"
            f'curl -H "Authorization: Bearer {self._token}" {url}/queues'
        )

    async def __aenter__(self) -> Self:
        """Create the token and start the server, without waiting for it."""
        token_id = secrets.token_hex(5)
        self._token = make_token(token_id, secrets.token_urlsafe(32))
        await self._store.add_token(
            NewToken(token_id, digest_of(self._token), "demo", Role.VIEWER, None, self._token_seconds)
        )
        await self._process.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._process.stop()
