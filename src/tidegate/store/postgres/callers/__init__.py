"""Connections that callers bring: one module a library, none of which is imported here.

Each knows a connection by where its type comes from, says what is wrong with it, and runs statements on it.
"""

from tidegate.store.postgres.callers.caller import Caller
from tidegate.store.postgres.callers.recognise import recognise

__all__ = ["Caller", "recognise"]
