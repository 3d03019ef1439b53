"""Which library keeps the engine to a constraint, and what that one is told."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from rbln_vllm_backend import vllm_constraints
from rbln_vllm_backend.errors import InvalidRequest

TAG = json.dumps({"type": "structural_tag", "format": {"type": "any_text"}})


@pytest.mark.parametrize(("named", "chosen"), [("auto", "guidance"), ("xgrammar",) * 2, ("guidance",) * 2])
def test_llguidance_is_chosen_where_no_other_is_named(named: str, chosen: str) -> None:
    library = SimpleNamespace(backend=named)
    vllm_constraints.choose(SimpleNamespace(structured_outputs_config=library))
    assert library.backend == chosen


def test_llguidance_is_told_that_objects_are_closed() -> None:
    told = vllm_constraints.prepared({"json": '{"properties": {}}'}, "guidance")
    assert json.loads(told["json"]) == {"properties": {}, "additionalProperties": False}


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
        ({"json": "true"}, "guidance"),
        ({"json": "{"}, "guidance"),
        ({"json": '{"oneOf"'}, "guidance"),
        ({"regex": '"oneOf"'}, "guidance"),
        ({"structural_tag": TAG}, "xgrammar"),
    ],
)
def test_everything_else_is_told_as_it_is(constraint: dict[str, Any], library: str) -> None:
    assert vllm_constraints.prepared(constraint, library) == constraint


def test_structural_tags_are_left_to_xgrammar() -> None:
    with pytest.raises(InvalidRequest) as caught:
        vllm_constraints.prepared({"structural_tag": TAG}, "guidance")
    assert str(caught.value).endswith(
        ": structural_tag needs xgrammar, which the model's structured_outputs_config.backend may name."
    )


def test_no_answer_is_logged_where_llguidance_gives_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger(vllm_constraints.LOGGER)
    monkeypatch.setattr(logger, "filters", [])
    monkeypatch.delenv("RBLN_VLLM_BACKEND_OWNER_PID", raising=False)
    vllm_constraints.keep_answers_out_of_the_log()
    assert not logger.filters
    monkeypatch.setenv("RBLN_VLLM_BACKEND_OWNER_PID", "1")
    vllm_constraints.keep_answers_out_of_the_log()
    logger.warning("LLMatcher error: %s", "<state> Tokens: the answer so far")
    assert caplog.messages == [vllm_constraints.BEYOND]
