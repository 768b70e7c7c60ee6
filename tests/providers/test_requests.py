import json

import pytest

from tidegate.providers.requests import Sizes, sizes_of

IMAGE = "data:image/png;base64," + "A" * 40_000


@pytest.mark.parametrize(
    ("body", "sizes"),
    [
        (
            {"model": "gpt-5", "messages": [{"role": "user", "content": "x" * 395}], "max_tokens": 50},
            Sizes("gpt-5", 100, 50),
        ),
        (
            {
                "model": "m",
                "messages": [{"content": [{"text": "word " * 80}, {"image_url": {"url": IMAGE}}]}],
            },
            Sizes("m", 100, 0),
        ),
        ({"model": "m", "input": ["abcd", "efgh"], "max_output_tokens": 9}, Sizes("m", 2, 9)),
        (
            {"contents": [{"parts": [{"text": "abcdefgh"}]}], "generationConfig": {"maxOutputTokens": 7}},
            Sizes("", 2, 7),
        ),
        ({"prompt": "abcdefgh", "options": {"num_predict": 3}}, Sizes("", 2, 3)),
        ({"inferenceConfig": {"maxTokens": 4}, "system": [{"text": "abcd"}]}, Sizes("", 1, 4)),
        ({"model": 7, "max_tokens": -1}, Sizes()),
        ({"max_completion_tokens": 5, "max_tokens": 9}, Sizes(output_tokens=5)),
    ],
    ids=["chat", "image", "embeddings", "gemini", "ollama", "bedrock", "nonsense", "both"],
)
def test_the_sizes_of_a_request_are_read(body, sizes):
    assert sizes_of(body) == sizes
    assert sizes_of(json.dumps(body).encode()) == sizes


@pytest.mark.parametrize("body", [b"", b"\x00\x01", None, [], "multipart", b"[" * 100_000])
def test_a_body_that_is_not_a_json_object_counts_as_nothing(body):
    assert sizes_of(body) == Sizes()


def test_a_deeply_nested_prompt_ends():
    body = {"messages": []}
    for _ in range(50_000):
        body = {"messages": [body]}
    assert sizes_of(body).input_tokens == 0
