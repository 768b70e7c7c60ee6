"""Scripts: a task's arguments say what its function does, one line for each run.

So a failing history is easy to read, a task does the same in any order of events, and the checks know how it
may end:

    ok 1.5            work for this many seconds, then return
    progress 2        the same, reporting progress
    transient 0.1     raise Transient after this many seconds
    permanent 0.1     raise Permanent
    unknown 0.1       raise an error that no rule classifies
    forbidden 0.1     raise a KeyError, which one function of the simulation discards
    network 0.1       raise a ConnectionError, for which one function of the simulation has a rule
    wait 3            raise RetryAfter(3)
    overrun           run until stopped
    swallow 4         when stopped, run on for this many seconds, then return a result
    again 2           ctx.retry(after=2), charged
    free 2            ctx.retry(after=2, charge=False)
    steps 0.5         do three steps at the same time, the longest of this many seconds
    ask 0.5           the same, but no step in doubt is repeated without a person
    nap 6             sleep for this many seconds by `ctx.sleep`, which suspends the task
    gather 3          enqueue this many children, and wait for them by `ctx.gather`
    event             wait for the event of the task by `ctx.wait_event`

The last line is that of all further runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from harness.record import ScriptedEnd
from harness.relations import FAILED, WaitNote, event_name
from harness.steps import STEP, CallNote
from tidegate.context import Context
from tidegate.context.waits import SUSPEND_SECONDS
from tidegate.domain.failure import Reason
from tidegate.domain.final_result import OtherTask
from tidegate.store.rows import NewTask
from tidegate.verdicts import Permanent, RetryAfter, Transient

SWALLOW_LEASES = 0.4
"""The longest time that a function runs on after it was asked to stop, in leases."""
_PROGRESS_STEPS = 3
_STEPS = 3
_LONG = 10_000.0

Action = Callable[[Context, float], Awaitable[None]]


class MeaninglessError(Exception):
    """An error that no rule classifies."""


# --- what a script says --------------------------------------------------------------------------------


def make_script(rng: random.Random, lease: float) -> list[str]:
    """Return what one task does, run by run. The last line is one that lets it end."""
    lines = [_line(rng, lease, _LINES) for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 3)))]
    return [*lines, _line(rng, lease, _LAST_LINES)]


_LINES = (
    "ok", "transient", "transient", "unknown", "network", "forbidden", "wait", "overrun", "swallow", "again",
    "free",
)  # fmt: skip
_LAST_LINES = (
    "ok", "ok", "ok", "ok", "long", "long", "progress", "progress", "transient", "permanent", "swallow",
    "steps", "steps", "ask", "nap", "gather", "event", "event",
)  # fmt: skip


def _line(rng: random.Random, lease: float, words: Sequence[str]) -> str:
    word = rng.choice(words)
    if word == "overrun":
        return word
    if word == "long":
        return f"ok {lease * rng.uniform(1.0, 3.0):.2f}"
    longest = {
        "steps": 1.5,
        "ask": 0.5,
        "progress": 1.5,
        "wait": 1.5,
        "again": 1.0,
        "free": 1.0,
        "swallow": SWALLOW_LEASES,
    }.get(word, 0.3)
    if word == "event":
        return word
    if word == "gather":
        return f"gather {rng.randint(1, 3)}"
    if word == "nap":
        return f"nap {SUSPEND_SECONDS + lease * rng.random():.2f}"
    return f"{word} {lease * longest * rng.random():.2f}"


_DEAD_REASONS: Mapping[str, Reason] = {
    "permanent": Reason.REJECTED,
    "network": Reason.NETWORK,
    "overrun": Reason.TIMEOUT,
    "wait": Reason.RATE_LIMIT,
}
"""What a task dies of whose runs end like this too often. Everything else is an error of no known reason."""
_SUCCESSES = frozenset({"ok", "progress", "swallow", "steps", "ask", "nap", "gather", "event"})


def scripted_end(script: Sequence[str], max_attempts: int) -> ScriptedEnd:
    """Return how a task with this script may end.

    Args:
        script: What it does, run by run.
        max_attempts: Charged runs after which it is dead; 1 if some rule may end it earlier.
    """
    words = [line.partition(" ")[0] for line in script]
    failures = [word for word in words if word not in _SUCCESSES]
    is_harmless = len(failures) < max_attempts and words[-1] in _SUCCESSES and "permanent" not in words
    reasons = set() if is_harmless else {_DEAD_REASONS.get(word, Reason.UNKNOWN) for word in failures}
    if "ask" in words:
        reasons.add(Reason.IN_DOUBT)
    return ScriptedEnd(may_succeed=len(failures) < len(words), dead_reasons=frozenset(reasons))


def script_of(task: NewTask) -> list[str]:
    """Return the script of a task; empty if its function has none."""
    script: list[str] = msgspec.json.decode(task.args)["k"].get("script", [])
    return script


# --- doing it ------------------------------------------------------------------------------------------


class ScriptHost(Protocol):
    """What a driver does for a script."""

    def note_call(self, note: CallNote) -> None:
        """Take a note of a call of a step."""

    def note_wait(self, note: WaitNote) -> None:
        """Take a note of what a wait returned."""

    async def enqueue_children(self, context: Context, count: int) -> Sequence[OtherTask[list[int]]]:
        """Enqueue this many children of a task, each under its `child_key`. Each returns its number and run."""


async def run_line(context: Context, script: Sequence[str], host: ScriptHost) -> None:
    """Do this run's line of a script.

    Args:
        context: The run.
        script: What the task does, run by run.
        host: What the driver does for it.
    """
    word, _, seconds = script[min(context.run, len(script)) - 1].partition(" ")
    if word in {"steps", "ask"}:
        await _do_steps(context, float(seconds), host.note_call, asks=word == "ask")
    elif word == "gather":
        await _gather(context, int(seconds), host)
    elif word == "event":
        value = await context.wait_event(event_name(context.task_id))
        host.note_wait(WaitNote(context.task_id, context.run, "event", value))
    else:
        await _ACTIONS[word](context, float(seconds or 0))


async def _do_steps(
    context: Context, seconds: float, note_call: Callable[[CallNote], None], *, asks: bool
) -> None:
    def note(event: Literal["sent", "answered", "kept"], item: int, token: str) -> None:
        note_call(CallNote(event, context.task_id, context.run, item, token, 0.0, asks))

    async def draw(item: int) -> str:
        token = f"{context.run}/{item}"
        note("sent", item, token)
        await asyncio.sleep(seconds * (1 + item) / _STEPS)
        note("answered", item, token)
        return token

    async def one(item: int) -> None:
        in_doubt: Literal["ask", "repeat"] = "ask" if asks else "repeat"
        note("kept", item, await context.step(STEP, draw, item, key=str(item), in_doubt=in_doubt))

    await asyncio.gather(*[one(item) for item in range(_STEPS)])


async def _gather(context: Context, count: int, host: ScriptHost) -> None:
    children = await host.enqueue_children(context, count)
    ends = await context.gather(children, return_exceptions=True)
    for number, end in enumerate(ends):
        value = FAILED if isinstance(end, Exception) else str(end[1])
        host.note_wait(WaitNote(context.task_id, context.run, str(number), value))


async def _ok(_: Context, seconds: float) -> None:
    await asyncio.sleep(seconds)


async def _progress(context: Context, seconds: float) -> None:
    for part in range(_PROGRESS_STEPS):
        context.progress(part, _PROGRESS_STEPS, "on the way")
        await asyncio.sleep(seconds / _PROGRESS_STEPS)
    context.progress(_PROGRESS_STEPS, _PROGRESS_STEPS)


async def _nap(context: Context, seconds: float) -> None:
    await context.sleep(seconds)


async def _wait(_: Context, seconds: float) -> None:
    await asyncio.sleep(0.05)
    raise RetryAfter(seconds)


async def _overrun(_: Context, __: float) -> None:
    await asyncio.sleep(_LONG)


async def _swallow(_: Context, seconds: float) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(_LONG)
    await asyncio.sleep(seconds)


async def _again(context: Context, seconds: float) -> None:
    await asyncio.sleep(0.05)
    context.retry(after=seconds, reason="the script says so")


async def _free(context: Context, seconds: float) -> None:
    await asyncio.sleep(0.05)
    context.retry(after=seconds, reason="the script says so", charge=False)


def _raising(error: Callable[[], Exception]) -> Action:
    async def action(_: Context, seconds: float) -> None:
        await asyncio.sleep(seconds)
        raise error()

    return action


_ACTIONS: Mapping[str, Action] = {
    "ok": _ok,
    "progress": _progress,
    "nap": _nap,
    "transient": _raising(lambda: Transient("by the script")),
    "permanent": _raising(lambda: Permanent("by the script")),
    "unknown": _raising(lambda: MeaninglessError("by the script")),
    "forbidden": _raising(lambda: KeyError("by the script")),
    "network": _raising(lambda: ConnectionError("by the script")),
    "wait": _wait,
    "overrun": _overrun,
    "swallow": _swallow,
    "again": _again,
    "free": _free,
}
