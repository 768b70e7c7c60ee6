"""Claim ready tasks: scan without a lock, share the slots, then lock and move rows of each channel."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

from tidegate.domain.spec import Priority
from tidegate.limits.admission import (
    MAX_PROBE_CANDIDATES,
    Admission,
    GateCheck,
    GateChecks,
    ReadGates,
    admit,
    upstreams_to_count,
)
from tidegate.limits.pauses import NO_PAUSES, Pauses
from tidegate.limits.settings import GateKind
from tidegate.policy.order import Portion, apportion
from tidegate.store.common import control, gates
from tidegate.store.common.columns import PRIORITIES, build_claimed_task
from tidegate.store.common.text import storable
from tidegate.store.postgres.channels import Channel, KnownChannels
from tidegate.store.postgres.charged_claim import UNLIMITED, ReadChecks, plan_charge
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.rows import ClaimedTask, ClaimRequest, ClaimResult, CrashPolicy

_SQL = load("claim")

MANY_CHANNELS = 2_000
"""Number of channels above which one scan of all ready tasks is cheaper (for example, a queue per user)."""

_ROUNDS = 4
"""Number of rounds in which one claim looks for tasks that limits admit."""

CrashPolicies = Mapping[str, CrashPolicy]


class _Checked(IntEnum):
    """The checks that a claim must make before it takes tasks, as `peek` reports them."""

    NOTHING = 0
    GATES = 1
    GATES_AND_PAUSES = 2


async def claim(database: Database, known: KnownChannels, request: ClaimRequest) -> ClaimResult:
    """Move up to `request.slots` ready tasks to this worker. Without a ready task, nothing is locked."""
    crash_policies = {
        storable(function): crash_policies for function, crash_policies in request.functions.items()
    }
    channel = known.only(request)
    if channel is None:
        return await _peek_and_take(database, known, request, crash_policies)
    tasks = await _take(database, request, crash_policies, [channel], checks_gates=False)
    if len(tasks) < request.slots:
        rest = await _peek_and_take(
            database, known, replace(request, slots=request.slots - len(tasks)), crash_policies
        )
        return replace(rest, tasks=(*tasks, *rest.tasks))
    return ClaimResult(tuple(tasks))


async def _peek_and_take(
    database: Database, known: KnownChannels, request: ClaimRequest, crash_policies: CrashPolicies
) -> ClaimResult:
    is_alive, channels, read = await database.read(
        lambda db: _peek_with_gates(db, known, request, list(crash_policies)), generic_plan=True
    )
    if not is_alive or not channels:
        return ClaimResult((), is_alive=is_alive)
    checks = None if read is None else read.checks()
    if (
        read is not None
        and checks is not None
        and any(
            checks.of(channel.upstream, channel.function) or checks.is_paused(channel.queue, channel.function)
            for channel in channels
        )
    ):
        unchanged = None
        if all(_is_open(checks, channel) for channel in channels):
            unchanged = await _take_unchanged(database, request, crash_policies, channels, read)
        return unchanged or await _take_within_limits(database, request, crash_policies, channels, checks)
    tasks = await _take(database, request, crash_policies, channels, checks_gates=True)
    if read is None and len(channels) == 1 and len(tasks) == request.slots:
        known.remember_only(request, channels[0])
    return ClaimResult(tuple(tasks))


async def _take(
    database: Database,
    request: ClaimRequest,
    crash_policies: CrashPolicies,
    channels: Sequence[Channel],
    *,
    checks_gates: bool,
) -> list[ClaimedTask]:
    """Take tasks for the slots from channels without a gate."""
    portions = _portions(request, channels)
    wanted = _take_columns(crash_policies, _tasks_by_channel(channels, portions))
    rows = await database.autocommit(
        lambda db: db.rows(_SQL["take"], db.at, request.worker_id, *wanted, checks_gates, None),
        repeatable=False,
        generic_plan=True,
    )
    return [_claimed_task(row) for row in _in_portion_order(rows, portions)]


async def _take_unchanged(
    database: Database,
    request: ClaimRequest,
    crash_policies: CrashPolicies,
    channels: Sequence[Channel],
    read: ReadChecks,
) -> ClaimResult | None:
    """Take tasks and charge their gates in one statement; None if the gates must be locked first."""
    portions, checks = _portions(request, channels), read.checks()
    charge = plan_charge(read, checks, channels, _tasks_by_channel(channels, portions))
    if charge is None:
        return None
    wanted = _take_columns(crash_policies, charge.shares)
    rows = await database.autocommit(
        lambda db: db.rows(
            _SQL["take_charged"], db.at, request.worker_id, *wanted, True, None, *charge.columns
        ),
        repeatable=False,
        generic_plan=True,
    )
    if not rows:
        return None
    admitted = {row["task_id"]: charge.admission(number) for number, row in enumerate(rows)}
    tasks = [_claimed_task(row, admitted[row["task_id"]]) for row in _in_portion_order(rows, portions)]
    return ClaimResult(tuple(tasks), next_claim_seconds=_next_claim_seconds(checks, channels))


async def _take_within_limits(
    database: Database,
    request: ClaimRequest,
    crash_policies: CrashPolicies,
    channels: Sequence[Channel],
    gate_checks: GateChecks,
) -> ClaimResult:
    """Take tasks that limits admit, in rounds. Slots that one channel cannot fill go to other channels."""
    tasks: list[ClaimedTask] = []
    every, pauses = list(channels), gate_checks.pauses
    for _ in range(_ROUNDS):
        left = replace(request, slots=request.slots - len(tasks))
        if any(not _is_open(gate_checks, channel) for channel in channels):
            channels = await database.autocommit(
                lambda db: _open_channels(db, left, list(crash_policies), gate_checks),  # noqa: B023
                generic_plan=True,
            )
        if not channels:
            break
        portions = _portions(left, channels)
        shares = _tasks_by_channel(channels, portions)
        taken, later = await database.transact(
            lambda db: _take_charged(db, left, crash_policies, shares, pauses),  # noqa: B023
            repeatable=False,
            generic_plan=True,
        )
        gate_checks.update(later)
        by_row = {row["task_id"]: admitted for row, admitted in taken}
        rows = _in_portion_order([row for row, _ in taken], portions)
        tasks += [_claimed_task(row, by_row[row["task_id"]]) for row in rows]
        was_short = len(taken) < min(left.slots, sum(number for _, number in shares))
        if not taken or not was_short or len(tasks) >= request.slots:
            break
    return ClaimResult(tuple(tasks), next_claim_seconds=_next_claim_seconds(gate_checks, every))


async def _take_charged(
    db: PostgresSession,
    request: ClaimRequest,
    crash_policies: CrashPolicies,
    shares: Sequence[tuple[Channel, int]],
    pauses: Pauses,
) -> tuple[list[tuple[Any, Admission]], GateChecks]:
    """Lock the gates, take as many tasks of each channel as they admit, and charge exactly these."""
    now = await db.now()
    rows = await gates.locked_rows_of(db, *_gate_names(channel for channel, _ in shares))
    source = ReadGates(rows, await gates.in_flight(db, now, upstreams_to_count(rows, now)))
    trial, gate_checks = (GateChecks(source, now, pauses) for _ in range(2))
    numbers = []
    only: list[Any] = []
    for channel, wanted in sorted(shares, key=lambda share: (share[0].priority, share[0].first_rank or 0.0)):
        number = 0
        prober = None
        held = [
            gate_check
            for gate_check in trial.of(channel.upstream, channel.function)
            if gate_check.admits_only_probes
        ]
        if held and _is_open(trial, channel):
            prober = await _prober(db, channel, crash_policies[channel.function].max_attempts, held)
            if prober is None:
                continue
        while number < wanted and _is_open(trial, channel):
            admit(trial.of(channel.upstream, channel.function))
            number += 1
        if number:
            numbers.append((channel, number))
            only.append(prober)
    if not numbers:
        return [], gate_checks
    found = await db.rows(
        _SQL["take"], db.at, request.worker_id, *_take_columns(crash_policies, numbers), True, only
    )
    taken = [(row, admit(gate_checks.of(row["upstream"], row["function"]))) for row in found]
    await gates.save(db, now, gate_checks.changed())
    if probes := [row["task_id"] for row, admitted in taken if admitted.is_probe]:
        await db.run(_SQL["mark_probes"], probes)
    return taken, gate_checks


async def _prober(db: PostgresSession, channel: Channel, max_attempts: int, held: Sequence[GateCheck]) -> Any:
    """Return the id of a channel's task that may probe; None if none of its first tasks may."""
    row = await db.row(_SQL["prober"], *channel.name, max_attempts, MAX_PROBE_CANDIDATES)
    if row is None or not all(gate_check.may_admit(on_last_attempt=row["is_last"]) for gate_check in held):
        return None
    return row["task_id"]


