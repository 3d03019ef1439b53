"""What newer servers ask of the model itself."""

from __future__ import annotations

from typing import Any

from fakes.engine import ScriptedEngine
from rbln_vllm_backend.errors import EngineDown
from rbln_vllm_backend.service import Service
from rbln_vllm_backend.serving_options import ServingOptions


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
