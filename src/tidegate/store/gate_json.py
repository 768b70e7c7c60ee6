"""Convert gates to three JSON texts and back, the same on every back end."""

from __future__ import annotations

import msgspec

from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.values import Gate, GateRow, TokenBucket


def to_json(row: GateRow) -> tuple[str, str, str]:
    """Return limits, gate and buckets as JSON."""
    limits, gate, buckets = (
        msgspec.json.encode(part).decode() for part in (row.limits, row.gate, row.buckets)
    )
    return limits, gate, buckets


def from_json(kind: str, name: str, limits: str, gate: str, buckets: str) -> GateRow:
    """Return the row that `to_json` wrote. Fields that a newer version wrote are ignored."""
    return GateRow(GateKind(kind), name, _LIMITS.decode(limits), _GATE.decode(gate), _BUCKETS.decode(buckets))


_LIMITS = msgspec.json.Decoder(Limits)
_GATE = msgspec.json.Decoder(Gate)
_BUCKETS = msgspec.json.Decoder(dict[str, TokenBucket])
