"""Settings of the simulated provider, its own control routes, and what it imports."""

import math
import subprocess
import sys

import pytest
from provider_support import chat, control

from tidegate.errors import OptionError
from tidegate.testing.provider import Outage, ProviderSettings

pytestmark = pytest.mark.anyio


async def test_settings_can_change_while_running(serve, http):
    provider = await serve()

    response = await control(
        http,
        provider,
        "settings",
        {
            "requests_per_minute": 1,
            "window_seconds": 30,
            "outages": [{"start_seconds": 900, "end_seconds": 901, "kind": "hang"}],
        },
    )

    assert response.json() == {"changed": ["outages", "requests_per_minute", "window_seconds"]}
    assert provider.settings.outages == (Outage(900, 901, "hang"),)
    assert [(await chat(http, provider)).status_code for _ in range(2)] == [200, 429]
    await provider.change(requests_per_minute=None)
    assert (await chat(http, provider)).status_code == 200


async def test_a_changed_limit_does_not_refill_the_bucket(serve, http):
    provider = await serve(monotonic=lambda: 0.0, requests_per_minute=1)
    await chat(http, provider)

    await provider.change(requests_per_minute=100)

    assert (await chat(http, provider)).status_code == 429


async def test_reset_starts_over(serve, http):
    provider = await serve(monotonic=lambda: 0.0, requests_per_minute=1, budget_calls=1)
    await chat(http, provider)
    await control(http, provider, "settings", {"latency_seconds": 0.001})
    await control(http, provider, "outage", {"kind": "503"})

    assert (await control(http, provider, "reset", {})).json() == {"reset": True}

    assert provider.settings.latency_seconds == 0
    assert provider.ledger.count() == 0
    assert (await chat(http, provider)).status_code == 200


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("settings", {"no_such": 1}),
        ("settings", {"port": 1}),
        ("settings", {"latency_seconds": "slow"}),
        ("settings", {"latency_seconds": -1}),
        ("settings", {"outages": [{"start_seconds": 2, "end_seconds": 1}]}),
        ("settings", [1]),
        ("outage", {"kind": "flood"}),
        ("outage", {"kind": "503", "seconds": 0}),
        ("outage", {"kind": "refuse"}),
        ("outage", {}),
    ],
)
async def test_a_control_request_that_cannot_work_is_a_400_and_changes_nothing(serve, http, route, body):
    provider = await serve()

    refused = await control(http, provider, route, body)

    assert refused.status_code == 400
    assert refused.json()["error"]["message"]
    assert provider.settings == ProviderSettings()
    assert (await chat(http, provider)).status_code == 200


@pytest.mark.parametrize(
    "settings",
    [
        {"requests_per_minute": 0},
        {"window_seconds": 0},
        {"latency_jitter": 1.5},
        {"overload_probability": -0.1},
        {"overload_probability": math.nan},
        {"overload_statuses": (500,)},
        {"overload_statuses": ()},
        {"tokens_per_second": 0},
    ],
)
async def test_settings_that_cannot_work_are_refused_at_once(settings):
    with pytest.raises(OptionError):
        ProviderSettings(**settings)


def test_importing_tidegate_loads_nothing_of_the_provider():
    code = "import sys, tidegate, tidegate.testing; print(sorted({'uvicorn', 'starlette', 'httpx2'} & set(sys.modules)))"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=True)

    assert loaded.stdout.strip() == b"[]"


def test_a_missing_server_package_is_named_with_the_fix():
    code = "import sys; sys.modules['uvicorn'] = None; import tidegate.testing.provider"

    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=False)

    assert b"needs uvicorn \xe2\x86\x92 pip install 'tidegate[testing]'" in failed.stderr
