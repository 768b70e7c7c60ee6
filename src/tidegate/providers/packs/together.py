"""Together. 429 means above your own rate, which grows with steady traffic; 503 means no capacity.

Sources: docs.together.ai "Rate limits"; together 3.1.1.
"""

from __future__ import annotations

from tidegate.providers.pack import Pack

TOGETHER = Pack(
    name="together",
    aliases=("togetherai", "together_ai"),
    hosts=("api.together.xyz", "api.together.ai"),
    modules=("together",),
)
