"""Replicate. The wait is `retry_after` in the body. Its SDK keeps only the text of the error.

Sources: replicate 1.0.7 `exceptions.py`; nodetool-ai/nodetool#5196.
"""

from __future__ import annotations

from tidegate.providers.pack import Pack

REPLICATE = Pack(name="replicate", hosts=("api.replicate.com",), modules=("replicate",))
