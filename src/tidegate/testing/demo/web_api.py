"""The HTTP API of the demo's queue: `tidegate web`, and a token for whoever wants to look in meanwhile."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tidegate.domain.access import Role, digest_of, make_token
from tidegate.store.access import NewToken
from tidegate.store.protocol import Store
from tidegate.testing.demo.processes import DemoProcess

APPLICATION = "tidegate.testing.demo.recorded_app:app"


class DemoApi:
    """Serves the demo's queue at a free port of this machine, to whoever has the token.

    Args:
        directory: Of the demo.
        env: What the application is told, as its worker is.
        store: The queue, opened.
        token_seconds: How long the token is good.
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
        """Wait until it answers; return where, and a token that looks at everything and changes nothing.

        Raises:
            TidegateError: It did not start.
        """
        url = (await self._process.wait_for_log(r"the API answers at (\S+)"))[1]
        return (
            f"the API answers at {url} while this runs; look in, with a token for this one time:\n"
            f'curl -H "Authorization: Bearer {self._token}" {url}/queues'
        )

    async def __aenter__(self) -> Self:
        """Make the token, and start; it need not answer yet."""
        token_id = secrets.token_hex(5)
        self._token = make_token(token_id, secrets.token_urlsafe(32))
        await self._store.add_token(
            NewToken(token_id, digest_of(self._token), "demo", Role.VIEWER, None, self._token_seconds)
        )
        await self._process.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._process.stop()