def _is_open(gate_checks: GateChecks, channel: Channel) -> bool:
    return not gate_checks.is_paused(channel.queue, channel.function) and all(
        gate_check.is_open for gate_check in gate_checks.of(channel.upstream, channel.function)
    )


def _next_claim_seconds(gate_checks: GateChecks, channels: Sequence[Channel]) -> float | None:
    """Return the seconds until tasks held back may be claimed; None if that does not depend on time."""
    closed = [
        d for channel in channels for d in gate_checks.of(channel.upstream, channel.function) if not d.is_open
    ]
    times = [seconds for gate_check in closed if (seconds := gate_check.next_check_seconds()) is not None]
    return min(times, default=None)


async def _peek_with_gates(
    db: PostgresSession, known: KnownChannels, request: ClaimRequest, functions: list[str]
) -> tuple[bool, list[Channel], ReadChecks | None]:
    """Return whether the worker is alive, the channels with the first tasks, and their gates."""
    is_alive, found, channels = await _peek(db, known, request, functions)
    if not channels or found is _Checked.NOTHING:
        return is_alive, channels, None
    paused = Pauses(await control.list_pauses(db)) if found is _Checked.GATES_AND_PAUSES else NO_PAUSES
    return is_alive, channels, await _read_gates(db, channels, paused)


