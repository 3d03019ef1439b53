"""Secrets stay out of what people read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbln_vllm_backend import config
from rbln_vllm_backend.errors import ConfigError, Fault
from rbln_vllm_backend.masking import masked


@pytest.mark.parametrize(
    "name",
    [
        "env.HF_TOKEN",
        "hf_token",
        "API_KEY",
        "env.OPENAI_APIKEY",
        "DB_PASSWORD",
        "AWS_CREDENTIALS",
        "env.S3-SECRET",
        "env.GIT_PAT",
        "env.DB_PASS",
        "env.OTEL_EXPORTER_OTLP_HEADERS",
    ],
)
def test_a_secret_is_hidden(name: str) -> None:
    assert masked(name, "hush") == "(hidden)"


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer",
        "serving.max_tokens_cap",
        "speculative_config.num_speculative_tokens",
        "env.KEYBOARD",
        "model",
        "speculative_config.suffix_decoding_min_token_prob",
        "enable_pass",
    ],
)
def test_other_values_are_shown(name: str) -> None:
    assert masked(name, "shown") == "shown"


def test_a_refused_secret_is_not_quoted(tmp_path: Path) -> None:
    parameters = {"model": "org/name", "env.HF-TOKEN": "hush", "serving.api_key": "hush"}
    with pytest.raises(ConfigError) as caught:
        config.read(parameters, tmp_path)
    assert "env.HF-TOKEN = '(hidden)': not the name of an environment variable." in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_fault_without_a_secret_quotes_its_value() -> None:
    assert str(Fault("dtype", "no such type", "Correct it", "floot")) == "dtype = 'floot': no such type. Correct it."
