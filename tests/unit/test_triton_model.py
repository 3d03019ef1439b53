"""What newer servers ask of the model itself."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from fakes.engine import ScriptedEngine, step
from rbln_vllm_backend.errors import EngineDown
from rbln_vllm_backend.service import Service
from rbln_vllm_backend.serving_options import ServingOptions
from rbln_vllm_backend.terms import Terms

DEADLINE_S = 5.0


def test_the_model_is_ready_while_its_engine_is_up(pb: Any) -> None:
    from rbln_vllm_backend.triton_model import TritonPythonModel

    model: Any = TritonPythonModel()
    model._service = Service(ScriptedEngine({}), ServingOptions(warmup=False))
    model._service.start()
    assert model.is_ready() is True
    model._service.suspend(EngineDown("down"))
    assert model.is_ready() is False
    model._service.resume()
    assert model.is_ready() is True
    model._service.stop()
    assert model.is_ready() is False


def test_a_request_whose_parameters_cannot_be_read_leaves_the_others_of_the_same_call_alone(pb: Any) -> None:
    from rbln_vllm_backend.triton_model import TritonPythonModel

    model: Any = TritonPythonModel()
    model._terms = Terms()
    model._service = Service(ScriptedEngine({"hi": [step("a", finish="stop")]}), ServingOptions(warmup=False))
    model._service.start()
    prompt = pb.Tensor("text_input", np.array([b"hi"], dtype=np.object_))
    requests = [pb.InferenceRequest([prompt], parameters=text) for text in ("{", "")]
    model.execute(requests)
    deadline = time.monotonic() + DEADLINE_S
    while not all(request.sender.sent for request in requests):
        assert time.monotonic() < deadline, "a request got no answer"
        time.sleep(0)
    model._service.stop()
    (refusal, _), (answer, _) = [request.sender.sent[-1] for request in requests]
    assert refusal.error().code() == pb.TritonError.INVALID_ARG
    assert [tensor.as_numpy().tolist() for tensor in answer.output_tensors()] == [[b"hia"]]
