"""The sampling parameter ``structured_outputs``: one constraint on the text, typed before the engine sees it.

Constraints are those of vLLM's ``StructuredOutputsParams`` (0.30 and 0.32), which passes over unknown names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from rbln_vllm_backend import json_schemas, strict_json
from rbln_vllm_backend.errors import shown
from rbln_vllm_backend.values import Text

# The engine compiles a constraint beside its steps; other constraints wait.
_LONGEST = 65_536
_LONGEST_REGEX = 4096
_MOST_CHOICES = 1024
# Measured with llguidance 1.7: it ends its process where 2,900 rules or groups begin with each other; the Lark syntax
# has schemas within a grammar, intersections, complements and parameters, which go beyond every bound; it looks for the
# syntax from each blank line to the end of the blank ones, which 65,000 of them make half a minute.
_MOST_RULES = 1000
_LONGEST_BLANK = 256
_RULE = re.compile(r"(?:^|\r)[ \t]*([\w.-]+)[ \t]*::=", re.MULTILINE)
_LEVEL = re.compile(r"::=|[:(\[]")  # in EBNF also within a text, but who writes a thousand of those
_BLANK = re.compile(rf"\s{{{_LONGEST_BLANK + 1}}}")
_LARK = re.compile(r"^\s*(?:%llguidance\b|start\s*:)", re.MULTILINE)  # how llguidance tells it
_LARK_TEXT = re.compile(r'//[^\n]*|#[^\n]*|"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/')
_LARK_BEYOND = re.compile(r'%(?!ignore\b)|::|[&~"/]')  # a quote or slash: it was read otherwise than it will be


def _text(value: object, longest: int = _LONGEST) -> str:
    text = Text().typed(value)
    if len(text) > longest:
        raise ValueError
    return text


def _regex(value: object) -> str:
    return _text(value, _LONGEST_REGEX)


def _grammar(value: object) -> str:
    text = _text(value)
    if _BLANK.search(text):
        raise ValueError
    rules = _RULE.findall(text)
    if len(set(rules)) < len(rules):
        raise ValueError  # llguidance would take them together
    is_lark = _LARK.search(text) is not None
    code = _LARK_TEXT.sub(" ", text) if is_lark else text
    if (is_lark and _LARK_BEYOND.search(code)) or len(_LEVEL.findall(code)) > _MOST_RULES:
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
    json_schemas.require_bounded(value if isinstance(value, dict) else strict_json.decode(text))
    return text


CONSTRAINTS: dict[str, tuple[Callable[[object], object], str]] = {
    "json": (_document, f"a JSON schema of at most {_LONGEST} characters"),
    "regex": (_regex, f"a regular expression of at most {_LONGEST_REGEX} characters"),
    "choice": (_texts, f"a list of 1 to {_MOST_CHOICES} texts of at most {_LONGEST} characters together"),
    "grammar": (
        _grammar,
        f"a grammar of at most {_LONGEST} characters and {_MOST_RULES} rules and groups, no rule defined twice, "
        f"without more than {_LONGEST_BLANK} blanks in a row; in Lark without directives but %ignore, "
        "&, ~ and parameters",
    ),
    "json_object": (_true, "true"),
    "structural_tag": (_document, f"a structural tag of at most {_LONGEST} characters"),
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
        except json_schemas.TooCostly as error:
            raise ValueError(f"{key} asks for too much; {error}") from None
        except ValueError:
            raise ValueError(f"{key} must be {words}") from None
