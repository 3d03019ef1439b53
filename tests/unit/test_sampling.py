"""Sampling parameters: what clients of other servers send, and what must never reach the engine."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from rbln_vllm_backend import sampling
from rbln_vllm_backend.errors import InvalidRequest


def refusal(document: str | None, fields: dict[str, object] | None = None) -> str:
    with pytest.raises(InvalidRequest) as caught:
        sampling.read(document, fields or {})
    return str(caught.value)


def test_the_document_is_read_with_its_types() -> None:
    document = (
        '{"temperature": 0, "top_p": 0.9, "max_tokens": 8, "stop": ["\\n", "END"], "seed": -1, "ignore_eos": true,'
        ' "stop_token_ids": [1, 2], "logit_bias": {"5": 1}, "structured_outputs": {"regex": "a+"}, "top_k": null}'
    )
    assert sampling.read(document, {}) == {
        "temperature": 0.0,
        "top_p": 0.9,
        "max_tokens": 8,
        "stop": ["\n", "END"],
        "seed": -1,
        "ignore_eos": True,
        "stop_token_ids": [1, 2],
        "logit_bias": {5: 1.0},
        "structured_outputs": {"regex": "a+"},
    }


def test_strings_that_spell_a_value_are_read_as_nvidias_backend_does() -> None:
    document = (
        '{"temperature": "0.1", "max_tokens": "5", "ignore_eos": "true", "structured_outputs": "{\\"json\\": {}}"}'
    )
    assert sampling.read(document, {}) == {
        "temperature": 0.1,
        "max_tokens": 5,
        "ignore_eos": True,
        "structured_outputs": {"json": "{}"},
    }


CHOICES = "choice must be a list of 1 to 1024 texts of at most 65536 characters together."


@pytest.mark.parametrize(
    ("value", "read"), [(0.7, 0.7), ("0.7", 0.7), (1, 1.0)], ids=["number", "spelled number", "integer"]
)
def test_a_number_in_the_request_parameters(value: object, read: float) -> None:
    assert sampling.read(None, {"temperature": value}) == {"temperature": read}


@pytest.mark.parametrize(("value", "read"), [(True, True), ("true", True), ("false", False)])
def test_false_is_not_true(value: object, read: bool) -> None:
    assert sampling.read(None, {"ignore_eos": value}) == {"ignore_eos": read}


def test_the_tensor_wins_key_by_key() -> None:
    assert sampling.read('{"max_tokens": 5}', {"max_tokens": 9, "seed": 1}) == {"max_tokens": 5, "seed": 1}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("max_tokens", 0),
        ("seed", 1.5),
        ("seed", 2**70),
        ("min_tokens", 1.5),
        ("logprobs", 2.5),
        ("logprobs", -2),
        ("top_k", True),
        ("ignore_eos", 1),
        ("skip_special_tokens", 1),
        ("n", 0),
        ("n", 20000),
        ("top_p", 0),
        ("top_p", 1.5),
        ("temperature", -1),
        ("stop", ""),
        ("stop", [""]),
        ("stop", ["a", 5]),
        ("stop_token_ids", [1.5]),
        ("logit_bias", {"x": 1}),
        ("logit_bias", [1]),
        ("structured_outputs", {}),
        ("structured_outputs", []),
        ("allowed_token_ids", [-1]),
        ("repetition_penalty", 1e-46),
        ("repetition_penalty", 1e39),
        ("bad_words", "word"),
        ("bad_words", ["x"] * 1025),
        ("bad_words", ["x" * 8193] * 2),
        ("bad_words", ["x", ""]),
        ("stop", ["x"] * 65),
        ("stop_token_ids", [1] * 1025),
        ("logprobs", -1),
        ("temperature", float("nan")),
        ("temperature", 2.5),
        ("stream_interval", 0),
        ("thinking_token_budget", 1.5),
        ("repetition_detection", {"max_pattern_size": 2}),
        ("repetition_detection", {"max_pattern_size": 2, "min_pattern_size": 3, "min_count": 2}),
        ("repetition_detection", {"size": 2}),
        ("repetition_detection", {"max_pattern_size": True, "min_count": 2}),
        ("lora_name", ""),
    ],
)
def test_a_wrong_type_or_range_names_the_parameter(name: str, value: Any) -> None:
    message = refusal(None, {name: value})
    assert message.startswith(f"{name} = ")
    assert f"must be {sampling.PARAMETERS[name].rule.words}." in message


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ({"no_such": 1}, "'no_such' is not one of json, regex, choice, grammar, json_object, structural_tag."),
        ({"json_object": False}, "json_object must be true."),
        ({"json": ""}, "json must be a JSON schema of at most 65536 characters."),
        ({"regex": 5}, "regex must be a regular expression of at most 4096 characters."),
        (
            {"regex": "a" * 4097},
            "regex must be a regular expression of at most 4096 characters.",
        ),
        ({"choice": []}, CHOICES),
        ({"choice": ["x"] * 1025}, CHOICES),
        ({"choice": ["x" * 300] * 300}, CHOICES),
        (
            {"grammar": "x" * 65_537},
            "grammar must be a grammar of at most 65536 characters and 1000 rules and groups, no rule defined twice, "
            "without more than 256 blanks in a row; in Lark without directives but %ignore, &, ~ and parameters.",
        ),
        ({"grammar": 'root ::= "a"\n root  ::= "b"'}, "no rule defined twice"),
        ({"grammar": 'root ::= "a"\r root  ::= "b"'}, "no rule defined twice"),
        ({"grammar": "\n".join(f"r{n} ::= r{n + 1}" for n in range(1001))}, "and 1000 rules and groups"),
        ({"grammar": "start: r0\n" + "\n".join(f"r{n}: r{n + 1}" for n in range(1000))}, "and 1000 rules and groups"),
        (
            {"grammar": "start: r0\n" + "\n".join(f"r{n}: {'(' * 20}r{n + 1}{')?' * 20}" for n in range(50))},
            "and groups",
        ),
        ({"grammar": 'root ::= "a"' + "\n" * 257}, "without more than 256 blanks in a row"),
        ({"grammar": 'start: %json {"maxItems": 1000000000}'}, "in Lark without directives but %ignore"),
        ({"grammar": "%llguidance {}\nstart: /a/"}, "in Lark without directives but %ignore"),
        ({"grammar": "\x0cstart: A\nA: /a+/ & /(a|b)/"}, "in Lark without directives but %ignore, &"),
        ({"grammar": "start: p::0\np::_: /a/"}, "in Lark without directives but %ignore, &, ~ and parameters"),
        ({"grammar": "start: A\nA: /a\nb/ & /x/"}, "in Lark without directives"),
        ({"json": "{"}, "json must be a JSON schema"),
        (
            {"json": {"maxItems": 10_001}},
            "json asks for too much; numbers of items and properties may be at most 10000 together.",
        ),
        ({"structural_tag": {"schema": {"minItems": 10**400}}}, "structural_tag asks for too much; numbers of items"),
        ({"json": {}, "regex": "a"}, "must be an object with one of json, regex, "),
        ({"whitespace_pattern": " "}, "whitespace_pattern can't be set by a request; vLLM heeds it no more."),
        (
            {"json": {}, "disable_any_whitespace": True},
            "disable_any_whitespace can't be set by a request; "
            "vLLM heeds it as the engine flag structured_outputs_config.disable_any_whitespace only.",
        ),
        ({}, "must be an object with one of json, regex, "),
    ],
)
def test_a_bad_constraint_says_what_is_wrong_inside(value: object, rule: str) -> None:
    message = refusal(None, {"structured_outputs": value})
    assert message.startswith("structured_outputs = ")
    assert rule in message


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= [^"&~]* "std::" "%json"\n# & ~',
        'start: A "&&" // a & b\n%ignore /[ ~&]+/\nA: /[a-z]+/ | "::"',
        "\n".join(f"r{n} ::= r{n + 1}" for n in range(1000)),
    ],
)
def test_texts_of_a_grammar_may_hold_what_its_code_may_not(grammar: str) -> None:
    assert sampling.read(json.dumps({"structured_outputs": {"grammar": grammar}}), {}) == {
        "structured_outputs": {"grammar": grammar}
    }


def test_a_structural_tag_may_be_written_plainly() -> None:
    chosen = sampling.read('{"structured_outputs": {"structural_tag": {"type": "x"}, "regex": null}}', {})
    assert chosen == {"structured_outputs": {"structural_tag": '{"type":"x"}'}}


def test_the_message_is_one_sentence_with_name_value_and_rule() -> None:
    assert refusal('{"max_tokens": 1.5}') == "max_tokens = 1.5: must be an integer from 1 to 2147483647."


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_know_are_refused(text: str) -> None:
    assert refusal(f'{{"temperature": {text}}}').startswith("sampling_parameters = ")


@pytest.mark.parametrize("text", ["[]", "5", "null", '"x"'])
def test_the_document_must_be_an_object(text: str) -> None:
    assert refusal(text) == f"sampling_parameters = {text!r}: must be a JSON object."


def test_broken_json_says_where() -> None:
    assert refusal('{"a": }') == (
        "sampling_parameters = '{\"a\": }': not valid JSON (JSON is malformed: invalid character (byte 6))."
    )


def test_half_a_surrogate_pair_is_refused() -> None:
    refusal('{"stop": "\\ud800"}')


def test_a_deep_document_is_refused() -> None:
    refusal('{"structured_outputs": ' + '{"a":' * 100_000 + "1" + "}" * 100_001)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("temprature", "did you mean temperature?"),
        ("max_new_tokens", "did you mean max_tokens"),
        ("use_beam_search", "known ones are n, "),
        ("output_kind", "the input stream decides it."),
        ("prompt_logprobs", "the protocol has no output for the prompt's logprobs."),
    ],
)
def test_an_unknown_name_is_never_ignored(name: str, hint: str) -> None:
    message = refusal(None, {name: 1})
    assert message.startswith(f"{name} is not a sampling parameter; ")
    assert hint in message


@pytest.mark.parametrize(
    "document",
    [
        {"temperature": "1" * 1_000_000 + "x"},
        {"temperature": "1" * 500_000 + "." + "1" * 500_000 + "x"},
        {"x" * 1_000_000: 1},
        {"max_tokens" * 100_000: 1},
        {"max_tokens": " " * 1_000_000 + "x"},
    ],
    ids=["digits", "fraction", "unknown name", "nearly a name", "spaces"],
)
def test_a_megabyte_is_refused_at_once(document: dict[str, object]) -> None:
    """All threads wait meanwhile: comparing such a name took 14 s, matching such a number did not end."""
    began = time.monotonic()
    refusal(None, document)
    assert time.monotonic() - began < 1.0
