"""One frame of `tidegate top`: tables that fit a terminal's width and height."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli.formatting import format_duration, format_since, printable
from tidegate.domain.text import counted
from tidegate.operations.upstreams import describe_upstream
from tidegate.policy.drain import DrainKind
from tidegate.store.live_workers import is_live, late_seconds
from tidegate.store.overview_rows import TopRow
from tidegate.store.rows import DeadLetterRow, QueueStats
from tidegate.store.upstream_rows import UpstreamRow
from tidegate.store.worker_rows import WorkerRow

FAILURES = 8
"""The newest failures that a frame may show."""
_LEAST_ROWS = 2
_WIDE = 100
"""The width from which on the columns are shown that a narrow terminal leaves out."""
_FAILURE = ("DIED", "QUEUE", "FUNCTION", "REASON", "FAILURE")
_BORDERS = 9
"""How many lines of a frame are not rows: the first two, the heads of four tables and the gaps between
them."""


def build_frame(found: TopRow, *, width: int, height: int | None, status: str = "") -> RenderableType:
    """Return a frame.

    Args:
        found: The data that was read from the store.
        width: Columns of the terminal.
        height: Lines of the terminal; None for any number.
        status: A text after the time in the first line: that the view is paused, or what failed.
    """
    overview = found.overview
    counts = [
        len(overview.queues),
        len(overview.upstreams),
        len({worker.pool for worker in overview.workers}),
        len(found.failures),
    ]
    queues, upstreams, pools, failures = _rows_of(counts, None if height is None else height - _BORDERS)
    parts: list[RenderableType] = [_head(found, status)]
    if overview.queues:
        parts.append(_queues(overview.queues, overview.at, queues, is_wide=width >= _WIDE))
    else:
        parts.append(Text("no tasks yet; enqueue one: tidegate enqueue FUNCTION ARG"))
    if overview.upstreams:
        parts += [Text(), _upstreams(overview.upstreams, overview.at, upstreams)]
    parts += [Text(), _workers(overview.workers, overview.at, pools)]
    if found.failures:
        parts += [Text(), _failures(found.failures, overview.at, failures, is_wide=width >= _WIDE)]
    return Group(*parts)


def _rows_of(counts: Sequence[int], room: int | None) -> list[int]:
    """Return how many rows each table gets: all if there is room, otherwise an equal share of the space."""
    if room is None:
        return list(counts)
    given = [0] * len(counts)
    left = max(room, _LEAST_ROWS * len(counts))
    while left > 0 and any(have < want for have, want in zip(given, counts, strict=True)):
        for position, want in enumerate(counts):
            if given[position] < want and left > 0:
                given[position] += 1
                left -= 1
    return given


def _head(found: TopRow, status: str) -> Text:
    overview = found.overview
    waiting = sum(each.ready + each.paced + each.blocked for each in overview.queues)
    running = sum(each.running for each in overview.queues)
    dead = sum(each.dead for each in overview.queues)
    at = datetime.fromtimestamp(overview.at, UTC)
    words = f"tidegate  {at:%H:%M:%S} UTC  {waiting:,} waiting, {running:,} running, {dead:,} dead"
    head = _text(words, "bold")
    if status:
        head.append("  " + printable(status), "bold yellow")
    return head


def _queues(rows: Sequence[QueueStats], now: float, most: int, *, is_wide: bool) -> Table:
    """Return the table of queues. If not all fit, those with the most tasks come first."""
    table = _table("QUEUE", "WAIT", "BLOCKED", "RUN", "IN/MIN", "OUT/MIN", "OLDEST", "DRAINS IN", "BY")
    if len(rows) > most:
        rows = sorted(rows, key=lambda each: -each.ready - each.paced - each.blocked - each.running)[:most]
    for each in rows:
        oldest = None if each.oldest_ready_at is None else max(0.0, now - each.oldest_ready_at)
        table.add_row(
            _text(each.queue, "yellow" if each.pause else ""),
            f"{each.ready + each.paced:,}",
            _text(f"{each.blocked:,}", "yellow" if each.blocked else ""),
            f"{each.running:,}",
            f"{each.enqueued_last_minute:,}",
            f"{each.done_last_minute:,}",
            format_duration(oldest),
            _drain(each),
            _text(each.drain.text if is_wide else each.drain.constraint),
        )
    return table


def _drain(stats: QueueStats) -> Text:
    drain = stats.drain
    if drain.kind is DrainKind.NEVER:
        short = "" if drain.short_per_minute is None else f" -{drain.short_per_minute:.3g}/min"
        return _text(f"never{short}", "red")
    return _text(str(drain), "yellow" if drain.kind is DrainKind.BLOCKED else "")


def _upstreams(rows: Sequence[UpstreamRow], now: float, most: int) -> Table:
    """Return the table of upstreams. If not all fit, those that do not flow come first."""
    table = _table("UPSTREAM", "CALLS", "READY", "PACED", "RETRY", "GATE", text=("UPSTREAM", "GATE"))
    if len(rows) > most:
        rows = sorted(rows, key=lambda each: (each.block is None, -each.ready))[:most]
    for each in rows:
        gate = _text(describe_upstream(each, now), "red" if each.block is not None else "green")
        numbers = (each.in_flight, each.ready - each.paced, each.paced, each.retrying)
        table.add_row(_text(each.name), *(f"{number:,}" for number in numbers), gate)
    return table


def _workers(rows: Sequence[WorkerRow], now: float, most: int) -> RenderableType:
    """Return the table of workers by pool."""
    live = [worker for worker in rows if is_live(worker, now)]
    if not live:
        return Text("no live worker; start one: tidegate worker MODULE:APP", "yellow")
    pools: dict[str, list[WorkerRow]] = defaultdict(list)
    for worker in live:
        pools[worker.pool].append(worker)
    table = _table("POOL", "WORKERS", "BUSY", "SLOTS", "HEARTBEAT", "QUEUES", text=("POOL", "QUEUES"))
    for pool, workers in sorted(pools.items())[:most]:
        late = sum(late_seconds(worker, now) is not None for worker in workers)
        beat = format_since(min(worker.heartbeat_at for worker in workers), now)
        table.add_row(
            _text(pool),
            f"{len(workers):,}",
            f"{sum(worker.running for worker in workers):,}",
            f"{sum(worker.slots for worker in workers):,}",
            _text(f"{counted(late, 'late worker')}" if late else beat, "yellow" if late else ""),
            _text(",".join(sorted({queue for worker in workers for queue in worker.queues}))),
        )
    return table


def _failures(rows: Sequence[DeadLetterRow], now: float, most: int, *, is_wide: bool) -> Table:
    table = _table(
        "DIED", "QUEUE", "FUNCTION", "REASON", "FAILURE", text=("QUEUE", "FUNCTION", "REASON", "FAILURE")
    )
    for each in rows[:most]:
        function = each.function if is_wide else each.function.rpartition(":")[2]
        failure = f"{each.error_class}: {each.message}" if each.error_class else each.message
        died = format_since(each.failed_at, now)
        table.add_row(died, _text(each.queue), _text(function), _text(each.reason, "red"), _text(failure))
    return table


def _table(*heads: str, text: Sequence[str] = ("QUEUE", "DRAINS IN", "BY")) -> Table:
    """Return an empty table. Its last column takes the rest of the width. Texts are cut, not wrapped."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", expand=True, show_edge=False)
    for position, head in enumerate(heads):
        is_last = position == len(heads) - 1
        table.add_column(
            head,
            justify="left" if head in text else "right",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if is_last else None,
            max_width=None if is_last else 20,
        )
    return table


def _text(words: str, style: str = "") -> Text:
    """Return text that cannot control the terminal, and has no markup."""
    return Text(printable(words), style, no_wrap=True, overflow="ellipsis")
