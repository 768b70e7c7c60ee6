"""A run whose steps go to a port that records them, for tests of the room `steps/` alone."""

from __future__ import annotations

import pytest

import tidegate.steps.doing
from step_support import RecordingPort, context_with
from tidegate import Context


@pytest.fixture
def port() -> RecordingPort:
    return RecordingPort()


@pytest.fixture
def ctx(port: RecordingPort) -> Context:
    """The context of a run whose steps go to the port."""
    return context_with(port)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a step be tried again without a noticeable pause."""
    monkeypatch.setattr(tidegate.steps.doing, "FIRST_PAUSE_SECONDS", 0.001)
