"""The packs that need no code of their own. A new OpenAI-compatible provider is one row here.

The least row is a name and its hosts: `Pack(name="deepseek", hosts=("api.deepseek.com",))`. Codes, statuses
and exception classes are named only where they differ from the general meaning of
`tidegate.providers.general`. A pack that must read texts or compute waits has a file of its own.
"""

from __future__ import annotations

from tidegate.providers.counting import Counting
from tidegate.providers.meaning import (
    AUTH,
    CONTENT_POLICY,
    CUT_OFF_BY_SETTING,
    INVALID,
    INVALID_OUTPUT,
    NO_MONEY,
    NOT_FOUND,
    OVERLOADED,
    RATE_LIMIT,
    SERVER_ERROR,
    TIMEOUT,
    codes,
    table,
)
from tidegate.providers.pack import Pack

TABLE = (
    # --- providers with OpenAI's interface ---
    # Others use OpenAI's codes too, so they are in the general tables. The pack names no module, because many
    # other providers are called through OpenAI's SDK.
    # Source: developers.openai.com error codes; help.openai.com 5955604 and 6614457; openai 3.57.0
    # `types/responses/response_error.py`, `types/beta/session_turn_error.py`.
    Pack(
        name="openai",
        hosts=("api.openai.com",),
        # A parameter that is too long, not the context window.
        codes=codes((INVALID, "string_above_max_length")),
    ),
    # 402 is an empty balance, with any code. Source: api-docs.deepseek.com "Error codes".
    Pack(name="deepseek", hosts=("api.deepseek.com",)),
    # Alibaba Model Studio, Qwen. `insufficient_quota` is tokens per minute here, not money. Its own SDK
    # raises nothing: a task gets a response object with `status_code` and `code`, and must check it.
    # Source: help.aliyun.com/en/model-studio "error-code"; dashscope 2.0.2.
    Pack(
        name="dashscope",
        aliases=("qwen", "alibaba", "aliyun", "bailian"),
        hosts=("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com"),
        modules=("dashscope",),
        codes=codes(
            (RATE_LIMIT, "Throttling Throttling.RateQuota Throttling.AllocationQuota insufficient_quota"),
            (NO_MONEY, "Arrearage"),
            (CONTENT_POLICY, "DataInspectionFailed data_inspection_failed"),
            (NOT_FOUND, "ModelNotFound"),
            (TIMEOUT, "InternalError.Timeout RequestTimeOut"),
        ),
    ),
    # Kimi. One 429 means an empty account; only the text shows that a prompt is too long.
    # Source: kimi.com "Kimi API"; MoonshotAI/kimi-cli#2011.
    Pack(
        name="moonshot",
        aliases=("kimi", "moonshotai"),
        hosts=("api.moonshot.cn", "api.moonshot.ai", "api.kimi.com"),
        codes=codes(
            (NO_MONEY, "exceeded_current_quota_error"),
            (RATE_LIMIT, "rate_limit_reached_error"),
            (OVERLOADED, "engine_overloaded_error"),
        ),
    ),
    # 498 is the flex tier without capacity; its limit on requests is counted over the day.
    # Source: console.groq.com "Rate limits"; developersdigest.tech "498 flex tier capacity exceeded";
    # groq 1.7.0.
    Pack(
        name="groq",
        counting=Counting(counts_cached=False),
        hosts=("api.groq.com",),
        modules=("groq",),
        codes=codes((OVERLOADED, "capacity_exceeded")),
        statuses={498: OVERLOADED},
        requests_window_seconds=86_400.0,
    ),
    # 429 means above your own rate, which grows with steady traffic; 503 means no capacity.
    # Source: docs.together.ai "Rate limits"; together 3.1.1.
    Pack(
        name="together",
        aliases=("togetherai", "together_ai"),
        hosts=("api.together.xyz", "api.together.ai"),
        modules=("together",),
    ),
    # 412 is an account that is suspended, or a LoRA that could not be loaded.
    # Source: docs.fireworks.ai "Inference error codes"; fireworks-ai 1.2.30.
    Pack(
        name="fireworks",
        aliases=("fireworks-ai", "fireworks_ai"),
        hosts=("api.fireworks.ai",),
        modules=("fireworks",),
        statuses={412: NO_MONEY},
    ),
    # It repeats the status as `error.code`. Any internal error may come as a 400.
    # Source: vllm-project/vllm `entrypoints/openai/engine/serving.py`.
    Pack(name="vllm"),
    # --- providers with an interface of their own ---
    # Errors have a message and no code; 498 is an invalid token.
    # Source: cohere-ai/cohere-developer-experience `errors.mdx`, `rate-limits.mdx`; cohere 7.3.1 `errors/`.
    Pack(
        name="cohere",
        hosts=("api.cohere.com", "api.cohere.ai"),
        modules=("cohere",),
        statuses={498: AUTH},
    ),
    # Inference and the Hub. A cold start is a 503 with `estimated_time`, a guess; some models never load.
    # Source: huggingface_hub 2.4.0 `errors.py`, `utils/_http.py`; huggingface/transformers#23793.
    Pack(
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
    ),
    # Text Generation Inference, also self-hosted.
    # Source: huggingface/text-generation-inference `router/src`.
    Pack(
        name="tgi",
        aliases=("text-generation-inference",),
        codes=codes((OVERLOADED, "overloaded"), (SERVER_ERROR, "generation incomplete_generation")),
    ),
    # The wait is `retry_after` in the body. Its SDK keeps only the text of the error.
    # Source: replicate 1.0.7 `exceptions.py`; nodetool-ai/nodetool#5196.
    Pack(name="replicate", hosts=("api.replicate.com",), modules=("replicate",)),
    # A full queue is a 503; a model that is not pulled is a 404; a stream breaks off with status -1.
    # Source: ollama/ollama `server/routes.go`, `docs/api/errors.mdx`; ollama 0.6.3.
    Pack(name="ollama", hosts=("ollama.com",), modules=("ollama",)),
    # --- libraries ---
    # Each of its exceptions is an `OSError`. `RetryError`: its own retries failed.
    # Source: requests 2.34.2 `exceptions.py`.
    Pack(name="requests", modules=("requests",), classes=table((SERVER_ERROR, "RetryError"))),
    # They parse a model's output: a validation error is taken as the fault of that output. They also check
    # values that no model wrote. A value that never fits ends its task after the same two attempts.
    # Source: pydantic 2.14 `ValidationError` (of pydantic_core); msgspec 0.23 `ValidationError`; jsonschema
    # `ValidationError`; langchain-core `OutputParserException`; instructor `IncompleteOutputException`,
    # `InstructorRetryException`; pydantic-ai `UnexpectedModelBehavior`.
    Pack(
        name="outputs",
        modules=(
            *("pydantic", "pydantic_core", "msgspec", "jsonschema"),
            *("langchain_core", "instructor", "pydantic_ai"),
        ),
        classes=table(
            (INVALID_OUTPUT, "ValidationError OutputParserException IncompleteOutputException"),
            (INVALID_OUTPUT, "InstructorRetryException UnexpectedModelBehavior"),
        ),
    ),
)
