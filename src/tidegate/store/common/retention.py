"""How long a store keeps what no setting speaks of."""

from __future__ import annotations

BATCH_KEPT_SECONDS = 86_400.0
"""An uncommitted stage older than this has lost its client; a committed one is resent no more."""

ROLLUP_KEPT_SECONDS = 90 * 86_400.0
"""Counters a minute are for charts and estimates; nobody charts minutes of the last quarter."""

AUDIT_KEPT_SECONDS = 365 * 86_400.0
"""Who changed what is asked for months later, not years."""
