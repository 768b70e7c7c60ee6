"""Try an empty write to the store every tenth of a second, and record when it had to wait.

A process that is frozen while it holds the write lock prevents all other writes. That follows from one file
with one lock; but it is a fault of its own, during which no maintenance can run.
"""

from __future__ import annotations

import asyncio
import time

from chaos.faults import ChaosFaultKind
from harness.faults import FaultLog
from tidegate.store.protocol import Store

BLOCKED_SECONDS = 0.2
_PAUSE_SECONDS = 0.1
_NO_WORKER = "00000000-0000-0000-0000-000000000000"


async def monitor_writes(store: Store, fault_log: FaultLog) -> None:
    """Probe until cancelled. A block is in the journal while it lasts."""
    while True:
        began_at = time.time()
        write = asyncio.create_task(store.extend_leases([_NO_WORKER], 0.0), name="chaos probe")
        try:
            await asyncio.wait([write], timeout=BLOCKED_SECONDS)
            if not write.done():
                block = fault_log.record_start(ChaosFaultKind.BLOCKED, "", began_at=began_at)
                await asyncio.wait([write])
                block.ended_at = time.time()
                block.what = f"for {block.ended_at - began_at:.2f} s"
            write.exception()  # a store that refuses at once does not block
        finally:
            write.cancel()
        await asyncio.sleep(_PAUSE_SECONDS)
