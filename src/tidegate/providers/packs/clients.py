"""HTTP clients: exception classes whose names alone are ambiguous.

Source: requests 2.34.2 `exceptions.py`: every one of them is an `OSError`.
"""

from __future__ import annotations

from tidegate.providers.meaning import SERVER_ERROR, table
from tidegate.providers.pack import Pack

REQUESTS = Pack(
    name="requests",
    modules=("requests",),
    # Its own retries failed.
    classes=table((SERVER_ERROR, "RetryError")),
)
