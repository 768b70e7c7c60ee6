"""OpenAI. Other providers use its codes too, so they are in the general tables.

The pack names no module, because many other providers are called through OpenAI's SDK.

Sources: developers.openai.com error codes; help.openai.com 5955604 and 6614457; openai 3.57.0
`types/responses/response_error.py`, `types/beta/session_turn_error.py`.
"""

from __future__ import annotations

from tidegate.providers.meaning import INVALID, codes
from tidegate.providers.pack import Pack

OPENAI = Pack(
    name="openai",
    hosts=("api.openai.com",),
    codes=codes(
        # A parameter that is too long, not the context window.
        (INVALID, "string_above_max_length"),
    ),
)
