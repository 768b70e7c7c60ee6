"""vLLM, which repeats the status as `error.code`. Any internal error may come as a 400.

Source: vllm-project/vllm `entrypoints/openai/engine/serving.py`.
"""

from __future__ import annotations

from tidegate.providers.pack import Pack

VLLM = Pack(name="vllm")
