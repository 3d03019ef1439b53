"""What a client's JSON schema may ask of llguidance, and how it is told of objects.

llguidance bounds its own steps, but not all of what it does to a schema before them. Bounded here: it writes an array
out item by item; a multipleOf is as many states as it says, and several are as many as their least common multiple;
where parts of a schema hold together it follows each reference by itself, so that those in a chain multiply;
patternProperties are compared in pairs. Measured with llguidance 1.7; at these bounds a schema takes below a second.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

_MOST_ITEMS = 10_000
_MOST_WAYS = 1024
_LARGEST_MULTIPLE = 10_000
_LONGEST_PATTERNS = 2048
_MOST_PATTERN_PROPERTIES = 64

_DEEPEST = 600  # llguidance goes down by recursion, and ends its process where the stack ends: from some 1,500 on
_MOST_MET = 65_536  # parts of a schema, with those that are met again by a reference
_FOLLOWED = f"where parts of a schema are combined, at most {_MOST_WAYS} references may be followed"
_COUNTS = frozenset({"minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"})
_COMBINATORS = ("allOf", "anyOf", "oneOf")
_SAY_NOTHING = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"}
    | {"definitions", "$defs", "$comment", "$schema", "$id"}
)
_WITH_PLAIN_ID = re.compile(r"draft-0[34]\b")
_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMAS = ("additionalProperties", "items", "prefixItems", "contains", "propertyNames", "not", "if", "then", "else")


class TooCostly(ValueError):
    """The text says what is allowed."""


def require_bounded(document: object) -> None:
    """Raises TooCostly beyond the bounds. What isn't a schema at all is left to whoever compiles it."""
    entries = list(_entries(document))
    numbers = [(key, inner) for key, inner in entries if isinstance(inner, (int, float))]
    named = [(key, inner) for key, inner in entries if isinstance(inner, str)]
    patterned = [inner for key, inner in entries if key == "patternProperties" and isinstance(inner, dict)]
    patterns = [text for key, text in named if key == "pattern"] + [name for inner in patterned for name in inner]
    conjunctions = [inner for key, inner in entries if key == "allOf" and isinstance(inner, list)]
    _require(
        sum(min(max(number, 0), _MOST_ITEMS + 1) for key, number in numbers if key in _COUNTS) <= _MOST_ITEMS,
        f"numbers of items and properties may be at most {_MOST_ITEMS} together",
    )
    _require(
        _common_multiple(number for key, number in numbers if key == "multipleOf") <= _LARGEST_MULTIPLE,
        f"the least common multiple of all multipleOf may be at most {_LARGEST_MULTIPLE}, without their points",
    )
    _require(
        math.prod(map(len, filter(None, conjunctions))) <= _MOST_WAYS,
        f"allOf may make at most {_MOST_WAYS} ways together",
    )
    _require(
        sum(map(len, patterned)) <= _MOST_PATTERN_PROPERTIES,
        f"patternProperties may be at most {_MOST_PATTERN_PROPERTIES}",
    )
    _require(
        sum(map(len, patterns)) <= _LONGEST_PATTERNS,
        f"patterns may have at most {_LONGEST_PATTERNS} characters together",
    )
    # Only such references can be followed here as llguidance follows them.
    ids = {"$id", "id"} if any(key == "$schema" and _WITH_PLAIN_ID.search(text) for key, text in named) else {"$id"}
    inner_ids = sum(key in ids for key, _ in named) - sum(isinstance(_at(document, key), str) for key in ids)
    local = all(text == "#" or text.startswith("#/") for key, text in named if key == "$ref")
    _require(local and not inner_ids, "each $ref is # or begins with #/, and only the whole has an $id")
    references = {text for key, text in named if key == "$ref"}
    levels: dict[int, int] = {}
    deepest = _measured(document, levels)
    # No way through the schema is longer: each reference is on it once.
    deepest += sum(levels.get(id(_target(document, reference)), 1) for reference in references)
    _require(deepest <= _DEEPEST, f"a schema and all that it refers to may be at most {_DEEPEST} levels deep, added up")
    _require("x-guidance" not in (key for key, _ in entries), "x-guidance is not for clients")
    try:
        _Followed(document).through(document, together=False)
    except RecursionError:
        raise TooCostly(_FOLLOWED) from None


def _require(holds: bool, words: str) -> None:
    if not holds:
        raise TooCostly(words)


