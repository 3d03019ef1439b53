"""The input ``embedding_request``, as NVIDIA's backend takes it."""

from __future__ import annotations

from typing import Any

import pytest

from rbln_vllm_backend import request
from rbln_vllm_backend.engine import Embedding, TokenIds
from rbln_vllm_backend.errors import InvalidRequest
from rbln_vllm_backend.request import Request
from rbln_vllm_backend.terms import Terms


def read(document: bytes, **tensors: Any) -> Request:
    return request.read({"embedding_request": [document], **tensors}, {}, "7", Terms())


def test_a_text_or_token_ids_are_embedded() -> None:
    asked = read(b'{"input": "hi", "pooling_params": {}}', text_input=[b""], return_num_input_tokens=[True])
    assert (asked.prompt, asked.embedding, asked.prefix) == ("hi", Embedding(), "")
    assert asked.asked == {"return_num_input_tokens"}
    assert read(b'{"input": [1, 2]}').prompt == TokenIds([1, 2])


@pytest.mark.parametrize("dimensions", [b"8", b"[8]"])
def test_dimensions_are_a_number_or_as_nvidias_backend_has_them(dimensions: bytes) -> None:
    assert read(b'{"input": "hi", "pooling_params": {"dimensions": ' + dimensions + b"}}").embedding == Embedding(8)


@pytest.mark.parametrize(
    ("document", "tensors", "message"),
    [
        (b"[]", {}, "embedding_request = '[]': must be a JSON object with input."),
        (
            b"{}",
            {},
            "embedding_request.input = None: must be a text that is not empty, or a list of token ids.",
        ),
        (
            b'{"input": ["a", "b"]}',
            {},
            "embedding_request.input = ['a', 'b']: must be a text that is not empty, or a list of token ids.",
        ),
        (b'{"input": "a", "x": 1}', {}, "embedding_request: 'x' is not one of its keys; known: input, pooling_params."),
        (
            b'{"input": "a", "pooling_params": {"dimensions": 1.5}}',
            {},
            "embedding_request.pooling_params.dimensions = 1.5: must be an integer from 1 to 2147483647.",
        ),
        (
            b'{"input": "a", "pooling_params": 5}',
            {},
            "embedding_request.pooling_params = 5: must be a JSON object.",
        ),
        (b'{"input": "a"}', {"stream": [True]}, "stream: not with embedding_request, whose answer is one vector."),
        (
            b'{"input": "a"}',
            {"text_input": [b"b"]},
            "text_input: the prompt of an embedding is the key input of embedding_request.",
        ),
    ],
)
def test_what_is_wrong_is_named(document: bytes, tensors: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(document, **tensors)
    assert str(caught.value) == message
