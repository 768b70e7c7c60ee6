"""A simulated AI provider on loopback, with OpenAI's and Anthropic's interfaces, limits, faults and a ledger.

For tests, the demo and benchmarks: it throttles, fails and bills as a real provider does. The provider's
ledger shows whether any call was paid twice. uvicorn serves it. Needs the extra `testing`. Run it in its own
process with `python -m tidegate.testing.provider`.
"""

from __future__ import annotations

from tidegate.testing.provider.ledger import Ledger, LedgerSummary, ProviderCall
from tidegate.testing.provider.outages import Outage, OutageKind
from tidegate.testing.provider.settings import POLICY_MARKER, ProviderSettings

try:
    from tidegate.testing.provider.batch_api import BatchApiSettings, SimulatedBatchApi
    from tidegate.testing.provider.server import SimulatedProvider
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"the simulated provider needs {error.name} → pip install 'tidegate[testing]'", name=error.name
    ) from error

__all__ = [
    "POLICY_MARKER",
    "BatchApiSettings",
    "Ledger",
    "LedgerSummary",
    "Outage",
    "OutageKind",
    "ProviderCall",
    "ProviderSettings",
    "SimulatedBatchApi",
    "SimulatedProvider",
]
