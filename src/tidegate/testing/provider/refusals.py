"""The errors of an OpenAI-compatible provider: status, code, message, and outcome in the ledger."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.responses import Response

from tidegate.testing.provider.buckets import LimitExceeded
from tidegate.testing.provider.headers import go_duration, retry_headers
from tidegate.testing.provider.ledger import THROTTLED
from tidegate.testing.provider.messages import json_response

INVALID_REQUEST = "invalid_request_error"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call gets no model output."""

    status: int
    type: str
    message: str
    code: str | None = None
    param: str | None = None
    outcome: str = ""
    """The outcome in the ledger; empty for the code, else the type."""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ledger_outcome(self) -> str:
        """The outcome in the ledger."""
        return self.outcome or self.code or self.type

    def response(self) -> Response:
        """Return the error as an HTTP response."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return json_response(self.status, {"error": error}, self.headers)


def invalid_request(message: str, *, status: int = 400, param: str | None = None) -> Refusal:
    """The request cannot be read, or asks for what does not exist."""
    return Refusal(status, INVALID_REQUEST, message, param=param)


def wrong_key(key: str) -> Refusal:
    """The API key is missing or unknown."""
    message = f"Incorrect API key provided: {key[:4]}***." if key else "You didn't provide an API key."
    return Refusal(401, INVALID_REQUEST, message, code="invalid_api_key")


def unknown_model(model: str) -> Refusal:
    """The account has no model of that name."""
    message = f"The model `{model[:200]}` does not exist or you do not have access to it."
    return Refusal(404, INVALID_REQUEST, message, code="model_not_found", param="model")


def budget_exceeded() -> Refusal:
    """The account's budget is spent: a 429 that no wait resolves."""
    message = "You exceeded your current quota, please check your plan and billing details."
    return Refusal(429, "insufficient_quota", message, code="insufficient_quota")


def limit_exceeded(exceeded: LimitExceeded, model: str) -> Refusal:
    """Too many requests or tokens a minute; or, without a wait, more than the bucket can ever hold."""
    if math.isinf(exceeded.wait_seconds):
        return _too_large(exceeded, model)
    short = "RPM" if exceeded.dimension == "requests" else "TPM"
    message = (
        f"Rate limit reached for {model[:200]} on {exceeded.dimension} per min ({short}): "
        f"Limit {exceeded.limit}, Used {exceeded.used}, Requested {exceeded.requested}. "
        f"Please try again in {go_duration(exceeded.wait_seconds)}."
    )
    return Refusal(
        429,
        exceeded.dimension,
        message,
        code="rate_limit_exceeded",
        outcome=THROTTLED[exceeded.dimension],
        headers=retry_headers(exceeded.wait_seconds),
    )


def _too_large(exceeded: LimitExceeded, model: str) -> Refusal:
    message = (
        f"Request too large for {model[:200]} on {exceeded.dimension} per min (TPM): "
        f"Limit {exceeded.limit}, Requested {exceeded.requested}. "
        "The input or output tokens must be reduced in order to run successfully."
    )
    return Refusal(429, exceeded.dimension, message, code="rate_limit_exceeded", outcome="too_large")


def prompt_too_long(tokens: int, window: int, param: str) -> Refusal:
    """The prompt does not fit the model's context window."""
    message = (
        f"This model's maximum context length is {window} tokens. However, your {param} resulted in "
        f"{tokens} tokens. Please reduce the length of the {param}."
    )
    return Refusal(400, INVALID_REQUEST, message, code="context_length_exceeded", param=param)


def policy_violation(param: str) -> Refusal:
    """The content policy forbids the prompt."""
    message = "Your request was rejected as a result of our safety system."
    return Refusal(400, INVALID_REQUEST, message, code="content_policy_violation", param=param)


def overloaded(status: int) -> Refusal:
    """The model is too busy; nothing was generated."""
    type_ = "overloaded_error" if status == 529 else "server_error"
    message = "The engine is currently overloaded, please try again later."
    return Refusal(status, type_, message, outcome=f"overloaded {status}")


def unavailable() -> Refusal:
    """An outage in which the server still responds."""
    message = "The server is temporarily unable to handle the request."
    return Refusal(503, "server_error", message, outcome="outage 503")


def idempotency_key_reused() -> Refusal:
    """The idempotency key was used with another content before."""
    message = "This Idempotency-Key was used with a different request."
    return Refusal(400, "idempotency_error", message, code="idempotency_key_reused")
