"""The same model behind Anthropic's messages interface: how its answers, streams and errors are written."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from tidegate.testing.provider.completions import Completion, words_in
from tidegate.testing.provider.messages import event_stream, json_response
from tidegate.testing.provider.prompts import Prompt
from tidegate.testing.provider.refusals import Refusal

PATH = "/v1/messages"

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "api_error",
    529: "overloaded_error",
}


def error_response(refusal: Refusal) -> Response:
    """Return a refusal as an HTTP answer."""
    error: dict[str, object] = {
        "type": _ERROR_TYPES.get(refusal.status, "api_error"),
        "message": refusal.message,
    }
    if refusal.code == "insufficient_quota":
        error["details"] = {"error_code": "enforced_spend_limit_reached"}
    return json_response(refusal.status, {"type": "error", "error": error}, refusal.headers)


def render_message(answer: Completion, prompt: Prompt, *, call_id: str, pause_seconds: float) -> Response:
    """Return the answer, whole or in pieces as the prompt asked for."""
    head: dict[str, object] = {
        "id": f"msg_{call_id}",
        "type": "message",
        "role": "assistant",
        "model": prompt.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": prompt.tokens, "output_tokens": 1},
    }
    ended = "max_tokens" if answer.cut_short else "end_turn"
    if prompt.stream:
        return event_stream(_stream(head, answer, ended), pause_seconds)
    usage = {"input_tokens": prompt.tokens, "output_tokens": answer.tokens_out}
    content = [{"type": "text", "text": answer.text}]
    return json_response(200, {**head, "content": content, "stop_reason": ended, "usage": usage})


def _stream(head: dict[str, object], answer: Completion, ended: str) -> tuple[bytes, ...]:
    block = {"type": "text", "text": ""}
    texts = [{"type": "text_delta", "text": word} for word in words_in(answer.text)]
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": head},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": text} for text in texts),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": ended, "stop_sequence": None},
            "usage": {"output_tokens": answer.tokens_out},
        },
        {"type": "message_stop"},
    ]
    return tuple(
        f"event: {event['type']}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n" for event in events
    )
