"""Sampling parameters, strictly typed before they near the engine.

Types and ranges are those of vLLM's ``SamplingParams`` (0.30 and 0.32), which lets some wrong types pass: they then end
the thread that feeds the engine, and with it every later request. Every field of that class is in ``PARAMETERS`` or in
``NOT_OURS``; a test on the installed vLLM fails over one that nobody has decided on.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rbln_vllm_backend import strict_json, values
from rbln_vllm_backend.errors import InvalidRequest, shown
from rbln_vllm_backend.structured_outputs import StructuredOutputs
from rbln_vllm_backend.values import Integer, Number, Rule, Switch, Text

_INT32 = 2**31 - 1
_INT64 = 2**63 - 1
_LONGEST_NAME = 80
_TOKEN_ID = Integer(minimum=0, maximum=_INT32)


@dataclass(frozen=True)
class TextOrTexts:
    """One text, or a list of them; always read as a list. Each is looked for in all that is written, so few may be."""

    most: int

    @property
    def words(self) -> str:
        return f"a text that is not empty, or a list of at most {self.most} such texts"

    def typed(self, value: object) -> list[str]:
        if not isinstance(value, list) or len(value) > self.most:
            raise ValueError
        return [Text().typed(item) for item in value]

    def spelled(self, text: str) -> list[str]:
        return [Text().typed(text)]


@dataclass(frozen=True)
class ListOf:
    """A JSON list whose items meet one rule; as text, the list's JSON."""

    item: Rule
    most: int

    @property
    def words(self) -> str:
        return f"a list of at most {self.most}, each item {self.item.words}"

    def typed(self, value: object) -> list[Any]:
        if not isinstance(value, list) or len(value) > self.most:
            raise ValueError
        return [self.item.typed(item) for item in value]

    def spelled(self, text: str) -> list[Any]:
        return self.typed(_json_or_none(text))


@dataclass(frozen=True)
class Words:
    """A JSON list of texts that are short together: the engine makes tokens of each. As text, the list's JSON."""

    most: int
    characters: int

    @property
    def words(self) -> str:
        return (
            f"a list of at most {self.most} texts that are not empty, of at most {self.characters} characters together"
        )

    def typed(self, value: object) -> list[str]:
        texts: list[str] = ListOf(Text(), self.most).typed(value)
        if sum(map(len, texts)) > self.characters:
            raise ValueError
        return texts

    def spelled(self, text: str) -> list[str]:
        return self.typed(_json_or_none(text))


@dataclass(frozen=True)
class TokenBias:
    """A JSON object from token ids (JSON keys are texts) to a number each."""

    most: int

    @property
    def words(self) -> str:
        return f"an object from at most {self.most} token ids to numbers from -100 to 100"

    def typed(self, value: object) -> dict[int, float]:
        if not isinstance(value, dict) or len(value) > self.most:
            raise ValueError
        bias = Number(minimum=-100, maximum=100)
        return {_TOKEN_ID.spelled(str(token)): bias.typed(number) for token, number in value.items()}

    def spelled(self, text: str) -> dict[int, float]:
        return self.typed(_json_or_none(text))


@dataclass(frozen=True)
class RepetitionDetection:
    """A JSON object: a pattern of so many tokens that came so often ends the text. As text, the object's JSON."""

    words: str = (
        "an object of integers from 0 to 4096: max_pattern_size, min_pattern_size (at most the former), min_count "
        "(at least 2)"
    )

    def typed(self, value: object) -> dict[str, int]:
        if not isinstance(value, dict) or not value.keys() <= {"max_pattern_size", "min_pattern_size", "min_count"}:
            raise ValueError
        sizes = {str(key): Integer(minimum=0, maximum=4096).typed(item) for key, item in value.items()}
        largest = sizes.get("max_pattern_size", 0)
        if sizes.get("min_pattern_size", 0) > largest or (largest and sizes.get("min_count", 0) < 2):
            raise ValueError
        return sizes

    def spelled(self, text: str) -> dict[str, int]:
        return self.typed(_json_or_none(text))


@dataclass(frozen=True)
class Parameter:
    """What a parameter must be, and in words what holds when neither client nor checkpoint sets it."""

    rule: Rule
    default: str


