"""What a client can't do: bring code, name files, or reach what only the operator decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbln_vllm_backend import config, sampling
from rbln_vllm_backend.errors import InvalidRequest

# Fields of vLLM's requests, past and present, that name code or files, or pass data through unchecked.
LOADING = (
    "logits_processors",
    "logits_processor_pattern",
    "guided_decoding",
    "extra_args",
    "vllm_xargs",
    "kv_transfer_params",
    "trust_remote_code",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "tokenizer",
    "model",
    "lora_path",
    "lora_local_path",
    "chat_template",
    "output_kind",
    "skip_clone",
)


@pytest.mark.parametrize("name", LOADING)
def test_a_field_that_loads_code_or_files_is_refused(name: str) -> None:
    for document, parameters in ((f'{{"{name}": "/etc/passwd"}}', {}), (None, {name: "/etc/passwd"})):
        with pytest.raises(InvalidRequest) as caught:
            sampling.read(document, parameters)
        assert str(caught.value).startswith(f"{name} is not a sampling parameter")


def test_remote_code_is_off_unless_the_operator_sets_it(tmp_path: Path) -> None:
    assert "trust_remote_code" not in config.read({"model": "org/name"}, tmp_path).engine_flags
    set_by_operator = {"model": "org/name", "trust_remote_code": "true"}
    assert config.read(set_by_operator, tmp_path).engine_flags["trust_remote_code"] == "true"
