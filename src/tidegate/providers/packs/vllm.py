"""vLLM, which repeats the status as `error.code`. Whatever goes wrong in it may come as a 400.

Source: vllm-project/vllm `entrypoints/openai/engine/serving.py`.
"""

from __future__ import annotations

from tidegate.providers.pack import Pack

VLLM = Pack(name="vllm")
