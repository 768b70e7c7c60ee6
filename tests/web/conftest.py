"""Fixtures of the API's tests."""

from __future__ import annotations

import pytest
from web_support import declare

from tidegate import Tidegate


@pytest.fixture(autouse=True)
def functions(request: pytest.FixtureRequest) -> None:
    """Declare the tests' task functions on the application of a test that has one."""
    if "app" in request.fixturenames:
        declare(request.getfixturevalue("app"))


@pytest.fixture
def declared(app: Tidegate) -> Tidegate:
    return app
