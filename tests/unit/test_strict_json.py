"""What passes for JSON is the same on every Python."""

from __future__ import annotations

import pytest

from rbln_vllm_backend import strict_json


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_a_document_is_as_deep_as_the_bound_and_no_deeper(opening: str, closing: str) -> None:
    levels = opening.count("[") + opening.count("{")
    deepest = strict_json.DEEPEST // levels
    strict_json.decode(opening * deepest + "1" + closing * deepest)
    with pytest.raises(ValueError, match="nested more than 256 deep"):
        strict_json.decode(opening * deepest + "[1]" + closing * deepest)


def test_what_would_exhaust_the_stack_is_refused_in_the_same_words() -> None:
    with pytest.raises(ValueError, match="nested more than 256 deep"):
        strict_json.decode("[" * 200_000 + "]" * 200_000)


def test_a_wide_document_is_not_a_deep_one() -> None:
    assert len(strict_json.decode("[" + ",".join(["[[]]"] * 1000) + "]")) == 1000


@pytest.mark.parametrize("text", ["NaN", "Infinity", "{", "", "\ud800", '"\\ud800"', "{'a': 1}"])
def test_what_the_standard_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        strict_json.decode(text)
