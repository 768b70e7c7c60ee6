"""The simulated provider as a process of its own."""

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager

import pytest
from provider_support import BODY

from tidegate.testing.provider import Ledger

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def process(*arguments):
    """Run the module, and give the process and the JSON line it printed."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidegate.testing.provider", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(20):
            yield running, json.loads(await running.stdout.readline() or b"null")
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_as_a_process_it_prints_its_url_and_stops_cleanly(http, tmp_path, number):
    path = tmp_path / "ledger.db"
    arguments = ["--rpm", "1", "--latency", "0.01", "--outage", "500:501:hang", "--ledger", str(path)]

    async with process(*arguments) as (running, ready):
        assert ready["pid"] == running.pid
        statuses = [
            (await http.post(f"{ready['url']}/chat/completions", content=BODY)).status_code for _ in range(2)
        ]
        os.kill(running.pid, number)
        _, errors = await running.communicate()

    assert (running.returncode, errors) == (0, b"")
    assert statuses == [200, 429]
    ledger = Ledger(path)
    assert ledger.summary().by_status == {"200": 1, "429": 1}
    ledger.close()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--outage", "5:1"], b"5:1"),
        (["--outage", "1:2:flood"], b"flood"),
        (["--overload", "2"], b"overload_probability"),
        (["--ledger", "/nowhere/at/all.db"], b"/nowhere/at/all.db"),
    ],
)
async def test_options_that_cannot_work_are_named_and_nothing_starts(arguments, complaint):
    async with process(*arguments) as (running, ready):
        _, errors = await running.communicate()

    assert ready is None
    assert running.returncode in (1, 2)
    assert complaint in errors
    assert b"Traceback" not in errors
