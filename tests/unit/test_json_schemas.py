"""What a schema may ask for, and which objects are closed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rbln_vllm_backend import json_schemas

OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
CLOSED = {**OBJECT, "additionalProperties": False}


def chain(levels: int, **at_each: Any) -> dict[str, Any]:
    """Definitions that each refer to the next; in ``at_each`` "next" stands for the reference."""

    def level(number: int) -> Any:
        return json.loads(json.dumps(at_each).replace('"next"', json.dumps({"$ref": f"#/$defs/d{number + 1}"})))

    return {"$ref": "#/$defs/d0", "$defs": {f"d{n}": level(n) for n in range(levels)} | {f"d{levels}": {}}}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (
            {"items": [{"minItems": -(10**400)}, {"maxItems": 1e9}]},
            "numbers of items and properties may be at most 10000",
        ),
        ({"multipleOf": 10_001}, "the least common multiple of all multipleOf may be at most 10000"),
        ({"items": {"multipleOf": 1000.01}}, "multipleOf may be at most 10000, without their points"),
        ({"allOf": [{"multipleOf": 997}, {"multipleOf": 991}]}, "the least common multiple"),
        ({"allOf": [{"multipleOf": 1000}, {"multipleOf": 0.01}]}, "the least common multiple"),
        ({"$defs": {f"d{n}": {"allOf": [{}, {}]} for n in range(11)}}, "allOf may make at most 1024 ways together"),
        ({"patternProperties": {f"x{n}": {} for n in range(65)}}, "patternProperties may be at most 64"),
        (
            {"items": [{"pattern": "a" * 1025}, {"patternProperties": {"a" * 1024: {}}}]},
            "patterns may have at most 2048",
        ),
        ({"$ref": "http://there#/x"}, r"each \$ref is # or begins with #/"),
        ({"$ref": "#anchor"}, r"each \$ref is # or begins with #/"),
        ({"$id": "x:a", "$defs": {"b": {"$id": "x:b"}}}, r"only the whole has an \$id"),
        ({"x-guidance": {"whitespace_pattern": "a*"}}, "x-guidance is not for clients"),
        (chain(30, anyOf=["next"], **{"$ref": "#/$defs/d1"}) | {"allOf": [{}, {}]}, "1024 references may be followed"),
        (chain(11, anyOf=["next", "next"], type="object"), "1024 references may be followed"),
        (chain(11, properties={"a": "next"}, allOf=["next"]), "1024 references may be followed"),
        (chain(11, oneOf=["next"], anyOf=["next"]), "1024 references may be followed"),
        (chain(11, properties={"x": "next"}, patternProperties={"^x$": "next"}), "1024 references may be followed"),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", "id": "a", "items": {"id": "b"}},
            r"only the whole has",
        ),
        (chain(300, items="next"), "may be at most 600 levels deep, added up"),
        (chain(120, anyOf=[{"properties": {"a": "next"}}]), "may be at most 600 levels deep"),
        (chain(900, allOf=["next"], type="object"), "levels deep"),
    ],
)
def test_what_would_cost_too_much_is_refused(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(json_schemas.TooCostly, match=words):
        json_schemas.require_bounded(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"items": [{"multipleOf": 100}, {"multipleOf": 0.01}, {"multipleOf": 0}], "maxItems": 10_000},
        chain(100, properties={"a": "next", "b": "next"}),
        chain(250, items="next"),
        chain(6, anyOf=["next", "next"], type="object"),
        {"$defs": {"node": {"properties": {"next": {"allOf": [{"$ref": "#/$defs/node"}, {}]}}}}},
        {"$id": "x:a", "properties": {"$id": {}, "allOf": {}, "x": {"$ref": "#/$defs/no~1such/0"}}},
        {"allOf": [{"$ref": "#"}], "type": "object"},
        {"$schema": "http://json-schema.org/draft-04/schema#", "id": "a", "$id": "b", "default": [{"x": "y"}]},
        {"examples": [{"id": "a"}, {"id": "b"}], "properties": {"id": {}, "$id": {}}},
    ],
)
def test_what_is_ordinary_is_not(schema: dict[str, Any]) -> None:
    json_schemas.require_bounded(schema)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (OBJECT, CLOSED),
        ({"items": OBJECT, "$defs": {"x": OBJECT}}, {"items": CLOSED, "$defs": {"x": CLOSED}}),
        ({"anyOf": [OBJECT, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        ({"allOf": [OBJECT], "title": "one"}, {"allOf": [CLOSED], "title": "one"}),
        ({**OBJECT, "additionalProperties": {}},) * 2,
        ({"properties": {"x": {"const": OBJECT}}, "additionalProperties": True},) * 2,
        ({"allOf": [OBJECT, {"properties": {"b": {}}}]},) * 2,
        ({**OBJECT, "$ref": "#/$defs/base", "$defs": {"base": OBJECT}},) * 2,
        ({**OBJECT, "anyOf": [{"required": ["b"]}, {"required": ["c"]}]},) * 2,
    ],
)
def test_objects_are_closed_unless_schemas_are_combined(schema: Any, told: Any) -> None:
    document = json.loads(json.dumps(schema))
    json_schemas.close(document)
    assert document == told
