"""The sampling parameter ``structured_outputs``: one constraint on the text, typed before the engine sees it.

Constraints are those of vLLM's ``StructuredOutputsParams`` (0.30 and 0.32), which passes over unknown names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from rbln_vllm_backend import strict_json
from rbln_vllm_backend.constraint_cost import WORDS as _OPTIONAL
from rbln_vllm_backend.constraint_cost import is_affordable_grammar, is_affordable_regex
from rbln_vllm_backend.errors import shown
from rbln_vllm_backend.values import Text

# The engine compiles a constraint beside its steps; other constraints wait.
_LONGEST = 65_536
_LONGEST_REGEX = 8192
_MOST_CHOICES = 1024
# llguidance, to which vLLM turns for what xgrammar can't do, writes an array out: a maxItems of 10^9 takes all memory.
_MOST_ITEMS = 10_000
_MOST_WAYS = 1024
_COUNTS = frozenset({"minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"})


def _text(value: object, longest: int = _LONGEST) -> str:
    text = Text().typed(value)
    if len(text) > longest:
        raise ValueError
    return text


def _regex(value: object) -> str:
    text = _text(value, _LONGEST_REGEX)
    if not is_affordable_regex(text):
        raise ValueError
    return text


def _grammar(value: object) -> str:
    text = _text(value)
    if not is_affordable_grammar(text):
        raise ValueError
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
    constraints = [(_COSTS[key], inner) for key, inner in entries if key in _COSTS and isinstance(inner, str)]
    for key, inner in entries:
        if key == "patternProperties" and isinstance(inner, dict):
            constraints += [(is_affordable_regex, pattern) for pattern in inner]
    if sum(len(constraint) for _, constraint in constraints) > _LONGEST_REGEX:
        raise ValueError
    if not all(is_affordable(constraint) for is_affordable, constraint in constraints):
        raise ValueError
    counts = (inner for key, inner in entries if key in _COUNTS and isinstance(inner, (int, float)))
    if sum(min(max(count, 0), _MOST_ITEMS + 1) for count in counts) > _MOST_ITEMS:
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
    """llguidance follows each reference in each ``allOf`` by itself: those in a chain multiply."""
    ways = 1
    for conjunction in conjunctions:
        ways *= len(conjunction) or 1
        if ways > _MOST_WAYS:
            return False
    return True


_COSTS = {"pattern": is_affordable_regex, "grammar": is_affordable_grammar}
_PATTERNS = f"patterns in it of at most {_LONGEST_REGEX} together and {_OPTIONAL} each"
_SIZES = (
    f"numbers of items and properties of at most {_MOST_ITEMS} together, "
    f"the lengths of allOf at most {_MOST_WAYS} multiplied"
)
CONSTRAINTS: dict[str, tuple[Callable[[object], object], str]] = {
    "json": (_document, f"a JSON schema of at most {_LONGEST} characters, {_PATTERNS}, {_SIZES}"),
    "regex": (_regex, f"a regular expression of at most {_LONGEST_REGEX} characters and {_OPTIONAL}"),
    "choice": (_texts, f"a list of 1 to {_MOST_CHOICES} texts of at most {_LONGEST} characters together"),
    "grammar": (_grammar, f"a grammar of at most {_LONGEST} characters and {_OPTIONAL}"),
    "json_object": (_true, "true"),
    "structural_tag": (_document, f"a structural tag of at most {_LONGEST} characters, {_PATTERNS}, {_SIZES}"),
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
