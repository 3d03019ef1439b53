"""The sampling parameter ``structured_outputs``: one constraint on the text, typed before the engine sees it.

Constraints are those of vLLM's ``StructuredOutputsParams`` (0.30 and 0.32), which passes over unknown names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from rbln_vllm_backend import strict_json
from rbln_vllm_backend.errors import shown
from rbln_vllm_backend.values import Text

# The engine compiles a constraint beside its steps; other constraints wait.
_LONGEST = 65_536
_LONGEST_REGEX = 8192
_MOST_CHOICES = 1024
# What llguidance itself doesn't bound: it writes an array out, so that a maxItems of 10^9 takes all memory; it follows
# each reference in each allOf by itself, so that those in a chain multiply; multipleOf is as many states as it says.
_MOST_ITEMS = 10_000
_MOST_WAYS = 1024
_LARGEST_MULTIPLE = 10_000
_RULE = re.compile(r"^[ \t]*([\w.-]+)[ \t]*::=", re.MULTILINE)
_COUNTS = frozenset({"minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"})


def _text(value: object, longest: int = _LONGEST) -> str:
    text = Text().typed(value)
    if len(text) > longest:
        raise ValueError
    return text


def _regex(value: object) -> str:
    return _text(value, _LONGEST_REGEX)


def _grammar(value: object) -> str:
    text = _text(value)
    rules = _RULE.findall(text)
    if len(set(rules)) < len(rules):
        raise ValueError  # llguidance would take them together
    return text


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_CHOICES:
        raise ValueError
    texts = [Text().typed(item) for item in value]
    if sum(map(len, texts)) > _LONGEST:
        raise ValueError
    return texts


def _true(value: object) -> bool:
    if value is not True:
        raise ValueError
    return True


def _document(value: object) -> str:
    """The text of a schema or of a structural tag, whose JSON may be written plainly."""
    text = _text(msgspec.json.encode(value).decode() if isinstance(value, dict) else value)
    entries = list(_entries(value if isinstance(value, dict) else strict_json.decode(text)))
    numbers = [(key, inner) for key, inner in entries if isinstance(inner, (int, float))]
    if sum(min(max(number, 0), _MOST_ITEMS + 1) for key, number in numbers if key in _COUNTS) > _MOST_ITEMS:
        raise ValueError
    if any(_without_point(number) > _LARGEST_MULTIPLE for key, number in numbers if key == "multipleOf"):
        raise ValueError
    if not _has_few_ways(inner for key, inner in entries if key == "allOf" and isinstance(inner, list)):
        raise ValueError
    return text


def _entries(document: object) -> Iterator[tuple[str, object]]:
    """Every key with its value, at any depth."""
    if isinstance(document, list):
        for item in document:
            yield from _entries(item)
    elif isinstance(document, dict):
        for key, inner in document.items():
            yield key, inner
            yield from _entries(inner)


def _has_few_ways(conjunctions: Iterable[list[object]]) -> bool:
    ways = 1
    for conjunction in conjunctions:
        ways *= len(conjunction) or 1
        if ways > _MOST_WAYS:
            return False
    return True


def _without_point(number: float) -> Decimal:
    """2.5 as 25."""
    exact = Decimal(str(number))
    return abs(exact.scaleb(max(0, -int(exact.as_tuple().exponent))))


_SIZES = (
    f"numbers of items and properties of at most {_MOST_ITEMS} together, lengths of allOf of at most {_MOST_WAYS} "
    f"multiplied, multipleOf of at most {_LARGEST_MULTIPLE} without its point"
)
CONSTRAINTS: dict[str, tuple[Callable[[object], object], str]] = {
    "json": (_document, f"a JSON schema of at most {_LONGEST} characters, {_SIZES}"),
    "regex": (_regex, f"a regular expression of at most {_LONGEST_REGEX} characters"),
    "choice": (_texts, f"a list of 1 to {_MOST_CHOICES} texts of at most {_LONGEST} characters together"),
    "grammar": (_grammar, f"a grammar of at most {_LONGEST} characters that defines each rule once"),
    "json_object": (_true, "true"),
    "structural_tag": (_document, f"a structural tag of at most {_LONGEST} characters, {_SIZES}"),
}
# Keys that vLLM takes for one request too, and then passes over.
_ENGINES_ALONE = {
    "disable_any_whitespace": "vLLM heeds it as the engine flag structured_outputs_config.disable_any_whitespace only",
    "disable_additional_properties": (
        "vLLM heeds it as the engine flag structured_outputs_config.disable_additional_properties only"
    ),
    "whitespace_pattern": "vLLM heeds it no more",
}


@dataclass(frozen=True)
class StructuredOutputs:
    """An object with exactly one constraint; as text, the object's JSON. Implements ``values.Rule``."""

    words: str = f"an object with one of {', '.join(CONSTRAINTS)}"

    def typed(self, value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError
        given = {key: inner for key, inner in value.items() if inner is not None}
        typed = {str(key): self._inner(str(key), inner) for key, inner in given.items()}
        if len(typed) != 1:
            raise ValueError
        return typed

    def spelled(self, text: str) -> dict[str, Any]:
        try:
            document = strict_json.decode(text)
        except ValueError:
            raise ValueError from None  # the rule's own words say what is wanted
        return self.typed(document)

    def _inner(self, key: str, value: object) -> object:
        if key in _ENGINES_ALONE:
            raise ValueError(f"{key} can't be set by a request; {_ENGINES_ALONE[key]}")
        if key not in CONSTRAINTS:
            raise ValueError(f"{shown(key)} is not one of {', '.join(CONSTRAINTS)}")
        convert, words = CONSTRAINTS[key]
        try:
            return convert(value)
        except ValueError:
            raise ValueError(f"{key} must be {words}") from None