PARAMETERS: dict[str, Parameter] = {
    "n": Parameter(Integer(minimum=1, maximum=16384), "1"),
    "presence_penalty": Parameter(Number(minimum=-2, maximum=2), "0"),
    "frequency_penalty": Parameter(Number(minimum=-2, maximum=2), "0"),
    # Closer to zero or infinity than a float32 the engine's -inf of a forbidden token becomes NaN, and is chosen.
    "repetition_penalty": Parameter(Number(minimum=0.01, maximum=100), "1"),
    "temperature": Parameter(Number(minimum=0, maximum=2), "1"),
    "top_p": Parameter(Number(above=0, maximum=1), "1"),
    "top_k": Parameter(Integer(minimum=-1, maximum=_INT32), "0"),
    "min_p": Parameter(Number(minimum=0, maximum=1), "0"),
    "seed": Parameter(Integer(minimum=-_INT64 - 1, maximum=_INT64), "none"),
    "stop": Parameter(TextOrTexts(most=64), "none"),
    "stop_token_ids": Parameter(ListOf(_TOKEN_ID, most=1024), "none"),
    "ignore_eos": Parameter(Switch(), "false"),
    "max_tokens": Parameter(Integer(minimum=1, maximum=_INT32), "to the end of the context"),
    "min_tokens": Parameter(Integer(minimum=0, maximum=_INT32), "0"),
    "logprobs": Parameter(Integer(minimum=0, maximum=_INT32), "none"),
    "skip_special_tokens": Parameter(Switch(), "true"),
    "spaces_between_special_tokens": Parameter(Switch(), "true"),
    "include_stop_str_in_output": Parameter(Switch(), "false"),
    "stream_interval": Parameter(Integer(minimum=1, maximum=_INT32), "the engine's"),
    "structured_outputs": Parameter(StructuredOutputs(), "none"),
    "logit_bias": Parameter(TokenBias(most=4096), "none"),
    "allowed_token_ids": Parameter(ListOf(_TOKEN_ID, most=1_000_000), "all"),
    "bad_words": Parameter(Words(most=1024, characters=16384), "none"),
    "skip_reading_prefix_cache": Parameter(Switch(), "false"),
    "thinking_token_budget": Parameter(Integer(minimum=-1, maximum=_INT32), "none"),
    "repetition_detection": Parameter(RepetitionDetection(), "none"),
    "lora_name": Parameter(Text(), "none"),
}

# The rest of vLLM's fields, each with the reason why no client sets it.
NOT_OURS: dict[str, str] = {
    "logprob_token_ids": "vLLM answers it with the logprobs of its neighbours, and with speculation it ends the engine",
    "prompt_logprobs": "the protocol has no output for the prompt's logprobs",
    "prompt_logprob_token_ids": "the protocol has no output for the prompt's logprobs",
    "prompt_logprob_start": "the protocol has no output for the prompt's logprobs",
    "flat_logprobs": "it is the form in which the engine hands logprobs to the backend",
    "detokenize": "the backend always answers with text; ask for return_token_ids to get the ids too",
    "output_kind": "the input stream decides it",
    "skip_clone": "it is between the backend and the engine",
    "output_text_buffer_length": "it is between the backend and the engine",
    "extra_args": "it is for plugins of the engine, which nobody has checked",
    "watermarking": "it is the operator's to decide",
    "routed_experts_prompt_start": "it is for training, and not for serving",
    "trace_decode_token_ids": "it is for debugging the engine",
}


def _json_or_none(text: str) -> Any:
    """What the text says, for rules that refuse None anyway."""
    try:
        return strict_json.decode(text)
    except ValueError:
        return None


def read(document: str | None, fields: Mapping[str, object]) -> dict[str, Any]:
    """The client's sampling parameters, typed.

    Args:
        document: the tensor ``sampling_parameters``, a JSON object; it wins over ``fields`` key by key.
        fields: the request's parameters: scalars, or text that spells one.

    Raises:
        InvalidRequest: names the parameter, its value and what is allowed.
    """
    given = {**fields, **_object(document)}
    return {name: _value(name, value) for name, value in given.items() if value is not None}


def _object(document: str | None) -> dict[str, object]:
    if document is None:
        return {}
    try:
        decoded = strict_json.decode(document)
    except ValueError as error:
        raise InvalidRequest.about("sampling_parameters", document, f"not valid JSON ({error})") from None
    if not isinstance(decoded, dict):
        raise InvalidRequest.about("sampling_parameters", document, "must be a JSON object")
    return decoded


def _value(name: str, value: object) -> Any:
    parameter = PARAMETERS.get(name)
    if parameter is None:
        shown_name = name if name.isascii() and name.isidentifier() and len(name) <= _LONGEST_NAME else shown(name)
        raise InvalidRequest(f"{shown_name} is not a sampling parameter; {_hint(name)}")
    try:
        return values.read(parameter.rule, value)
    except ValueError as error:
        raise InvalidRequest.about(name, value, str(error) or f"must be {parameter.rule.words}") from None


def _hint(name: str) -> str:
    if name in NOT_OURS:
        return f"{NOT_OURS[name]}."
    # No name is so long; to compare a megabyte takes ten seconds, in which no other request is accepted.
    near = difflib.get_close_matches(name, PARAMETERS, n=3) if len(name) <= _LONGEST_NAME else []
    return f"did you mean {' or '.join(near)}?" if near else f"known ones are {', '.join(PARAMETERS)}"
