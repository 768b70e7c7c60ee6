"""The charge of a claim that takes tasks and charges their gates in one statement.

The gates are read without a lock. The statement compares their versions, so it takes nothing if another
process has changed a gate since. It may take fewer tasks than planned, so it gets the buckets after each
number of tasks. This works for tasks of one channel, whose number decides the charge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.limits.admission import Admission, GateCheck, GateChecks, ReadGates, admit
from tidegate.limits.pauses import NO_PAUSES, Pauses
from tidegate.limits.settings import GateKind
from tidegate.store.common.gates import encode_buckets
from tidegate.store.common.text import storable
from tidegate.store.postgres.channels import Channel

MOST_TASKS = 200
"""A claim of more tasks locks the gates first: a few locks cost little for that many tasks."""

UNLIMITED = Admission()


class ReadChecks(NamedTuple):
    """Gates as a claim read them."""

    gates: ReadGates
    versions: Mapping[tuple[GateKind, str], str]
    now: float
    pauses: Pauses = NO_PAUSES

    def checks(self) -> GateChecks:
        """Return new checks of these gates."""
        return GateChecks(self.gates, self.now, self.pauses)


@dataclass(slots=True)
class Charge:
    """What one statement takes and charges."""

    shares: list[tuple[Channel, int]]
    admissions: list[Admission]
    """One for each task that may be taken, in order; empty if no gate charges anything."""
    gates: tuple[list[str], list[str], list[str]]
    """Kinds, names and versions of the gates."""
    buckets: list[str] | None
    """For each gate the stored buckets after each number of tasks, from 0 on; None to charge nothing."""

    @property
    def columns(self) -> tuple[object, ...]:
        """The parameters of the statement that describe the charge."""
        states = None if self.buckets is None else len(self.admissions) + 1
        return (*self.gates, self.buckets, states)

    def admission(self, number: int) -> Admission:
        """Return the admission of the task with this number, from 0 on."""
        return self.admissions[number] if self.admissions else UNLIMITED


def plan_charge(
    read: ReadChecks, checks: GateChecks, channels: Sequence[Channel], shares: Sequence[tuple[Channel, int]]
) -> Charge | None:
    """Return the charge of these tasks; None if the gates must be locked first.

    Args:
        read: The gates as they were read.
        checks: Checks of these gates, all open. Those of charged tasks are changed.
        channels: All channels that have tasks.
        shares: How many tasks of each channel to take.
    """
    of_channels = [checks.of(channel.upstream, channel.function) for channel, _ in shares]
    every = dict.fromkeys(gate_check for gate_checks in of_channels for gate_check in gate_checks)
    gates = _names(every, read)
    if all(gate_check.is_free for gate_check in every):
        return Charge(list(shares), [], gates, None)
    if len(shares) != 1 or any(gate_check.admits_only_probes for gate_check in every):
        return None
    [(channel, wanted)] = shares
    wanted = min(wanted, len(channel.positions))
    if not channel.upstream or wanted > MOST_TASKS:
        return None
    admissions: list[Admission] = []
    buckets = [[encode_buckets(gate_check.buckets)] for gate_check in every]
    while len(admissions) < wanted and all(gate_check.is_open for gate_check in every):
        admissions.append(admit(of_channels[0]))
        for gate_check, states in zip(every, buckets, strict=True):
            states.append(encode_buckets(gate_check.buckets))
    if not admissions or (len(admissions) < wanted and len(channels) > 1):
        return None
    flat = [state for states in buckets for state in states]
    return Charge([(channel, len(admissions))], admissions, gates, flat)


def _names(gate_checks: Mapping[GateCheck, None], read: ReadChecks) -> tuple[list[str], list[str], list[str]]:
    keys = [(gate_check.row.kind, gate_check.row.name) for gate_check in gate_checks]
    return (
        [str(kind) for kind, _ in keys],
        [storable(name) for _, name in keys],
        [read.versions[key] for key in keys],
    )
