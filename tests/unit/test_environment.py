"""The process before vLLM is loaded."""

from __future__ import annotations

import pytest

from rbln_vllm_backend import environment


def test_log_lines_and_processes_of_vllm_carry_the_models_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_LOGGING_PREFIX", raising=False)
    monkeypatch.setenv("VLLM_PROCESS_NAME_PREFIX", "mine")
    assert environment.names_of_processes("llm%") == {"VLLM_LOGGING_PREFIX": "[llm%%] "}
    monkeypatch.delenv("VLLM_PROCESS_NAME_PREFIX")
    assert environment.names_of_processes("llm")["VLLM_PROCESS_NAME_PREFIX"] == "llm::VLLM"
