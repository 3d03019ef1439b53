"""A request's tensors, read strictly."""

from __future__ import annotations

from typing import Any

import pytest

from rbln_vllm_backend import request
from rbln_vllm_backend.engine import Chat, Illustrated, TokenIds
from rbln_vllm_backend.errors import InvalidRequest, NotFound, RequestError
from rbln_vllm_backend.request import Request
from rbln_vllm_backend.serving_options import ServingOptions
from rbln_vllm_backend.terms import Terms

TERMS = Terms()


def read(parameters: dict[str, object] | None = None, terms: Terms = TERMS, **tensors: Any) -> Request:
    return request.read(tensors, parameters or {}, "7", terms)


def refusal(parameters: dict[str, object] | None = None, terms: Terms = TERMS, **tensors: Any) -> str:
    with pytest.raises(RequestError) as caught:
        read(parameters, terms, **tensors)
    return str(caught.value)


def granting(**options: Any) -> Terms:
    return Terms(options=ServingOptions(**options))


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
        ({}, "text_input: the prompt is missing; send text_input, messages or input_ids."),
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


def test_a_space_and_a_nul_are_prompts() -> None:
    assert read(text_input=[b" "]).prompt == " "
    assert read(text_input=[b"\x00"]).prompt == "\x00"


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(RequestError) as caught:
        read(text_input=[b"a"], sampling_parameters=[b"x" * 1_000_000])
    assert len(str(caught.value)) < 300


MESSAGES = (
    b'[{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]'
)


def test_messages_are_a_prompt_with_the_operators_template_kwargs_below_the_clients() -> None:
    terms = granting(default_chat_template_kwargs={"enable_thinking": False, "a": 1})
    asked = read(terms=terms, messages=[MESSAGES], chat_template_kwargs=[b'{"enable_thinking": true}'])
    assert asked.prompt == Chat(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        ],
        {"enable_thinking": True, "a": 1},
    )
    assert asked.prefix == ""


def test_token_ids_are_a_prompt_without_a_prefix() -> None:
    asked = read(input_ids=[5, 6, 7], exclude_input_in_output=[False])
    assert (asked.prompt, asked.prefix) == (TokenIds([5, 6, 7]), "")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            {"text_input": [b"a"], "input_ids": [1]},
            "input_ids: the prompt is given twice, as text_input and as input_ids; send one of them.",
        ),
        ({"input_ids": []}, "input_ids: the prompt is empty."),
        ({"input_ids": [1, 2.5]}, "input_ids = [1, 2.5]: must be integers."),
        ({"messages": [b"[]"]}, "messages: the prompt is empty."),
        ({"messages": [b'{"a"']}, "messages = '{\"a\"': not valid JSON (Input data was truncated)."),
        ({"messages": [b"{}"]}, "messages = '{}': must be a JSON list of objects with role and content."),
        ({"messages": [b"[5]"]}, "messages[0] = 5: must be an object with role and content."),
        (
            {"messages": [b'[{"content": "x"}]']},
            "messages[0].role = None: must be a text such as user, system or assistant.",
        ),
        (
            {"messages": [b'[{"role": "user", "content": 5}]']},
            'messages[0].content = 5: must be a text, or a list of parts such as {"type": "text", "text": "Hi"}.',
        ),
        (
            {"messages": [b'[{"role": "user", "content": ["x"]}]']},
            "messages[0].content[0] = 'x': must be a text, or a list of parts such as "
            '{"type": "text", "text": "Hi"}.',
        ),
        (
            {"messages": [b'[{"role": "user", "content": [{"type": "text"}]}]']},
            "messages[0].content[0].text = None: must be a text.",
        ),
        (
            {"messages": [b'[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]']},
            "messages[0].content[0].type = 'image_url': only parts of type text are taken.",
        ),
        (
            {"text_input": [b"a"], "chat_template_kwargs": [b"{}"]},
            "chat_template_kwargs: only for a prompt of messages, and this one is text_input.",
        ),
        (
            {"messages": [MESSAGES], "chat_template_kwargs": [b'{"chat_template": "x"}']},
            "chat_template_kwargs: chat_template is the backend's own and can't be set.",
        ),
        (
            {"messages": [MESSAGES], "chat_template_kwargs": [b'{"continue_final_message": "false"}']},
            "chat_template_kwargs: continue_final_message must be true or false, and is 'false'.",
        ),
        (
            {"messages": [MESSAGES], "chat_template_kwargs": [b"[]"]},
            "chat_template_kwargs = '[]': must be a JSON object.",
        ),
    ],
)
def test_a_bad_prompt_is_named(tensors: dict[str, Any], message: str) -> None:
    assert refusal(**tensors) == message


def test_limits_are_named_in_the_refusal() -> None:
    assert refusal({"n": 17}, text_input=[b"a"]) == "n = 17: serving.max_n allows 16 at most."
    assert refusal({"max_tokens": 11}, granting(max_tokens_cap=10), text_input=[b"a"]) == (
        "max_tokens = 11: serving.max_tokens_cap allows 10 at most."
    )
    assert refusal(None, granting(max_request_bytes=1024), text_input=[b"x" * 1000], input_ids=[1] * 4) == (
        "The request's inputs have 1032 bytes; serving.max_request_bytes allows 1024."
    )
    named = {"structured_outputs": '{"grammar": "root ::= \\"a\\""}'}
    assert refusal(named, granting(structured_outputs=("json", "regex")), text_input=[b"a"]) == (
        "structured_outputs: grammar is off; serving.structured_outputs allows json, regex."
    )
    assert read({"n": 20}, granting(max_n=20), text_input=[b"a"]).sequences == 20


