"""Parameters read by vLLM's own parser: the contract with it."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import get_args

import pytest

from rbln_vllm_backend import config, speculation, vllm_engine, vllm_flags, vllm_refusals
from rbln_vllm_backend.errors import ConfigError, EngineStartError


def parse(**flags: str) -> Namespace:
    return vllm_flags.parse(flags, None)


def faults(flags: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        vllm_flags.parse(flags, None)
    return [str(fault) for fault in caught.value.faults]


def test_a_parameter_is_a_flag_of_vllm() -> None:
    read = parse(model="/x", max_model_len="1k", dtype="float32", gpu_memory_utilization="0.5", seed="-1")
    assert (read.model, read.max_model_len, read.dtype) == ("/x", 1000, "float32")
    assert (read.gpu_memory_utilization, read.seed) == (0.5, -1)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False), ("1", True), ("no", False)])
def test_a_switch_is_spelled_as_text(text: str, value: bool) -> None:
    assert parse(enable_prefix_caching=text).enable_prefix_caching is value
    assert parse(disable_log_stats=text).disable_log_stats is value


def test_nested_keys_and_json_are_read() -> None:
    flags = {"additional_config.a.b": "3", "hf_overrides": '{"x": 1}'}
    read = vllm_flags.parse(flags, None)
    assert (read.additional_config, read.hf_overrides) == ({"a": {"b": 3}}, {"x": 1})


def test_a_list_is_json_or_a_single_word() -> None:
    assert parse(served_model_name='["a", "b"]').served_model_name == ["a", "b"]
    assert parse(served_model_name="a").served_model_name == ["a"]


def test_speculation_arrives_with_its_types() -> None:
    chosen, _ = speculation.read({"spec_method": "ngram", "spec_tokens": "3"}, Path("/"))
    read = vllm_flags.parse({"model": "/x"}, chosen)
    assert read.speculative_config == {"method": "ngram", "num_speculative_tokens": 3}


def test_an_unknown_flag_gets_the_nearest_ones() -> None:
    assert faults({"max_model_length": "5"}) == [
        "max_model_length = '5': no such parameter. The nearest known: max_model_len."
    ]


def test_an_abbreviation_is_no_flag() -> None:
    (found,) = faults({"max_model": "5"})
    assert "no such parameter" in found


@pytest.mark.parametrize("name", ["help", "config", "chat_template", "port"])
def test_what_is_no_engine_flag_is_refused(name: str) -> None:
    (found,) = faults({name: "x"})
    assert found.startswith(f"{name} = 'x': no such parameter.")


def test_a_negated_switch_is_sent_to_its_positive_name() -> None:
    assert faults({"no_enable_prefix_caching": "true"}) == [
        "no_enable_prefix_caching = 'true': a switch is named without no_. Set enable_prefix_caching to \"false\"."
    ]


def test_two_faults_are_reported_together() -> None:
    assert faults({"max_num_seqs": "1.5", "model": "/x", "dtype": "float33"}) == [
        "max_num_seqs = '1.5': invalid int value: '1.5'. See `vllm serve --help` for what it takes.",
        "dtype = 'float33': invalid choice: 'float33' (choose from 'auto', 'bfloat16', 'float', 'float16', "
        "'float32', 'half'). See `vllm serve --help` for what it takes.",
    ]


def test_a_bad_switch_says_what_it_takes() -> None:
    assert faults({"enforce_eager": "maybe"}) == ["enforce_eager = 'maybe': must be true or false. Correct the value."]


def test_a_flag_that_vllms_configuration_refuses_is_named_in_one_sentence(checkpoint: Path) -> None:
    flags = {"model": str(checkpoint), "max_num_seqs": "0", "gpu_memory_utilization": "7"}
    with pytest.raises(ConfigError) as caught:
        vllm_engine.configured(config.read(flags, Path("/")))
    assert str(caught.value) == (
        "1 fault in config.pbtxt:\n"
        "  - gpu_memory_utilization = '7': Input should be less than or equal to 1. Correct the value."
    )
    with pytest.raises(EngineStartError) as refused:
        vllm_engine.configured(config.read({"model": str(checkpoint), "max_model_len": "0"}, Path("/")))
    assert str(refused.value) == (
        "vLLM refuses the configuration: max_model_len must be a positive integer, got int: 0. "
        "Example: max_model_len=2048."
    )


def test_a_hub_id_that_cannot_be_fetched_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError) as caught:
        vllm_engine.configured(config.read({"model": "no-such-org/none"}, Path("/")))
    (fault,) = caught.value.faults
    assert (fault.key, fault.remedy) == ("model", "Name a checkpoint folder, or a hub id that this host can reach")


def test_what_the_parser_quotes_of_pydantic_is_one_sentence() -> None:
    assert faults({"compilation_config.mode": "99", "additional_config": "{a}"}) == [
        "compilation_config.mode = '99': mode Input should be 0, 1, 2 or 3. See `vllm serve --help` for what it takes.",
        "additional_config = '{a}': not valid JSON. See `vllm serve --help` for what it takes.",
    ]


def test_the_longest_draft_is_what_vllms_sampler_takes() -> None:
    from vllm.v1.sample.rejection_sampler import MAX_SPEC_LEN

    assert speculation._MOST_DRAFT_TOKENS == MAX_SPEC_LEN


def test_the_model_implementations_are_vllms() -> None:
    from vllm.config.model import ModelImpl

    assert get_args(ModelImpl) == config._IMPLEMENTATIONS


def test_what_vllm_says_of_a_failed_start_points_to_the_servers_log() -> None:
    said = "Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    assert vllm_refusals.sentence(said) == (
        "Engine core initialization failed. The server's log has the cause, above this"
    )
