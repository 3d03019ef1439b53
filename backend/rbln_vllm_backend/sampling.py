"""Sampling parameters, strictly typed before they near the engine.

Types and ranges are those of vLLM's ``SamplingParams`` (0.30 and 0.32), which lets some wrong types pass: they then end
the thread that feeds the engine, and with it every later request. Names that are the backend's own business
(``output_kind``, ``detokenize``, …) are no parameters here.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rbln_vllm_backend import values
from rbln_vllm_backend.errors import InvalidRequest
from rbln_vllm_backend.structured_outputs import StructuredOutputs
from rbln_vllm_backend.values import Integer, Number, Rule, Switch, Text

_INT32 = 2**31 - 1
_INT64 = 2**63 - 1
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


RULES: dict[str, Rule] = {
    "n": Integer(minimum=1, maximum=16),
    "presence_penalty": Number(minimum=-2, maximum=2),
    "frequency_penalty": Number(minimum=-2, maximum=2),
    "repetition_penalty": Number(above=0),
    "temperature": Number(minimum=0, maximum=2),
    "top_p": Number(above=0, maximum=1),
    "top_k": Integer(minimum=-1, maximum=_INT32),
    "min_p": Number(minimum=0, maximum=1),
    "seed": Integer(minimum=-_INT64 - 1, maximum=_INT64),
    "stop": TextOrTexts(most=64),
    "stop_token_ids": ListOf(_TOKEN_ID, most=1024),
    "ignore_eos": Switch(),
    "max_tokens": Integer(minimum=1, maximum=_INT32),
    "min_tokens": Integer(minimum=0, maximum=_INT32),
    "logprobs": Integer(minimum=0, maximum=_INT32),
    "skip_special_tokens": Switch(),
    "spaces_between_special_tokens": Switch(),
    "include_stop_str_in_output": Switch(),
    "structured_outputs": StructuredOutputs(),
    "logit_bias": TokenBias(most=4096),
    "allowed_token_ids": ListOf(_TOKEN_ID, most=1_000_000),
    "bad_words": ListOf(Text(), most=1024),
    "skip_reading_prefix_cache": Switch(),
}


def decode_json(text: str | bytes) -> Any:
    """Strict JSON (no NaN, no Infinity, whole characters); raises ValueError with the position."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _json_or_none(text: str) -> Any:
    """What the text says, for rules that refuse None anyway."""
    try:
        return decode_json(text)
    except ValueError:
        return None


def read(document: str | None, fields: Mapping[str, object], ignored: Collection[str] = ()) -> dict[str, Any]:
    """The client's sampling parameters, typed.

    Args:
        document: the tensor ``sampling_parameters``, a JSON object; it wins over ``fields`` key by key.
        fields: the request's parameters: scalars, or text that spells one.
        ignored: names in ``fields`` that are passed over.

    Raises:
        InvalidRequest: names the parameter, its value and what is allowed.
    """
    given = {name: value for name, value in fields.items() if name not in ignored}
    given.update(_object(document))
    return {name: _value(name, value) for name, value in given.items() if value is not None}


def _object(document: str | None) -> dict[str, object]:
    if document is None:
        return {}
    try:
        decoded = decode_json(document)
    except ValueError as error:
        raise InvalidRequest.about("sampling_parameters", document, f"not valid JSON ({error})") from None
    if not isinstance(decoded, dict):
        raise InvalidRequest.about("sampling_parameters", document, "must be a JSON object")
    return decoded


def _value(name: str, value: object) -> Any:
    rule = RULES.get(name)
    if rule is None:
        near = difflib.get_close_matches(name, RULES, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known ones are {', '.join(RULES)}"
        raise InvalidRequest(f"{name[:80]} is not a sampling parameter; {hint}")
    try:
        return values.read(rule, value)
    except ValueError as error:
        raise InvalidRequest.about(name, value, str(error) or f"must be {rule.words}") from None
