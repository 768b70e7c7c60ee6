"""A simulated AI provider: OpenAI's and Anthropic's interfaces on loopback, with limits, faults, a ledger.

For tests, the demo and benchmarks: it throttles, fails and bills as a real provider does, and its ledger
answers the question that matters, "was anything paid twice?". Needs the extra `testing` (h11). Run it in
a process of its own with `python -m tidegate.testing.provider`.
"""

from __future__ import annotations

from tidegate.testing.provider.ledger import Ledger, LedgerSummary, ProviderCall
from tidegate.testing.provider.outages import Outage, OutageKind
from tidegate.testing.provider.server import SimulatedProvider
from tidegate.testing.provider.settings import POLICY_MARKER, ProviderSettings

__all__ = [
    "POLICY_MARKER",
    "Ledger",
    "LedgerSummary",
    "Outage",
    "OutageKind",
    "ProviderCall",
    "ProviderSettings",
    "SimulatedProvider",
]
