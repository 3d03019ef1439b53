"""Each documented method has a file to copy, and it passes every check once its checkpoints are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rbln_vllm_backend import config, speculation
from rbln_vllm_backend.model_folder import ModelFolder

EXAMPLES = Path(__file__).parents[2] / "examples" / "speculation"


@pytest.mark.parametrize("method", speculation.DOCUMENTED)
def test_the_example_is_valid_for_rbln_and_for_a_cpu(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speculation.importlib.util, "find_spec", lambda name: object())
    message = ModelFolder(EXAMPLES / method).read()
    parameters = {key: value.string_value for key, value in message.parameters.items()}
    for key in ("model", "speculative_config.model"):
        if key in parameters:
            folder = tmp_path / key
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps({"hidden_size": 64, "vocab_size": 512}))
            parameters[key] = str(folder)
    for platform in ("rbln", "cpu"):
        settings = config.read({**parameters, "serving.platform": platform}, tmp_path)
        assert settings.speculation is not None
        assert settings.speculation.method == method
        assert settings.engine_flags["model_impl"] == "vllm"


def test_there_is_an_example_for_every_method_and_no_other() -> None:
    assert {folder.name for folder in EXAMPLES.iterdir()} == set(speculation.DOCUMENTED)
