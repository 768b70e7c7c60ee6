"""The doctor's check of limits: which stored limits differ from those in the code."""

from __future__ import annotations

from typing import Any

from tidegate.cli.doctor import CheckLevel, CheckResult
from tidegate.limits.options import differences
from tidegate.limits.settings import GateKind
from tidegate.store.protocol import Store


async def check_limits(store: Store, application: Any) -> list[CheckResult]:
    """Compare the limits that an application declares with the limits in the store."""
    stored = {(row.kind, row.name): row.limits for row in await store.list_gates()}
    findings = []
    compared = 0
    for ours in application.declared():
        kept = stored.get((ours.kind, ours.name))
        if kept is None:
            continue
        compared += ours.kind is not GateKind.SYSTEM
        different = differences(ours.limits, kept)
        set_by_person = {name: words for name, words in different.items() if name in kept.set_by_person}
        later = {name: words for name, words in different.items() if name not in kept.set_by_person}
        name = ours.name or "the whole system"
        if set_by_person:
            command = " ".join(f"{limit}=code" for limit in set_by_person)
            fix = f"to use the limits of the code again: tidegate upstreams set {ours.name} {command}"
            findings.append(
                CheckResult(
                    CheckLevel.WARN,
                    "limits",
                    f"{name}, set by hand: {'; '.join(set_by_person.values())}",
                    fix,
                )
            )
        if later:
            fix = "the limits of the code apply from the next start of a worker"
            findings.append(
                CheckResult(CheckLevel.WARN, "limits", f"{name}: {'; '.join(later.values())}", fix)
            )
    if compared and not findings:
        findings.append(CheckResult(CheckLevel.OK, "limits", "as the code declares them"))
    return findings
