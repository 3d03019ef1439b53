"""The unary model inside a server's module of the same surface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rbln_vllm_backend import unary_call
from rbln_vllm_backend.errors import InvalidRequest, Unavailable, Unsupported


def text(pb: Any, name: str, value: str) -> Any:
    return pb.Tensor(name, np.array([value.encode()], dtype=np.object_))


@pytest.fixture
def target(pb: Any) -> Any:
    from rbln_vllm_backend.triton_unary_call import BlsTarget

    return BlsTarget("llm")


@pytest.fixture
def client(pb: Any) -> Any:
    from rbln_vllm_backend.triton_unary_call import TritonClient

    return TritonClient(
        pb.InferenceRequest(
            [text(pb, "text_input", "hi")],
            parameters='{"temperature": 0.5}',
            request_id="7",
            requested_output_names=["text_output"],
            timeout=5,
            trace="a trace",
        )
    )


def test_a_call_hands_everything_on(pb: Any, target: Any, client: Any) -> None:
    seen = []

    def answer(call: Any) -> Iterator[Any]:
        seen.append(call)
        yield pb.InferenceResponse([])
        yield pb.InferenceResponse([text(pb, "text_output", "hi there")])

    pb.InferenceRequest.target = staticmethod(answer)
    client.answer(target.ask(client, "secret"))
    (call,) = seen
    assert call.inputs() == client.request.inputs()
    assert (call.model_name, call.request_id(), call.timeout(), call.trace()) == ("llm", "7", 5, "a trace")
    assert call.requested_output_names() == ["text_output", unary_call.ERROR]
    assert unary_call.read(call.parameters()) == unary_call.Call("secret", {"temperature": 0.5})
    ((response, flags),) = client.request.sender.sent
    assert [tensor.as_numpy().tolist() for tensor in response.output_tensors()] == [[b"hi there"]]
    assert flags == 1


def test_an_error_of_the_target_is_raised_with_its_code(pb: Any, target: Any, client: Any) -> None:
    told = unary_call.told(Unsupported("image: images are not supported yet."))
    responses = [pb.InferenceResponse([]), pb.InferenceResponse([text(pb, unary_call.ERROR, told)])]
    pb.InferenceRequest.target = staticmethod(lambda call: responses)
    with pytest.raises(Unsupported, match=r"image: images are not supported yet\."):
        target.ask(client, "secret")


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        ("error", "The model llm can't be asked now: Model 'llm' is not ready."),
        ("nothing", "The model llm can't be asked now."),
    ],
)
def test_a_target_that_cannot_be_asked_is_named(
    pb: Any, target: Any, client: Any, responses: str, message: str
) -> None:
    given = [pb.InferenceResponse(error=pb.TritonError("Model 'llm' is not ready."))] if responses == "error" else []
    pb.InferenceRequest.target = staticmethod(lambda call: given)
    with pytest.raises(Unavailable) as caught:
        target.ask(client, "secret")
    assert str(caught.value) == message


def test_an_id_or_parameters_that_are_no_text_are_the_clients_fault(pb: Any, target: Any) -> None:
    class Request(pb.InferenceRequest):  # type: ignore[misc,name-defined]
        def request_id(self) -> str:
            return b"\xff".decode()

    from rbln_vllm_backend.triton_unary_call import TritonClient

    with pytest.raises(InvalidRequest) as caught:
        target.ask(TritonClient(Request([])), "secret")
    assert str(caught.value) == (
        "The request's id and parameters can't be decoded ('utf-8' codec can't decode byte 0xff in position 0: "
        "invalid start byte)."
    )


def test_a_cancel_names_the_call(pb: Any, target: Any) -> None:
    seen = []

    def answer(call: Any) -> Iterator[Any]:
        seen.append(call)
        yield pb.InferenceResponse([])
        yield pb.InferenceResponse([text(pb, "text_output", "1")])

    pb.InferenceRequest.target = staticmethod(answer)
    target.cancel("secret")
    ((tensor,),) = (call.inputs() for call in seen)
    assert (tensor.name(), tensor.as_numpy().tolist()) == ("cancel_request_id", [b"secret"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model_transaction_policy": {"decoupled": True}},
            "1 fault in config.pbtxt:\n  - model_transaction_policy.decoupled = True: the unary model can't be "
            "decoupled. Remove it; the decoupled model is the one that serving.target_model names.",
        ),
        (
            {"parameters": {"model": {"string_value": "x"}}},
            "1 fault in config.pbtxt:\n  - model = 'x': the unary model takes only serving.… parameters. "
            "Set it for the model that answers.",
        ),
    ],
)
def test_a_wrong_configuration_fails_the_load(pb: Any, config: dict[str, Any], message: str) -> None:
    from rbln_vllm_backend.triton_unary_model import TritonPythonModel

    arguments = {"model_name": "llm_unary", "model_version": "1", "model_config": json.dumps(config)}
    with pytest.raises(pb.TritonModelException) as caught:
        TritonPythonModel().initialize(arguments)
    assert str(caught.value) == message
