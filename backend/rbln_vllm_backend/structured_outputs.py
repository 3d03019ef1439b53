"""The sampling parameter ``structured_outputs``: one constraint on the text, typed before the engine sees it.

Constraints are those of vLLM's ``StructuredOutputsParams`` (0.30 and 0.32), which passes over unknown names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def _schema(value: object) -> object:
    """A JSON schema as an object, or as its text."""
    _document(value)
    return value


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
    inner = list(_inner_texts(value if isinstance(value, dict) else strict_json.decode(text)))
    if sum(len(constraint) for _, constraint in inner) > _LONGEST_REGEX:
        raise ValueError
    if not all(is_affordable(constraint) for is_affordable, constraint in inner):
        raise ValueError
    return text


def _inner_texts(document: object) -> Iterator[tuple[Callable[[str], bool], str]]:
    """The regular expressions and grammars in a schema or tag, each with the bound that holds for it."""
    if isinstance(document, list):
        for item in document:
            yield from _inner_texts(item)
    elif isinstance(document, dict):
        for key, inner in document.items():
            if key in _COSTS and isinstance(inner, str):
                yield _COSTS[key], inner
            elif key == "patternProperties" and isinstance(inner, dict):
                yield from ((is_affordable_regex, pattern) for pattern in inner)
            yield from _inner_texts(inner)


_COSTS = {"pattern": is_affordable_regex, "grammar": is_affordable_grammar}
_PATTERNS = f"patterns in it of at most {_LONGEST_REGEX} together and {_OPTIONAL} each"
CONSTRAINTS: dict[str, tuple[Callable[[object], object], str]] = {
    "json": (_schema, f"a JSON schema of at most {_LONGEST} characters, {_PATTERNS}"),
    "regex": (_regex, f"a regular expression of at most {_LONGEST_REGEX} characters and {_OPTIONAL}"),
    "choice": (_texts, f"a list of 1 to {_MOST_CHOICES} texts of at most {_LONGEST} characters together"),
    "grammar": (_grammar, f"a grammar of at most {_LONGEST} characters and {_OPTIONAL}"),
    "json_object": (_true, "true"),
    "structural_tag": (_document, f"a structural tag of at most {_LONGEST} characters, {_PATTERNS}"),
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
