"""Hello, queue: one task function, enqueued here, run by a worker in another terminal.

    tidegate worker app:app      # terminal 1, in this directory
    python app.py Ada Grace      # terminal 2

Kill the worker with `kill -9` whenever you like and start it again: every name is greeted.
"""

import asyncio
import sys

from tidegate import Tidegate

app = Tidegate()


@app.task
async def hello(name: str) -> str:
    await asyncio.sleep(1)  # replace this with slow work
    return f"hello {name}"


async def main(names: list[str]) -> None:
    handles = [await hello.enqueue(name) for name in names]  # when this returns, it is on disk
    for handle in handles:
        print(handle.id, await handle.result(timeout=60))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["world"]))
