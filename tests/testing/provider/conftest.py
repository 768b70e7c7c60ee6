"""A simulated provider and a client."""

from contextlib import AsyncExitStack

import httpx2
import pytest

from tidegate.testing.provider import ProviderSettings, SimulatedProvider


@pytest.fixture
async def serve():
    """Start a provider with these settings, and stop it after the test."""
    async with AsyncExitStack() as stack:

        async def start(monotonic=None, **settings):
            clocks = {"monotonic": monotonic} if monotonic else {}
            return await stack.enter_async_context(SimulatedProvider(ProviderSettings(**settings), **clocks))

        yield start


@pytest.fixture
async def http():
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(timeout=10, trust_env=False, limits=limits) as client:
        yield client
