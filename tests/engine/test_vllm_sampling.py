"""What holds for a request that doesn't say, and vLLM's own objects made of one that does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from model_repository import write_model
from rbln_vllm_backend import vllm_prompts, vllm_sampling
from rbln_vllm_backend.engine import Generation
from rbln_vllm_backend.errors import ConfigError, InvalidRequest
from rbln_vllm_backend.model_folder import ModelFolder
from rbln_vllm_backend.speculation import Speculation


def config(**defaults: Any) -> Any:
    return SimpleNamespace(model_config=SimpleNamespace(get_diff_sampling_param=lambda: defaults))


def test_the_checkpoints_min_p_is_dropped_with_speculation(caplog: pytest.LogCaptureFixture) -> None:
    speculation = Speculation("ngram", {"method": "ngram", "num_speculative_tokens": 3})
    assert vllm_sampling.defaults(config(min_p=0.05, top_k=20), speculation) == {"top_k": 20}
    assert caplog.messages == [
        "The checkpoint's default min_p = 0.05 is dropped: it isn't possible with speculative decoding."
    ]
    assert vllm_sampling.defaults(config(min_p=0.05), None) == {"min_p": 0.05}


@pytest.mark.parametrize(
    ("asked", "checkpoint", "cap", "most"),
    [(None, None, None, None), (None, None, 9, 9), (None, 5, 9, 5), (None, 12, 9, 9), (3, 5, 9, 3), (7, 5, None, 7)],
)
def test_the_fewest_tokens_win(asked: int | None, checkpoint: int | None, cap: int | None, most: int | None) -> None:
    sampling = {"max_tokens": asked} if asked else {}
    default = {"max_tokens": checkpoint} if checkpoint else {}
    assert vllm_sampling.params(Generation("r", "p", sampling, True), default, cap, "guidance").max_tokens == most


def test_what_vllm_alone_knows_is_wrong_names_the_field() -> None:
    generation = Generation("r", "p", {"repetition_detection": {"max_pattern_size": 1}}, True)
    with pytest.raises(InvalidRequest, match="repetition_detection = "):
        vllm_sampling.params(generation, {}, None, "guidance")


def test_a_chat_template_that_cannot_be_read_fails_the_load() -> None:
    vllm_prompts.require_template(None)
    vllm_prompts.require_template(
        "{% for m in messages %}{% generation %}{{ m }}{% endgeneration %}{% break %}{% endfor %}"
    )
    with pytest.raises(ConfigError) as caught:
        vllm_prompts.require_template("{{ messages }}\n{% for %}")
    (fault,) = caught.value.faults
    assert str(fault).startswith("serving.chat_template: not a Jinja template (line 2: ")
    assert str(fault).endswith("). Mend the template.")


@pytest.mark.parametrize(("asked", "given"), [(1e-300, 1e-6), (1e-6, 1e-6), (0.5, 0.5), (1.0, 1.0)])
def test_a_top_p_that_is_zero_in_the_engine_keeps_its_likeliest_token(asked: float, given: float) -> None:
    assert vllm_sampling.params(Generation("r", "p", {"top_p": asked}, True), {}, None, "guidance").top_p == given


def test_check_reads_the_chat_template_too(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "llm", {"model": "org/name", "serving.chat_template": "{% for %}"})
    with pytest.raises(ConfigError) as caught:
        ModelFolder(folder).check()
    (fault,) = caught.value.faults
    assert str(fault).startswith("serving.chat_template: not a Jinja template (line 1: ")
