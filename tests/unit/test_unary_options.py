"""The unary model's parameters: few, and strict."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbln_vllm_backend import unary_options
from rbln_vllm_backend.errors import ConfigError
from rbln_vllm_backend.model_folder import ModelFolder
from rbln_vllm_backend.unary_options import UnaryOptions

COMMITTED = Path(__file__).parents[2] / "model_repository" / "llm_unary"


def test_without_parameters_it_asks_llm() -> None:
    assert unary_options.read({}) == UnaryOptions("llm", 1024, 0.1, 20.0)


def test_tritons_own_parameters_are_left_alone() -> None:
    assert unary_options.read({"EXECUTION_ENV_PATH": "/x", "serving.target_model": "m"}).target_model == "m"


def test_every_fault_is_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        unary_options.read({"model": "x", "serving.target_model": "", "serving.warmup": "true"})
    assert str(caught.value) == (
        "3 faults in config.pbtxt:\n"
        "  - model = 'x': the unary model takes only serving.… parameters. Set it for the model that answers.\n"
        "  - serving.target_model = '': must be a text that is not empty. Correct the value or remove the parameter.\n"
        "  - serving.warmup = 'true': no such option. Known: serving.cancel_poll_interval_s, serving.drain_timeout_s, "
        "serving.max_inflight_requests, serving.target_model."
    )


def test_the_committed_file_is_read() -> None:
    parameters = {key: value.string_value for key, value in ModelFolder(COMMITTED).read().parameters.items()}
    assert unary_options.read(parameters) == UnaryOptions()