async def _read_gates(db: PostgresSession, channels: Sequence[Channel], paused: Pauses) -> ReadChecks:
    """Return the checks of these channels' gates, which are read without a lock."""
    upstreams, functions = _gate_names(channels)
    kinds = [str(GateKind.UPSTREAM)] * len(upstreams) + [str(GateKind.FUNCTION)] * len(functions)
    names = [storable(name) for name in (*upstreams, *functions)]
    found = await db.rows(_SQL["gates"], kinds, names, db.at)
    rows = [gates.from_json(*row[:5]) for row in found]
    now = found[0]["now"] if found else 0.0
    in_flight = {row["name"]: row["in_flight"] for row in found if row["in_flight"] is not None}
    if uncounted := [name for name in upstreams_to_count(rows, now) if name not in in_flight]:
        in_flight |= await gates.in_flight(db, now, uncounted)
    versions = {(row.kind, row.name): each["version"] for row, each in zip(rows, found, strict=True)}
    return ReadChecks(ReadGates(rows, in_flight), versions, now, paused)


def _gate_names(channels: Iterable[Channel]) -> tuple[set[str], set[str]]:
    """Return the upstreams and the functions of these channels, whose gates their tasks must pass."""
    every = list(channels)
    return {channel.upstream for channel in every} - {""}, {channel.function for channel in every}


async def _open_channels(
    db: PostgresSession, request: ClaimRequest, functions: list[str], gate_checks: GateChecks
) -> list[Channel]:
    """Return the channels whose tasks may be claimed, from a scan of these channels only."""
    closed = gate_checks.closed()
    may_run = [function for function in functions if function not in closed.functions]
    shut = list(map(storable, closed.upstreams)), list(map(storable, closed.queues))
    *_, channels = await _peek(db, KnownChannels(), request, may_run, *shut)
    return channels


