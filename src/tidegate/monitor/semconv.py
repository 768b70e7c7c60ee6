"""Every OpenTelemetry name that Tidegate records: of spans, attributes, events and metrics.

Sources: the semantic conventions of messaging (v1.44) and of generative AI
(`open-telemetry/semantic-conventions-genai`, v0.1.0). Both conventions are in development: their names may
change, and then they change here. The constants of `opentelemetry-semantic-conventions` are not used, because
it marks those of generative AI as deprecated since they moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SYSTEM: Final = "tidegate"

# --- messaging: spans and attributes ---------------------------------------------------------------------

SEND: Final = "send"
PROCESS: Final = "process"

MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_OPERATION_NAME: Final = "messaging.operation.name"
MESSAGING_OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGING_DESTINATION_NAME: Final = "messaging.destination.name"
MESSAGING_MESSAGE_ID: Final = "messaging.message.id"
MESSAGING_BATCH_MESSAGE_COUNT: Final = "messaging.batch.message_count"
MESSAGING_CLIENT_ID: Final = "messaging.client.id"
ERROR_TYPE: Final = "error.type"

TASK_NAME: Final = "tidegate.task.name"
RUN: Final = "tidegate.run"
ATTEMPT: Final = "tidegate.attempt"
MAX_ATTEMPTS: Final = "tidegate.max_attempts"
QUEUE_WAIT: Final = "tidegate.queue.wait"
OUTCOME: Final = "tidegate.outcome"
CHARGE: Final = "tidegate.charge"
VERDICT: Final = "tidegate.verdict"
RETRY_REASON: Final = "tidegate.retry.reason"
RETRY_DELAY: Final = "tidegate.retry.delay"
UPSTREAM: Final = "tidegate.upstream"
TENANT: Final = "tidegate.tenant"
IN_DOUBT: Final = "tidegate.call.in_doubt"

STEP: Final = "step"
STEP_NAME: Final = "tidegate.step.name"
STEP_KEY: Final = "tidegate.step.key"
STEP_OUTCOME: Final = "tidegate.step.outcome"

EXCEPTION: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"

# --- messaging: metrics ----------------------------------------------------------------------------------

SENT_MESSAGES: Final = "messaging.client.sent.messages"
CONSUMED_MESSAGES: Final = "messaging.client.consumed.messages"
SEND_DURATION: Final = "messaging.client.operation.duration"
PROCESS_DURATION: Final = "messaging.process.duration"

DURATION_BUCKETS: Final = (
    0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200,
)  # fmt: skip
"""The buckets in seconds. The buckets that the conventions advise end at 10 s, where AI tasks begin."""

# --- generative AI ---------------------------------------------------------------------------------------

GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
GEN_AI_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
GEN_AI_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
GEN_AI_CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
GEN_AI_REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
GEN_AI_MODALITY: Final = "gen_ai.token.modality"
GEN_AI_DIRECTION: Final = "gen_ai.token.type"
HTTP_RESPONSE_STATUS_CODE: Final = "http.response.status_code"

INFERENCE_DURATION: Final = "gen_ai.client.inference.duration"
USED_TOKENS: Final[Mapping[str, str]] = {
    "input_tokens": "gen_ai.client.inference.usage.input_tokens",
    "output_tokens": "gen_ai.client.inference.usage.output_tokens",
    "cached_tokens": "gen_ai.client.inference.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.client.inference.usage.cache_write.input_tokens",
    "reasoning_tokens": "gen_ai.client.inference.usage.reasoning.output_tokens",
}
"""The counter of each field of `Usage`."""

STABILITY_OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
GEN_AI_DUP: Final = "gen_ai/dup"
"""The value of that variable with which the two metrics below are also recorded, because most tools of 2025
and 2026 read them."""
OLD_USAGE: Final = "gen_ai.client.token.usage"
OLD_OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
OLD_USAGE_BUCKETS: Final = tuple(4**power for power in range(14))

_PROVIDERS: Final[Mapping[str, str]] = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "groq": "groq",
    "mistral": "mistral_ai",
    "openai": "openai",
    "perplexity": "perplexity",
    "vertex": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""The names of providers in the conventions, where they differ from ours or are fixed."""


def provider_name(provider: str) -> str:
    """Return the name of a provider in the conventions; the given name if they have none.

    Args:
        provider: As an upstream names it: `openai`, `azure-eu`, `bedrock:claude`.
    """
    first = next((name for name in _PROVIDERS if provider.startswith(name)), "")
    return _PROVIDERS.get(first, provider)
