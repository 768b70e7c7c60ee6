"""An application of which two versions run at once: `VERSION` in the environment, or the file `version`."""

from __future__ import annotations

import os
from pathlib import Path

from tidegate import Pool, Tidegate, Timings

OUT = Path(os.environ.get("OUT", "/nonexistent"))
INSTALLED = OUT / "version"
VERSION = os.environ.get("VERSION") or (INSTALLED.read_text() if INSTALLED.exists() else "old")

app = Tidegate(
    pools=[Pool(poll_interval=0.05)],
    timings=Timings(lease=3.0, beat=0.5, reap=0.5, promote=0.05, stop_grace=0.4, drain_grace=1.0),
)

if VERSION == "old":

    @app.task(name="greet")
    async def greet(name: str) -> str:
        return f"old {name}"

    @app.task(name="in_child")
    def in_child(name: str) -> str:
        return f"old {name}"

else:

    @app.task(name="greet")
    async def greet(name: str, loudness: int) -> str:  # type: ignore[misc]
        return f"new {name} {loudness}"

    @app.task(name="added")
    async def added() -> str:
        return "new"
