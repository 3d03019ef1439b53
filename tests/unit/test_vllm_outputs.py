"""What the engine's own end of a request becomes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rbln_vllm_backend import vllm_outputs
from rbln_vllm_backend.engine import Generation
from rbln_vllm_backend.errors import RequestError


@pytest.mark.parametrize(
    ("sampling", "reason", "code", "message"),
    [
        (
            {"structured_outputs": {"regex": "a"}},
            "error",
            "INVALID_ARG",
            "structured_outputs = {'regex': 'a'}: the engine can't compile it, or the other sampling parameters leave "
            "nothing that it allows.",
        ),
        ({}, "error", "INTERNAL", "The engine ended the request (error)."),
        ({"structured_outputs": {"regex": "a"}}, "abort", "INTERNAL", "The engine ended the request (abort)."),
    ],
)
def test_an_error_of_the_engine_is_an_error_reply(
    sampling: dict[str, Any], reason: str, code: str, message: str
) -> None:
    output = SimpleNamespace(outputs=[SimpleNamespace(finish_reason=reason)])
    with pytest.raises(RequestError) as caught:
        vllm_outputs.require_no_error(output, Generation("r", "p", sampling, True))
    assert (caught.value.code, str(caught.value)) == (code, message)


def test_an_answer_that_ends_or_goes_on_is_no_error() -> None:
    for reason in (None, "stop", "length"):
        output = SimpleNamespace(outputs=[SimpleNamespace(finish_reason=reason)])
        vllm_outputs.require_no_error(output, Generation("r", "p", {}, True))