def close(document: dict[str, Any]) -> None:
    """Gives its objects no properties but those that the schema names, as xgrammar does unasked.

    Not where parts of it hold together, as in an allOf of two objects: each would forbid what the other requires.
    """
    if any(_combines(node) for node in _schemas(document)):
        return
    for node in _schemas(document):
        if isinstance(node.get("properties"), dict) or isinstance(node.get("patternProperties"), dict):
            node.setdefault("additionalProperties", False)


def _entries(document: object) -> Iterator[tuple[str, object]]:
    """Every key with its value, at any depth."""
    if isinstance(document, list):
        for item in document:
            yield from _entries(item)
    elif isinstance(document, dict):
        for key, inner in document.items():
            yield key, inner
            yield from _entries(inner)


def _schemas(node: object) -> Iterator[dict[str, Any]]:
    """The schema and those in it, but not what a const or a default holds."""
    if not isinstance(node, dict):
        return
    yield node
    for key in _MAPS_OF_SCHEMAS:
        inner = node.get(key)
        for schema in inner.values() if isinstance(inner, dict) else ():
            yield from _schemas(schema)
    for key in (*_SCHEMAS, *_COMBINATORS):
        inner = node.get(key)
        for schema in inner if isinstance(inner, list) else (inner,):
            yield from _schemas(schema)


def _combines(node: Mapping[str, Any]) -> bool:
    """Whether more than one part of this schema holds at once, one of them written elsewhere or a choice."""
    parts = [key for key in _COMBINATORS if isinstance(node.get(key), list)]
    parts += ["$ref"] if isinstance(node.get("$ref"), str) else []
    if not parts:
        return False
    return len(node.keys() - _SAY_NOTHING) > 1 or (parts == ["allOf"] and len(node["allOf"]) > 1)


def _common_multiple(numbers: Iterator[int | float]) -> int:
    """Of the numbers without their points, 2.5 and 1 as 25 and 10; it isn't counted on beyond the bound."""
    exact = [abs(Decimal(str(number))) for number in numbers if number]
    places = max([-int(number.as_tuple().exponent) for number in exact] + [0])
    common = 1
    for number in exact:
        common = math.lcm(common, int(number.scaleb(places)))
        if common > _LARGEST_MULTIPLE:
            break
    return common


class _Followed:
    """Counts the references that are followed in combined schemas, and what is met; beyond, it raises TooCostly."""

    def __init__(self, document: object) -> None:
        self._document = document
        self._references = 0
        self._met = 0
        self._on_the_way: set[str] = set()

    def through(self, node: object, together: bool) -> None:
        """Goes through whatever is in the node; ``together``: it is part of a combined schema."""
        if isinstance(node, list):
            for item in node:
                self.through(item, together)
        elif isinstance(node, dict):
            self._met += 1
            if self._met > _MOST_MET:
                raise TooCostly(_FOLLOWED)
            # A property that a pattern matches has both their schemas.
            together = together or _combines(node) or ("properties" in node and "patternProperties" in node)
            reference = node.get("$ref")
            if together and isinstance(reference, str):
                self._follow(reference)
            for inner in node.values():
                self.through(inner, together)

    def _follow(self, reference: str) -> None:
        self._references += 1
        if self._references > _MOST_WAYS:
            raise TooCostly(_FOLLOWED)
        if reference not in self._on_the_way:  # else it is recursive, and llguidance comes back to what it has
            self._on_the_way.add(reference)
            self.through(_target(self._document, reference), together=True)
            self._on_the_way.remove(reference)


def _measured(node: object, levels: dict[int, int]) -> int:
    """How many levels of objects and lists the node has; ``levels`` gets that of each, by its id."""
    if not isinstance(node, (dict, list)):
        return 0
    inner = node.values() if isinstance(node, dict) else node
    levels[id(node)] = 1 + max((_measured(item, levels) for item in inner), default=0)
    return levels[id(node)]


def _target(document: object, reference: str) -> object:
    """What a ``$ref`` within the document leads to."""
    node = document
    for step in unquote(reference).split("/")[1:]:
        node = _at(node, step.replace("~1", "/").replace("~0", "~"))
    return node


def _at(node: object, name: str) -> object:
    """One step of a JSON pointer; None where it leads nowhere."""
    if isinstance(node, list):
        return node[int(name)] if name.isdecimal() and len(name) < 6 and int(name) < len(node) else None
    return node.get(name) if isinstance(node, dict) else None
