"""The pytest plugin: the fixture `tidegate_kit`, and the settings that name the application under test.

pytest imports this module in every project that has Tidegate installed. So it imports nothing else until a
test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidegate.app import Tidegate
    from tidegate.testing.kit.kit import Kit

_MODES = "manual, inline or real"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings of the plugin."""
    parser.addini("tidegate_app", "the application under test, as module:attribute")
    parser.addini("tidegate_mode", f"how its tasks run in tests: {_MODES}", default="manual")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker of the plugin."""
    config.addinivalue_line(
        "markers",
        f"tidegate(mode='manual', raise_on_failure=False): how the tasks of this test run: {_MODES}",
    )


@pytest.fixture
def tidegate_app(request: pytest.FixtureRequest) -> Tidegate:
    """The application under test. Override this fixture, or set `tidegate_app` in the configuration."""
    reference = str(request.config.getini("tidegate_app"))
    if not reference:
        raise pytest.UsageError(
            "tidegate_kit does not know the application under test\n"
            '→ write tidegate_app = "shop.tasks:app" into [tool.pytest.ini_options] or pytest.ini, '
            "or a fixture tidegate_app that returns it"
        )
    from tidegate.worker.application import load_application

    app: Tidegate = load_application(reference)
    return app


@pytest.fixture
def tidegate_kit(request: pytest.FixtureRequest, tidegate_app: Tidegate) -> Iterator[Kit]:
    """A `tidegate.testing.Kit` for one test: the application has its own store and a clock to advance."""
    from tidegate.testing.kit.kit import Kit

    marker = request.node.get_closest_marker("tidegate")
    options = {"mode": request.config.getini("tidegate_mode"), **({} if marker is None else marker.kwargs)}
    with Kit(tidegate_app, **options) as kit:
        yield kit