async def _peek(
    db: PostgresSession,
    known: KnownChannels,
    request: ClaimRequest,
    functions: list[str],
    closed_upstreams: Sequence[str] = (),
    paused_queues: Sequence[str] = (),
) -> tuple[bool, _Checked, list[Channel]]:
    """Return whether the worker is alive, which other checks are needed, and the channels' first tasks."""
    queues = None if "*" in request.queues else [storable(queue) for queue in dict.fromkeys(request.queues)]
    given = known.known_columns(request)
    at_most = None if request.is_strict else MANY_CHANNELS
    rows = await db.rows(
        _SQL["peek"],
        request.worker_id,
        queues,
        functions,
        request.slots,
        request.is_strict,
        at_most,
        *given,
        closed_upstreams,
        paused_queues,
    )
    if rows[0]["channels_seen"] == at_most:
        shut = closed_upstreams, paused_queues
        rows = await db.rows(_SQL["walk"], request.worker_id, queues, functions, request.slots, *shut)
    is_alive, checked, _, queue, *_, entries = rows[0]
    if queue is None:
        return is_alive, _Checked(checked), []
    channels = [_channel(row, strict=request.is_strict) for row in rows]
    known.remember(request, channels, entries, everywhere=given[0] is None)
    return is_alive, _Checked(checked), [channel for channel in channels if channel.first_rank is not None]


def _claimed_task(row: Any, admitted: Admission = UNLIMITED) -> ClaimedTask:
    """Return a task from a row: the columns of `StoredClaim`, then the current time."""
    return build_claimed_task(row[:-1], row["now"], str, admitted)


def _channel(row: Sequence[Any], *, strict: bool) -> Channel:
    _, _, _, queue, priority, upstream, function, position, first_rank, positions, _ = row
    return Channel(
        queue, priority, upstream, function, position if strict else 0, first_rank, positions or ()
    )


def _portions(request: ClaimRequest, channels: Sequence[Channel]) -> list[Portion]:
    """Share the slots between the priorities."""
    if len(channels) == 1:
        return [Portion(PRIORITIES[channels[0].priority], request.slots)]
    ready: dict[Priority, int] = defaultdict(int)
    for channel in channels:
        ready[PRIORITIES[channel.priority]] += len(channel.positions)
    return apportion(request.slots, request.reserved, lambda priority, at_most: min(ready[priority], at_most))


def _tasks_by_channel(channels: Sequence[Channel], portions: Sequence[Portion]) -> list[tuple[Channel, int]]:
    """Return how many tasks to take from each channel, without channels that give no task."""
    shares: dict[int, int] = defaultdict(int)
    for priority, tasks in portions:
        shares[priority] += tasks
    if len(channels) == 1:
        return [(channels[0], shares[channels[0].priority])]
    tasks_of = ((channel, bisect_right(channel.positions, shares[channel.priority])) for channel in channels)
    return [(channel, tasks) for channel, tasks in tasks_of if tasks]


def _take_columns(
    crash_policies: CrashPolicies, tasks: Sequence[tuple[Channel, int]]
) -> tuple[list[Any], ...]:
    """Return the parameters of `take` for these channels, each with the first rank that the scan found."""
    rows = []
    for channel, number in tasks:
        mine = crash_policies[channel.function]
        crash = (mine.crash_limit, mine.base_seconds, mine.max_seconds)
        rows.append((*channel.name, channel.position, channel.first_rank, number, *crash))
    return tuple([list(column) for column in zip(*rows, strict=True)])


def _in_portion_order(rows: Sequence[Any], portions: Sequence[Portion]) -> Iterator[Any]:
    """Yield the taken rows in the order of the portions."""
    if len(portions) == 1:
        yield from rows
        return
    by_priority: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        by_priority[row["priority"]].append(row)
    begins: dict[int, int] = defaultdict(int)
    for priority, tasks in portions:
        begin = begins[priority]
        begins[priority] = begin + tasks
        yield from by_priority[priority][begin : begin + tasks]