@pytest.mark.parametrize(("name", "value"), [("min_p", 0.05), ("logit_bias", '{"5": 1}')])
def test_what_speculation_cannot_do_is_refused_as_such(name: str, value: object) -> None:
    terms = Terms(speculative_method="ngram")
    message = refusal({name: value, "temperature": 0}, terms, text_input=[b"a"])
    assert message.startswith(f"{name} = ")
    assert message.endswith(": not with speculative decoding, and this model speculates (ngram).")
    assert read({name: value}, text_input=[b"a"]).sampling.keys() == {name}


def test_min_p_of_zero_passes_with_speculation() -> None:
    terms = Terms(speculative_method="ngram")
    assert read({"min_p": 0, "logit_bias": "{}"}, terms, text_input=[b"a"]).sampling == {"min_p": 0.0, "logit_bias": {}}


def test_token_ids_come_for_one_sequence_only() -> None:
    assert refusal({"n": 2}, text_input=[b"a"], return_token_ids=[True]) == (
        "return_token_ids: token ids are sent for one sequence only, and n is above 1."
    )


def test_priority_counts_only_where_the_engine_schedules_by_it() -> None:
    assert read(terms=Terms(by_priority=True), text_input=[b"a"], priority=[-3]).priority == -3
    assert refusal(text_input=[b"a"], priority=[0]) == (
        "priority = 0: this engine serves in order of arrival; with scheduling_policy = priority it would count."
    )


@pytest.mark.parametrize(
    ("timeout_s", "triton_us", "parameter", "deadline_s"),
    [
        ([0.5], 2_000_000, 3_000_000, 0.5),
        (None, 2_000_000, 3_000_000, 2.0),
        (None, 0, 3_000_000, 3.0),
        (None, 0, "3000000", 3.0),
        (None, 0, 0, 9.0),
        (None, 0, None, 9.0),
    ],
)
def test_the_deadline_is_the_nearest_to_the_client(
    timeout_s: list[float] | None, triton_us: int, parameter: object, deadline_s: float
) -> None:
    tensors: dict[str, Any] = {"text_input": [b"a"], **({"timeout_s": timeout_s} if timeout_s else {})}
    parameters = {} if parameter is None else {"timeout": parameter}
    asked = request.read(tensors, parameters, "7", granting(default_timeout_s=9.0), triton_us)
    assert asked.timeout_s == deadline_s


def test_ignored_parameters_are_passed_over() -> None:
    terms = granting(ignored_parameters=("id", "x-proxy", "timeout"))
    asked = read({"id": "7", "x-proxy": 1, "timeout": 5, "max_tokens": 1}, terms, text_input=[b"a"])
    assert (asked.sampling, asked.timeout_s) == ({"max_tokens": 1}, None)
    assert refusal({"x-proxy": 1}, text_input=[b"a"]).startswith("'x-proxy' is not a sampling parameter; ")


@pytest.mark.parametrize(
    ("tensors", "parameters", "message"),
    [
        ({"timeout_s": [0.0]}, {}, "timeout_s = 0.0: must be a number above 0 and at most 604800."),
        ({"timeout_s": [float("nan")]}, {}, "timeout_s = nan: must be a number above 0 and at most 604800."),
        ({}, {"timeout": 1.5}, "timeout = 1.5: must be an integer from 0 to 604800000000, in microseconds."),
        ({}, {"timeout": "1 s"}, "timeout = '1 s': must be an integer from 0 to 604800000000, in microseconds."),
    ],
)
def test_a_bad_deadline_is_named(tensors: dict[str, Any], parameters: dict[str, object], message: str) -> None:
    assert refusal(parameters, text_input=[b"a"], **tensors) == message


def test_an_adapter_is_known_by_its_name() -> None:
    terms = Terms(adapters={"french": "/x", "german": "/y"})
    asked = read(None, terms, text_input=[b"a"], sampling_parameters=[b'{"lora_name": "french", "seed": 1}'])
    assert (asked.adapter, asked.sampling) == ("french", {"seed": 1})
    with pytest.raises(NotFound) as caught:
        read({"lora_name": "frensh"}, terms, text_input=[b"a"])
    assert str(caught.value) == "lora_name = 'frensh': no such adapter; this model has french, german."
    assert refusal({"lora_name": "x"}, text_input=[b"a"]) == (
        "lora_name = 'x': no such adapter; this model has none (serving.lora.NAME in config.pbtxt)."
    )


PIXEL = b"R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs="  # a GIF of one pixel


def test_images_come_as_base64_with_a_text() -> None:
    asked = read(text_input=[b"<image> What is it?"], image=[PIXEL, PIXEL])
    assert isinstance(asked.prompt, Illustrated)
    assert asked.prompt.text == asked.prefix == "<image> What is it?"
    assert [image[:6] for image in asked.prompt.images] == [b"GIF89a"] * 2
    assert read(text_input=[b"hi"], image=[]).prompt == "hi"


def test_an_image_that_is_no_base64_or_has_no_text_is_named() -> None:
    assert refusal(text_input=[b"a"], image=[PIXEL, b"a b"]) == "image[1] = b'a b': must be base64."
    assert refusal(input_ids=[1], image=[PIXEL]) == "image: only for a prompt of text_input, and this one is input_ids."
