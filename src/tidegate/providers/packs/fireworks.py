"""Fireworks. 412 is an account that is suspended, or a LoRA that could not be loaded.

Sources: docs.fireworks.ai "Inference error codes"; fireworks-ai 1.2.30.
"""

from __future__ import annotations

from tidegate.providers.meaning import NO_MONEY
from tidegate.providers.pack import Pack

FIREWORKS = Pack(
    name="fireworks",
    aliases=("fireworks-ai", "fireworks_ai"),
    hosts=("api.fireworks.ai",),
    modules=("fireworks",),
    statuses={412: NO_MONEY},
)
