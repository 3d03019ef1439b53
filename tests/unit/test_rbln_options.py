"""The options of vllm-rbln, checked where it isn't installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbln_vllm_backend import config, rbln_options
from rbln_vllm_backend.errors import ConfigError


def faults(implementation: str | None = None, **flags: str) -> list[str]:
    return [str(fault) for fault in rbln_options.faults(flags, implementation)]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("rbln_num_devices_per_local_rank", "4"),
        ("rbln_use_custom_sampler", "false"),
        ("rbln_decode_batch_bucket_strategy", "manual"),
        ("rbln_decode_batch_bucket_manual_buckets", "[1, 4, 8]"),
        ("rbln_decode_batch_bucket_manual_buckets", "4"),
        ("rbln_compile_dtype", "bfloat16"),
        ("rbln_optimum_overrides", '{"prefill_chunk_size": 128}'),
        ("max_model_len", "not ours"),
    ],
)
def test_a_good_value_passes(key: str, text: str) -> None:
    assert faults(**{key: text}) == []


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("rbln_num_devices_per_local_rank", "0", "an integer of at least 1"),
        ("rbln_use_w8a8", "maybe", "true or false"),
        ("rbln_decode_batch_bucket_strategy", "exp", "one of exponential, linear, manual"),
        ("rbln_decode_batch_bucket_min", "0", "an integer of at least 1"),
        ("rbln_decode_batch_bucket_manual_buckets", "[1, 0]", "a JSON list of integers of at least 1, such as [1, 4]"),
        ("rbln_decode_batch_bucket_manual_buckets", "[1,", "a JSON list of integers of at least 1, such as [1, 4]"),
        ("rbln_optimum_overrides", "[]", "a JSON object"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(key: str, text: str, words: str) -> None:
    assert faults(**{key: text}) == [f"{key} = {text!r}: must be {words}. Correct the value."]


def test_an_option_of_the_other_implementation_is_refused() -> None:
    assert faults("vllm", rbln_optimum_overrides="{}") == [
        "rbln_optimum_overrides = '{}': the option belongs to the optimum implementation, and model_impl is vllm. "
        "Remove it, or change model_impl."
    ]
    assert faults("optimum", rbln_use_w8a8="true") == [
        "rbln_use_w8a8 = 'true': the option belongs to the vllm implementation, and model_impl is optimum. "
        "Remove it, or change model_impl."
    ]


def test_an_unknown_option_is_refused_with_those_that_there_are() -> None:
    (fault,) = faults(rbln_foo="1")
    assert fault.startswith("rbln_foo = '1': no such option of vllm-rbln 0.12. Known, each after rbln_: ")


def test_on_a_cpu_an_option_of_npus_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        config.read({"model": "org/name", "rbln_use_w8a8": "true", "serving.platform": "cpu"}, Path("/"))
    assert [str(fault) for fault in caught.value.faults] == [
        "rbln_use_w8a8: an option of NPUs, and the platform is cpu (serving.platform is cpu). "
        'Remove it, or set serving.platform to "rbln".'
    ]
