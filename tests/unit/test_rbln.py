"""RBLN's rules, checked on a laptop: ``serving.platform`` says whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_repository import NGRAM
from rbln_vllm_backend import config, rbln
from rbln_vllm_backend.config import BackendConfig
from rbln_vllm_backend.errors import ConfigError

SPECULATIVE = {"model": "org/name", **NGRAM, "serving.platform": "rbln"}


def read(**more: str) -> BackendConfig:
    return config.read({**SPECULATIVE, **more}, Path("/"))


@pytest.mark.parametrize("given", [{}, {"model_impl": "auto"}], ids=["unset", "auto"])
def test_with_speculation_the_implementation_is_vllm_and_the_log_says_so(given: dict[str, str]) -> None:
    settings = read(**given)
    assert settings.engine_flags["model_impl"] == "vllm"
    assert settings.notes == (
        "model_impl is set to vllm: speculative decoding needs it, and auto may choose the optimum implementation.",
    )


def test_the_implementation_that_can_speculate_needs_no_word() -> None:
    assert read(model_impl="vllm").notes == ()


@pytest.mark.parametrize("implementation", ["transformers", "optimum"])
def test_the_other_implementation_is_refused_with_the_documented_reason(implementation: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(model_impl=implementation)
    assert [str(fault) for fault in caught.value.faults] == [
        f"model_impl = {implementation!r}: speculative decoding needs the vllm model implementation, and the engine "
        'refuses it on this one. Set model_impl to "vllm", or remove the speculation.'
    ]


def test_asynchronous_scheduling_is_turned_off_with_the_documented_warning() -> None:
    settings = read(model_impl="vllm", async_scheduling="true")
    assert settings.engine_flags["async_scheduling"] == "false"
    assert settings.notes == (
        "async_scheduling is turned off: it feeds one sampled token a step into the next, and speculative decoding "
        "gives several. The engine runs synchronously.",
    )


def test_without_speculation_nothing_is_changed() -> None:
    settings = config.read(
        {"model": "org/name", "serving.platform": "rbln", "model_impl": "optimum", "async_scheduling": "true"},
        Path("/"),
    )
    assert settings.engine_flags == {"model": "org/name", "model_impl": "optimum", "async_scheduling": "true"}


def test_off_rbln_an_asynchronous_ngram_is_refused_before_vllm_is_loaded() -> None:
    with pytest.raises(ConfigError) as caught:
        read(**{"serving.platform": "cpu", "async_scheduling": "true"})
    assert [str(fault) for fault in caught.value.faults] == [
        "async_scheduling = 'true': vLLM can't schedule asynchronously with the speculative method ngram. "
        "Remove the parameter."
    ]
    settings = read(**{"serving.platform": "cpu"})
    assert "model_impl" not in settings.engine_flags


@pytest.mark.parametrize(
    ("installed", "chosen", "expected"),
    [
        ({"vllm_rbln", "rebel"}, "auto", True),
        ({"vllm_rbln"}, "auto", False),
        (set(), "auto", False),
        (set(), "rbln", True),
        ({"vllm_rbln", "rebel"}, "cpu", False),
    ],
)
def test_the_platform_is_what_was_said_or_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, installed: set[str], chosen: str, expected: bool
) -> None:
    monkeypatch.setattr(rbln.importlib.util, "find_spec", lambda name: name if name in installed else None)
    assert rbln.is_platform(chosen) is expected
