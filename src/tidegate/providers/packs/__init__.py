"""The packs. Packs that are only data are rows of `table.py`; each other pack has a file of its own.

`pack_for` finds the pack of a response or error.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.providers.pack import Pack
from tidegate.providers.packs.anthropic import ANTHROPIC
from tidegate.providers.packs.azure import AZURE
from tidegate.providers.packs.bedrock import BEDROCK
from tidegate.providers.packs.gemini import GEMINI, VERTEX
from tidegate.providers.packs.grpc import GRPC
from tidegate.providers.packs.litellm import LITELLM
from tidegate.providers.packs.mistral import MISTRAL
from tidegate.providers.packs.openrouter import OPENROUTER
from tidegate.providers.packs.table import TABLE
from tidegate.providers.packs.zhipu import ZHIPU

PACKS = (
    *TABLE,
    *(ANTHROPIC, AZURE, BEDROCK, GEMINI, VERTEX, GRPC, LITELLM, MISTRAL, OPENROUTER, ZHIPU),
)
GENERAL = Pack(name="general")
"""The pack of an unknown provider: only general meanings."""

_BY_NAME = {name: pack for pack in PACKS for name in (pack.name, *pack.aliases)}
_BY_HOST = {host: pack for pack in PACKS for host in pack.hosts}
_BY_MODULE = {module: pack for pack in PACKS for module in pack.modules}


def pack_for(*, host: str = "", modules: Iterable[str] = (), provider: str = "") -> Pack:
    """Return the pack of a provider, found by the first of these that is known; else `GENERAL`.

    Args:
        host: The host that answered. The host comes first because one SDK may call many providers.
        modules: The root modules of the exception's classes, the nearest first.
        provider: The upstream's declared name, in any case. A name like `openai-eu` counts as `openai`.
    """
    return _of_host(host.lower()) or _of_modules(modules) or _of_name(provider.lower()) or GENERAL


def _of_host(host: str) -> Pack | None:
    while host:
        label, _, parent = host.partition(".")
        # Vertex puts the region in front with a dash: us-central1-aiplatform.googleapis.com.
        for name in (host, f"{label.rpartition('-')[2]}.{parent}"):
            if pack := _BY_HOST.get(name):
                return pack
        host = parent
    return None


def _of_modules(modules: Iterable[str]) -> Pack | None:
    return next((_BY_MODULE[module] for module in modules if module in _BY_MODULE), None)


def _of_name(name: str) -> Pack | None:
    while name:
        if pack := _BY_NAME.get(name):
            return pack
        shorter = max(name.rfind("-"), name.rfind("_"), name.rfind("/"), 0)
        name = name[:shorter]
    return None
