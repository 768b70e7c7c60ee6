"""An application whose tasks end in every way, each followed by a task that notes the end."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tidegate import FinalState, Pool, Tidegate, Timings

OUT = Path(os.environ.get("OUT", "/nonexistent"))
app = Tidegate(
    pools=[Pool(concurrency=4, poll_interval=0.05)],
    timings=Timings(lease=2.0, beat=0.4, reap=0.4, promote=0.05, stop_grace=0.4, cancel_poll=0.05),
)


@app.task
async def report(final: FinalState) -> None:
    with (OUT / "ends").open("a") as file:
        file.write(json.dumps([final.task_id, final.state, final.reason]) + "\n")


@app.task(on_crash="fail", on_final=report)
def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(on_crash="fail", on_final=report)
async def kills_its_pool() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(on_final=report)
async def waits() -> None: ...
