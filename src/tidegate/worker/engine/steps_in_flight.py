"""Waits for the steps in flight when their function fails, so that what they cost is not paid again."""

from __future__ import annotations

import asyncio
import time

from tidegate.context import RunControl

CHECK_SECONDS = 0.05
"""How often to check whether the steps have ended."""


async def wait_for_steps(control: RunControl) -> None:
    """Wait until the steps in flight of a failed function have ended, or the run is asked to stop.

    For example one of thirty steps under `asyncio.gather` has failed, and the others go on. If the run ended
    now, the next run would find them in doubt. Until then no step begins, except inside those in flight.
    """
    control.is_ending = True
    while _is_waiting(control):  # noqa: ASYNC110 - steps end in any thread
        await asyncio.sleep(CHECK_SECONDS)


def wait_for_steps_sync(control: RunControl) -> None:
    """Do the same for a plain function, whose threads may be in the middle of steps."""
    control.is_ending = True
    while _is_waiting(control):
        time.sleep(CHECK_SECONDS)


def _is_waiting(control: RunControl) -> bool:
    return control.stop is None and control.steps is not None and control.steps.waits.steps()[0] > 0
