"""What `tidegate doctor` knows of limits: where those that count are not those of the code."""

from __future__ import annotations

from typing import Any

from tidegate.cli.doctor import Finding, Level
from tidegate.domain.upstream import GateKind
from tidegate.store.protocol import Store
from tidegate.upstream.limits import differences


async def check_limits(store: Store, application: Any) -> list[Finding]:
    """Compare the limits an application declares with those that the store holds."""
    stored = {(row.kind, row.name): row.limits for row in await store.gates()}
    findings = []
    compared = 0
    for ours in application.declared():
        kept = stored.get((ours.kind, ours.name))
        if kept is None:
            continue
        compared += ours.kind is not GateKind.SYSTEM
        different = differences(ours.limits, kept)
        by_hand = {name: words for name, words in different.items() if name in kept.by_hand}
        later = {name: words for name, words in different.items() if name not in kept.by_hand}
        name = ours.name or "the whole system"
        if by_hand:
            command = " ".join(f"{limit}=code" for limit in by_hand)
            fix = f"to follow the code again: tidegate upstreams set {ours.name} {command}"
            findings.append(
                Finding(Level.WARN, "limits", f"{name}, by hand: {'; '.join(by_hand.values())}", fix)
            )
        if later:
            fix = "the code counts from the next start of a worker on"
            findings.append(Finding(Level.WARN, "limits", f"{name}: {'; '.join(later.values())}", fix))
    if compared and not findings:
        findings.append(Finding(Level.OK, "limits", "as the code declares them"))
    return findings
