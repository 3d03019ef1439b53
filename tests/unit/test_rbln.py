"""RBLN's rules, checked on a laptop: ``serving.platform`` says whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_repository import NGRAM
from rbln_vllm_backend import config
from rbln_vllm_backend.config import BackendConfig
from rbln_vllm_backend.errors import ConfigError

SPECULATIVE = {"model": "org/name", "max_num_seqs": "8", **NGRAM, "serving.platform": "rbln"}


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
    assert settings.notes == (
        "max_num_seqs is not set, and RBLN's default is 1: one request is served at a time, and the others wait. "
        "Set it to the number of streams that should run at once.",
    )


def test_off_rbln_an_asynchronous_ngram_is_refused_before_vllm_is_loaded() -> None:
    with pytest.raises(ConfigError) as caught:
        read(**{"serving.platform": "cpu", "async_scheduling": "true"})
    assert [str(fault) for fault in caught.value.faults] == [
        "async_scheduling = 'true': vLLM can't schedule asynchronously with the speculative method ngram. "
        "Remove the parameter."
    ]
    settings = read(**{"serving.platform": "cpu"})
    assert "model_impl" not in settings.engine_flags


def refusal(**more: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(**more)
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize("method", ["draft_model", "ngram_gpu", "mlp_speculator"])
def test_a_method_without_a_proposer_is_refused_before_any_weights(method: str) -> None:
    draft = {} if method == "ngram_gpu" else {"speculative_config.model": "org/draft"}
    with pytest.raises(ConfigError) as caught:
        config.read(
            {
                "model": "org/name",
                "serving.platform": "rbln",
                "speculative_config.method": method,
                "speculative_config.num_speculative_tokens": "3",
                **draft,
            },
            Path("/"),
        )
    assert [str(fault) for fault in caught.value.faults] == [
        f"speculative_config.method = {method!r}: vllm-rbln 0.12 has no proposer for this method, and would say so "
        "only after loading the weights. Set it to one of ngram, suffix, eagle, eagle3, medusa, mtp."
    ]


def test_dflash_passes_with_a_warning() -> None:
    settings = config.read(
        {
            "model": "org/name",
            "max_num_seqs": "8",
            "model_impl": "vllm",
            "serving.platform": "rbln",
            "speculative_config.method": "dflash",
            "speculative_config.num_speculative_tokens": "3",
            "speculative_config.model": "org/draft",
        },
        Path("/"),
    )
    assert settings.notes == ("The speculative method dflash is not verified on RBLN NPUs.",)


def test_an_atom_device_does_not_speculate() -> None:
    assert refusal(**{"env.RBLN_FORCE_NPU_NAME": "RBLN-CA25"}) == [
        "speculative_config.method = 'ngram': the NPU is RBLN-CA25, an ATOM device: it runs the optimum implementation "
        "only, which can't speculate. Remove the speculation, or serve this model on a Rebel100."
    ]


def test_an_atom_device_does_not_run_the_vllm_implementation() -> None:
    atom = {"model": "org/name", "serving.platform": "rbln", "env.RBLN_FORCE_NPU_NAME": "RBLN-CA25"}
    with pytest.raises(ConfigError) as caught:
        config.read({**atom, "model_impl": "vllm"}, Path("/"))
    assert [str(fault) for fault in caught.value.faults] == [
        "model_impl = 'vllm': the vllm implementation does not run on RBLN-CA25, an ATOM device. Set it to \"optimum\"."
    ]
    assert config.read({**atom, "model_impl": "optimum"}, Path("/")).engine_flags["model_impl"] == "optimum"


def test_a_rebel_device_has_one_npu_for_each_rank() -> None:
    more = {"env.RBLN_FORCE_NPU_NAME": "RBLN-CR03", "rbln_num_devices_per_local_rank": "2"}
    assert refusal(**more) == [
        "rbln_num_devices_per_local_rank = 2: vllm-rbln 0.12 takes one NPU for each rank on RBLN-CR03, and would stop "
        "only after loading the weights. Set tensor_parallel_size instead."
    ]
    optimum = {"model": "org/name", "serving.platform": "rbln", "model_impl": "optimum", **more}
    assert config.read(optimum, Path("/")).engine_flags["rbln_num_devices_per_local_rank"] == "2"


@pytest.mark.parametrize(
    "sampler",
    [{}, {"rbln_use_custom_sampler": "true"}, {"additional_config": '{"use_custom_sampler": true}'}],
    ids=["unset", "flag", "json"],
)
def test_the_npus_sampler_takes_shorter_drafts(sampler: dict[str, str]) -> None:
    key = "speculative_config.num_speculative_tokens"
    assert read(**sampler, **{key: "32"}).speculation is not None
    with pytest.raises(ConfigError) as caught:
        read(**sampler, **{key: "33"})
    assert [str(fault) for fault in caught.value.faults] == [
        f"{key} = 33: the NPU's sampler of vllm-rbln 0.12 checks at most 32 draft tokens in a step, and the engine "
        'ends on more. Set it to 32 at most, or set rbln_use_custom_sampler to "false".'
    ]


@pytest.mark.parametrize(
    "sampler",
    [
        {"rbln_use_custom_sampler": "false"},
        {"additional_config.use_custom_sampler": "false"},
        {"additional_config": '{"use_custom_sampler": false}'},
    ],
    ids=["flag", "key", "json"],
)
def test_without_the_npus_sampler_vllms_own_limit_holds(sampler: dict[str, str]) -> None:
    assert read(**sampler, **{"speculative_config.num_speculative_tokens": "128"}).speculation is not None


@pytest.mark.parametrize("implementation", ["vlm", "VLLM", "terratorch"])
def test_an_implementation_that_the_plugin_does_not_have_is_refused(implementation: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(model_impl=implementation)
    assert (
        f"model_impl = {implementation!r}: vllm-rbln 0.12 has no such model implementation. "
        "Set it to one of auto, vllm, transformers, optimum."
    ) in str(caught.value)
