"""The sink that needs no settings: it writes to the log of the process that sends."""

from __future__ import annotations

import logging

import msgspec

from tidegate.store.alert_rows import ClaimedNotice, Severity

log = logging.getLogger("tidegate.alerts")


def send(notice: ClaimedNotice) -> None:
    """Log a message: critical alerts at ERROR level, others at WARNING, ends of alerts at INFO."""
    data = msgspec.json.decode(notice.body)["data"]
    log.log(_level(notice.kind, str(data.get("severity", ""))), "%s", data.get("text", notice.kind))


def _level(kind: str, severity: str) -> int:
    if not kind.endswith(".opened"):
        return logging.INFO
    return logging.ERROR if severity == Severity.CRITICAL else logging.WARNING
