"""Handle failures: rules by error, a task that asks for another run, files that are written whole.

    tidegate worker app:app      # terminal 1, in this directory
    python app.py                # terminal 2

Afterwards: `tidegate tasks ls`, `tidegate tasks show ID` for a task's history, `tidegate dead ls`.
"""

import asyncio
from pathlib import Path

from tidegate import Context, Fixed, TaskFailedError, Tidegate, discard, on

app = Tidegate()


class ShopBusyError(Exception):
    """The shop's server is overloaded: worth another try, soon and often."""


class NoSuchOrderError(Exception):
    """Trying again cannot help. The task is kept as a dead letter."""


@app.task(
    max_attempts=5,
    backoff=Fixed(3),
    retry=[on(ShopBusyError, wait=1, attempts=3), discard(NoSuchOrderError)],
)
async def fetch_order(ctx: Context, number: int) -> str:
    if number < 0:
        raise NoSuchOrderError(number)
    if ctx.attempt == 1:  # the first attempt always meets a busy shop
        raise ShopBusyError("try again")
    return f"order {number}, fetched at attempt {ctx.attempt}"


@app.task(total_timeout="10m")
async def wait_for_export(ctx: Context, ready_at_look: int = 3) -> str:
    if ctx.run < ready_at_look:
        ctx.retry(
            after=1, reason="the export is not ready", charge=False
        )  # gives the slot back; never returns
    return f"the export was ready at look {ctx.run}"


@app.task
async def write_report(ctx: Context, target: str, lines: int = 20) -> str:
    draft = ctx.scratch() / "report.txt"  # of this run alone, removed afterwards, also after a kill
    with draft.open("w") as file:
        for line in range(1, lines + 1):
            ctx.progress(line, lines, note="writing")
            file.write(f"line {line}\n")
            await asyncio.sleep(0.05)
    return str(ctx.publish(target, draft))  # whole or not at all


async def main(report: str) -> None:
    handles = [
        await fetch_order.enqueue(7),
        await fetch_order.enqueue(-1),
        await wait_for_export.enqueue(),
        await write_report.enqueue(report),
    ]
    for handle in handles:
        try:
            print(handle.id, await handle.result(timeout=120))
        except TaskFailedError as error:
            print(handle.id, error)
        for entry in await handle.history():
            if entry.kind == "run":
                print(f"    run {entry.run}: {entry.outcome} {entry.why}")


if __name__ == "__main__":
    asyncio.run(main(str(Path(".tidegate/report.txt").resolve())))
