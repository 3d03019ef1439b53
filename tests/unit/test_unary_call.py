"""What the unary model and its target say to each other."""

from __future__ import annotations

import json

import pytest

from rbln_vllm_backend import errors, unary_call
from rbln_vllm_backend.errors import InvalidRequest, RequestError


def test_a_call_carries_its_id_and_the_clients_parameters() -> None:
    parameters = unary_call.parameters_of("7", '{"temperature": 0.5, "id": "x"}')
    assert all(isinstance(value, str) for value in parameters.values())
    call = unary_call.read(parameters)
    assert call == unary_call.Call("7", {"temperature": 0.5, "id": "x"})


def test_a_call_without_parameters_has_none() -> None:
    assert unary_call.read(unary_call.parameters_of("7", "")) == unary_call.Call("7", {})


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"max_tokens": 4},
        {unary_call.CALL: "7"},
        {unary_call.CALL: 7, unary_call.PARAMETERS: "{}"},
        {unary_call.CALL: "7", unary_call.PARAMETERS: "[]"},
        {unary_call.CALL: "7", unary_call.PARAMETERS: "{"},
        {unary_call.CALL: "7", unary_call.PARAMETERS: "[" * 100_000},
    ],
)
def test_anything_else_is_a_clients_own_request(parameters: dict[str, object]) -> None:
    assert unary_call.read(parameters) == unary_call.Call(None, parameters)


@pytest.mark.parametrize(
    "kind", [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, RequestError)]
)
def test_every_error_keeps_its_code_and_message_on_the_way(kind: type[RequestError]) -> None:
    told = unary_call.error_from(unary_call.told(kind("a: b\nc")))
    assert (told.code, str(told)) == (kind.code, "a: b\nc")


def test_nan_in_the_parameters_reaches_the_rule_that_refuses_it() -> None:
    (value,) = unary_call.read(unary_call.parameters_of("7", json.dumps({"top_p": float("nan")}))).parameters.values()
    assert value != value


def test_a_stream_is_refused() -> None:
    unary_call.require_unary(False)
    with pytest.raises(InvalidRequest) as caught:
        unary_call.require_unary(True)
    assert str(caught.value) == "stream = True: this model answers once; the decoupled one behind it streams."
