"""Retention times that no setting changes."""

from __future__ import annotations

BATCH_KEPT_SECONDS = 86_400.0
"""An uncommitted batch older than this has lost its client; the commit of an older batch is not resent."""

ROLLUP_KEPT_SECONDS = 90 * 86_400.0
"""Counters per minute are for charts and estimates of recent days."""

AUDIT_KEPT_SECONDS = 365 * 86_400.0
"""People look for changes months later, not years later."""
