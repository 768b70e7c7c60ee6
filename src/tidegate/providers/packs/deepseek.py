"""DeepSeek. 402 is an empty balance, with any code.

Source: api-docs.deepseek.com "Error codes".
"""

from __future__ import annotations

from tidegate.providers.pack import Pack

DEEPSEEK = Pack(name="deepseek", hosts=("api.deepseek.com",))
