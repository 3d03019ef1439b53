"""Every field of vLLM's sampling parameters has been decided on, and its default is the documented one."""

from __future__ import annotations

from typing import Any

import pytest

from rbln_vllm_backend import sampling

# Said in words, since vLLM's own default isn't what a client gets, or is no JSON value.
IN_WORDS = {
    "max_tokens": "to the end of the context",
    "stream_interval": "the engine's",
    "allowed_token_ids": "all",
    "skip_reading_prefix_cache": "false",
}
OURS_ALONE = {"lora_name"}


@pytest.fixture(scope="module")
def fields() -> dict[str, Any]:
    """vLLM's public fields with their defaults."""
    import msgspec
    from vllm.sampling_params import SamplingParams

    return {one.name: one.default for one in msgspec.structs.fields(SamplingParams) if not one.name.startswith("_")}


def test_somebody_has_decided_on_every_field_of_the_installed_vllm(fields: dict[str, Any]) -> None:
    assert fields.keys() - sampling.PARAMETERS.keys() - sampling.NOT_OURS.keys() == set()


def test_every_parameter_is_a_field_of_vllm_or_ours_alone(fields: dict[str, Any]) -> None:
    assert sampling.PARAMETERS.keys() - fields.keys() == OURS_ALONE


def test_no_field_is_both_a_clients_and_not(fields: dict[str, Any]) -> None:
    assert not sampling.PARAMETERS.keys() & sampling.NOT_OURS.keys()


def test_the_documented_defaults_are_vllms(fields: dict[str, Any]) -> None:
    documented = {name: one.default for name, one in sampling.PARAMETERS.items() if name not in OURS_ALONE}
    assert documented == {name: IN_WORDS.get(name, in_words(fields[name])) for name in documented}


def test_logprobs_of_named_tokens_still_cost_their_neighbours_theirs() -> None:
    """Why no client may ask for them; with speculation the same mixture ends the engine. 0.30 to 0.32 are alike."""
    import torch
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.sample.sampler import Sampler

    unused = torch.empty(0)
    metadata = SamplingMetadata(
        temperature=None,
        all_greedy=True,
        all_random=False,
        top_p=None,
        top_k=None,
        generators={},
        max_num_logprobs=3,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=unused,
        presence_penalties=unused,
        repetition_penalties=unused,
        output_token_ids=[[], []],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
        logprob_token_ids={0: [1]},
    )
    given = Sampler()(torch.rand(2, 8), metadata).logprobs_tensors
    assert given.logprobs.shape == (2, 2)  # the second request wants three beside the chosen one


def in_words(default: Any) -> str:
    return f"{default:g}" if type(default) is float else str(default).lower()
