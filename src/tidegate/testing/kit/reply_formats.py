"""Replies of a model as providers write them: whole and as a stream, in the format that a request expects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Json = Mapping[str, Any]
_WORDS = re.compile(r"\S+\s*|\s+")
CREATED_AT = 1_800_000_000
_CHARACTERS_PER_TOKEN = 4


def reply_body(path: str, text: str, request: Json) -> Json | None:
    """Return the body of a whole reply; None if the format of this path is unknown."""
    make = _of_path(path, _BODIES)
    return None if make is None else make(text, request)


def reply_events(path: str, text: str, request: Json) -> list[bytes] | None:
    """Return the events of a streamed reply; None if the format of this path is unknown."""
    make = _of_path(path, _STREAMS)
    return None if make is None else make(text, request)


def error_body(path: str, status: int, message: str) -> Json:
    """Return the body of an error."""
    kind = _ERROR_KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    if "/messages" in path:
        return {"type": "error", "error": {"type": kind, "message": message}}
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def event(data: Any, name: str = "") -> bytes:
    """Return one server-sent event. Text is sent as it is, anything else as JSON."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


_ERROR_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def _tokens(text: str) -> int:
    return len(text) // _CHARACTERS_PER_TOKEN + 1


def _chat_usage(text: str, request: Json) -> Json:
    prompt, answer = _tokens(json.dumps(request.get("messages", ""))), _tokens(text)
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


def _usage(text: str, request: Json) -> Json:
    asked = request.get("messages", request.get("input", ""))
    return {"input_tokens": _tokens(json.dumps(asked)), "output_tokens": _tokens(text)}


# --- OpenAI: chat completions ---


def _chat_head(kind: str, request: Json) -> Json:
    return {
        "id": "chatcmpl-test",
        "object": kind,
        "created": CREATED_AT,
        "model": request.get("model", "test"),
    }


def _chat_body(text: str, request: Json) -> Json:
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    return {
        **_chat_head("chat.completion", request),
        "choices": [choice],
        "usage": _chat_usage(text, request),
    }


def _chat_events(text: str, request: Json) -> list[bytes]:
    head = _chat_head("chat.completion.chunk", request)
    deltas: Iterable[Json] = (
        {"role": "assistant", "content": ""},
        *({"content": word} for word in _WORDS.findall(text)),
    )
    choices: list[Json] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    events: list[Json] = [{**head, "choices": [choice]} for choice in choices]
    if (request.get("stream_options") or {}).get("include_usage"):
        events.append({**head, "choices": [], "usage": _chat_usage(text, request)})
    return [*map(event, events), event("[DONE]")]


# --- OpenAI: responses ---


def _response_body(text: str, request: Json) -> Json:
    usage = _usage(text, request)
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {
        "id": "msg_test",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    return {
        "id": "resp_test",
        "object": "response",
        "created_at": CREATED_AT,
        "status": "completed",
        "model": request.get("model", "test"),
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {**usage, **details, "total_tokens": usage["input_tokens"] + usage["output_tokens"]},
    }


def _response_events(text: str, request: Json) -> list[bytes]:
    whole = _response_body(text, request)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    place = {"item_id": "msg_test", "output_index": 0, "content_index": 0}
    named: list[tuple[str, Json]] = [("response.created", {"response": begun})]
    named += [
        ("response.output_text.delta", {**place, "delta": word, "logprobs": []})
        for word in _WORDS.findall(text)
    ]
    named += [
        ("response.output_text.done", {**place, "text": text, "logprobs": []}),
        ("response.completed", {"response": whole}),
    ]
    return [
        event({"type": name, "sequence_number": number, **data}, name)
        for number, (name, data) in enumerate(named)
    ]


# --- Anthropic: messages ---


def _message_body(text: str, request: Json) -> Json:
    return {
        "id": "msg_test",
        "type": "message",
        "role": "assistant",
        "model": request.get("model", "test"),
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": _usage(text, request),
    }


def _message_events(text: str, request: Json) -> list[bytes]:
    whole = _message_body(text, request)
    begun = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    deltas = [{"type": "text_delta", "text": word} for word in _WORDS.findall(text)]
    events: list[Json] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": whole["usage"]["output_tokens"]},
        },
        {"type": "message_stop"},
    ]
    return [event(each, each["type"]) for each in events]


_BODIES: Mapping[str, Callable[[str, Json], Json]] = {
    "/chat/completions": _chat_body,
    "/responses": _response_body,
    "/messages": _message_body,
}
_STREAMS: Mapping[str, Callable[[str, Json], list[bytes]]] = {
    "/chat/completions": _chat_events,
    "/responses": _response_events,
    "/messages": _message_events,
}


def _of_path(path: str, makers: Mapping[str, Any]) -> Any:
    return next((make for end, make in makers.items() if path.rstrip("/").endswith(end)), None)
