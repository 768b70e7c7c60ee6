"""The schedules of the store under test."""

from __future__ import annotations

import pytest
from schedule_build import Schedules
from store_build import SettableClock

from tidegate.store.protocol import Store


@pytest.fixture
def schedules(store: Store, clock: SettableClock) -> Schedules:
    return Schedules(store, clock)
