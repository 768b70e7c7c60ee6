"""Hugging Face: Inference, the Hub, and Text Generation Inference (TGI), also self-hosted.

A cold start is a 503 with `estimated_time`, a guess; some models never load.

Sources: huggingface_hub 2.4.0 `errors.py`, `utils/_http.py`; huggingface/text-generation-inference
`router/src`; huggingface/transformers#23793.
"""

from __future__ import annotations

from tidegate.providers.meaning import (
    AUTH,
    CUT_OFF_BY_SETTING,
    INVALID,
    NOT_FOUND,
    OVERLOADED,
    SERVER_ERROR,
    codes,
    table,
)
from tidegate.providers.pack import Pack

HUGGINGFACE = Pack(
    name="huggingface",
    aliases=("hf", "huggingface_hub"),
    hosts=("huggingface.co", "huggingface.cloud", "hf.space"),
    modules=("huggingface_hub", "text_generation"),
    codes=codes((AUTH, "GatedRepo"), (NOT_FOUND, "RepoNotFound RevisionNotFound EntryNotFound")),
    classes=table(
        # A built-in ConnectionError that waiting does not resolve.
        (CUT_OFF_BY_SETTING, "OfflineModeIsEnabled"),
        (OVERLOADED, "OverloadedError"),
        (SERVER_ERROR, "GenerationError IncompleteGenerationError"),
        (INVALID, "ValidationError"),
    ),
)

TGI = Pack(
    name="tgi",
    aliases=("text-generation-inference",),
    codes=codes((OVERLOADED, "overloaded"), (SERVER_ERROR, "generation incomplete_generation")),
)
