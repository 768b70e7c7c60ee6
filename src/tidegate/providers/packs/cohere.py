"""Cohere. Errors have a message and no code; 498 is an invalid token.

Sources: cohere-ai/cohere-developer-experience `errors.mdx`, `rate-limits.mdx`; cohere 7.3.1 `errors/`.
"""

from __future__ import annotations

from tidegate.providers.meaning import AUTH
from tidegate.providers.pack import Pack

COHERE = Pack(
    name="cohere",
    hosts=("api.cohere.com", "api.cohere.ai"),
    modules=("cohere",),
    statuses={498: AUTH},
)
