"""Which library keeps the engine to a constraint, and what that one is told."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from rbln_vllm_backend import vllm_constraints
from rbln_vllm_backend.errors import InvalidRequest

MODERN_TAG = json.dumps({"type": "structural_tag", "format": {"type": "any_text"}})


@pytest.mark.parametrize(
    ("named", "chosen", "strict"),
    [("auto", "guidance", True), ("xgrammar", "xgrammar", False), ("guidance",) * 2 + (False,)],
)
def test_llguidance_is_chosen_where_no_other_is_named(named: str, chosen: str, strict: bool) -> None:
    library = SimpleNamespace(backend=named, disable_additional_properties=False)
    vllm_constraints.choose(SimpleNamespace(structured_outputs_config=library))
    assert (library.backend, library.disable_additional_properties) == (chosen, strict)


def test_one_of_is_read_as_any_of() -> None:
    schema = {"oneOf": [{"const": 1}, {"const": 2}]}
    told = vllm_constraints.prepared({"json": json.dumps(schema)}, "guidance")
    assert json.loads(told["json"]) == {"x-guidance": {"coerce_one_of": True}, **schema}


@pytest.mark.parametrize(
    ("constraint", "library"),
    [
        ({"json": '{"oneOf": 1}'}, "xgrammar"),
        ({"json": '{"anyOf": []}'}, "guidance"),
        ({"json": '["oneOf"]'}, "guidance"),
        ({"json": '{"oneOf"'}, "guidance"),
        ({"regex": '"oneOf"'}, "guidance"),
        ({"structural_tag": MODERN_TAG}, "xgrammar"),
    ],
)
def test_everything_else_is_told_as_it_is(constraint: dict[str, Any], library: str) -> None:
    assert vllm_constraints.prepared(constraint, library) == constraint


@pytest.mark.parametrize(
    "tag",
    [
        MODERN_TAG,
        "{}",
        "[",
        json.dumps({"triggers": ["a"], "structures": []}),
        json.dumps({"triggers": [1], "structures": [{"begin": "a", "end": "b", "schema": {}}]}),
        json.dumps({"triggers": ["a"], "structures": [{"begin": 5, "end": "b", "schema": {}}]}),
        json.dumps({"triggers": ["a"], "structures": [{"begin": "a", "end": "b"}]}),
    ],
)
def test_a_structural_tag_of_another_form_is_refused_with_what_is_wanted(tag: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        vllm_constraints.prepared({"structural_tag": tag}, "guidance")
    assert "structural_tag must have triggers, texts, and structures, each with begin, end and schema" in str(
        caught.value
    )
