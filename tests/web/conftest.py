"""Fixtures of the API's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
from web_support import declare, direct

from support import make_app
from tidegate import Tidegate


@pytest.fixture(autouse=True)
def functions(request: pytest.FixtureRequest) -> None:
    """Declare the tests' task functions on the application of a test that has one."""
    if "app" in request.fixturenames:
        declare(request.getfixturevalue("app"))


@pytest.fixture(scope="module")
async def shared_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an open API that the tests of a file share, for requests that change nothing that others see.

    To analyse the routes of an API takes as long as dozens of requests.
    """
    app = make_app(tmp_path_factory.mktemp("shared"))
    declare(app)
    async with direct(app) as client:
        yield client
    await app.aclose()


@pytest.fixture
def declared(app: Tidegate) -> Tidegate:
    return app
