"""A request's tensors, read strictly."""

from __future__ import annotations

from typing import Any

import pytest

from rbln_vllm_backend import request
from rbln_vllm_backend.errors import InvalidRequest, RequestError, Unsupported
from rbln_vllm_backend.request import Request


def read(parameters: dict[str, object] | None = None, **tensors: Any) -> Request:
    return request.read(tensors, parameters or {}, client_id="7", ignored_parameters=("id",))


def test_only_the_prompt_is_needed() -> None:
    assert read(text_input=[b"hi"]) == Request(
        prompt="hi", stream=False, sampling={}, asked=frozenset(), prefix="hi", client_id="7"
    )


def test_everything_can_be_asked() -> None:
    asked = read(
        {"max_tokens": 3, "id": "x"},
        text_input=[b"hi"],
        stream=[True],
        sampling_parameters=[b'{"n": 2}'],
        return_finish_reason=[True],
        return_speculation=[True],
        return_logprobs=[False],
    )
    assert asked.sampling == {"n": 2, "max_tokens": 3}
    assert asked.asked == {"return_finish_reason", "return_speculation"}
    assert asked.sequences == 2


@pytest.mark.parametrize(
    ("tensors", "prefix"),
    [
        ({}, "hi"),
        ({"exclude_input_in_output": [False]}, "hi"),
        ({"exclude_input_in_output": [True]}, ""),
        ({"stream": [True]}, ""),
        ({"stream": [True], "exclude_input_in_output": [True]}, ""),
    ],
)
def test_a_unary_answer_starts_with_its_input_unless_excluded(tensors: dict[str, Any], prefix: str) -> None:
    assert read(text_input=[b"hi"], **tensors).prefix == prefix


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "text_input: the prompt is missing or empty."),
        ({"text_input": [b""]}, "text_input: the prompt is missing or empty."),
        ({"text_input": []}, "text_input: must hold one element, and holds 0."),
        ({"text_input": [b"a", b"b"]}, "text_input: must hold one element, and holds 2."),
        ({"text_input": [b"\xff\xfe"]}, "text_input = b'\\xff\\xfe': must be UTF-8 (invalid start byte at byte 0)."),
        ({"text_input": [b"a"], "stream": [b"yes"]}, "stream = b'yes': must be true or false."),
        (
            {"text_input": [b"a"], "return_logprobs": [True, True]},
            "return_logprobs: must hold one element, and holds 2.",
        ),
        ({"text_input": [5]}, "text_input = 5: must be text."),
        (
            {"text_input": [b"a"], "stream": [True], "exclude_input_in_output": [False]},
            "exclude_input_in_output = False: a stream never repeats its input.",
        ),
        (
            {"text_input": [b"a"], "sampling_parameters": [b"\xff"]},
            "sampling_parameters = b'\\xff': must be UTF-8 (invalid start byte at byte 0).",
        ),
    ],
)
def test_a_bad_tensor_is_named(tensors: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(**tensors)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["image", "embedding_request"])
def test_reserved_inputs_are_refused_as_unsupported(name: str) -> None:
    with pytest.raises(Unsupported, match=name):
        read(text_input=[b"a"], **{name: [b"x"]})


def test_a_space_and_a_nul_are_prompts() -> None:
    assert read(text_input=[b" "]).prompt == " "
    assert read(text_input=[b"\x00"]).prompt == "\x00"


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(RequestError) as caught:
        read(text_input=[b"a"], sampling_parameters=[b"x" * 1_000_000])
    assert len(str(caught.value)) < 300
