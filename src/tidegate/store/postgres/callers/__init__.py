"""Connections that callers pass: one module per library. The libraries themselves are not imported here.

Each module recognises a connection by the module of its type, checks it, and runs statements on it.
"""

from tidegate.store.postgres.callers.caller import Caller
from tidegate.store.postgres.callers.recognise import recognise

__all__ = ["Caller", "recognise"]
