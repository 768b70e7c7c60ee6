"""Groq. 498 is the flex tier without capacity; its limit on requests is counted over the day.

Sources: console.groq.com "Rate limits"; developersdigest.tech "498 flex tier capacity exceeded"; groq 1.7.0.
"""

from __future__ import annotations

from tidegate.providers.meaning import OVERLOADED, codes
from tidegate.providers.pack import Pack

GROQ = Pack(
    name="groq",
    hosts=("api.groq.com",),
    modules=("groq",),
    codes=codes((OVERLOADED, "capacity_exceeded")),
    statuses={498: OVERLOADED},
    requests_window_seconds=86_400.0,
)
