"""Speculative settings: three forms, one set of checks, whole sentences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rbln_vllm_backend import speculation
from rbln_vllm_backend.errors import Fault

NGRAM = {"speculative_config.method": "ngram", "speculative_config.num_speculative_tokens": "3"}


def faults(parameters: dict[str, str], folder: Path = Path("/")) -> list[str]:
    chosen, found = speculation.read(parameters, folder)
    assert chosen is None
    return [str(fault) for fault in found]


def test_no_parameter_means_no_speculation() -> None:
    assert speculation.read({"model": "x"}, Path("/")) == (None, [])


@pytest.mark.parametrize(
    "parameters",
    [
        NGRAM,
        {"spec_method": "ngram", "spec_tokens": "3"},
        {"speculative_config": '{"method": "ngram", "num_speculative_tokens": 3}'},
    ],
    ids=["flat", "short", "json"],
)
def test_the_three_forms_say_the_same(parameters: dict[str, str]) -> None:
    chosen, found = speculation.read(parameters, Path("/"))
    assert found == []
    assert chosen is not None
    assert json.loads(chosen.as_json()) == {"method": "ngram", "num_speculative_tokens": 3}


def test_the_forms_are_not_mixed() -> None:
    assert faults({**NGRAM, "spec_tokens": "3"}) == [
        "speculative_config: speculation is given in 2 forms at once (spec_tokens, speculative_config.method, "
        "speculative_config.num_speculative_tokens). Use the flat keys speculative_config.… alone."
    ]


def test_the_method_is_never_guessed() -> None:
    assert faults({"speculative_config.num_speculative_tokens": "3"}) == [
        "speculative_config.method: the method is missing, and none is guessed. "
        "Set it to one of ngram, suffix, eagle, eagle3, medusa, mtp."
    ]


@pytest.mark.parametrize("word", ["n-gram", "ngrams", "[ngram]", "NGRAM"])
def test_a_misspelt_method_gets_the_nearest(word: str) -> None:
    assert faults({"speculative_config.method": word}) == [
        f"speculative_config.method = {word!r}: no such method (did you mean ngram?). "
        "Set it to one of ngram, suffix, eagle, eagle3, medusa, mtp."
    ]


def test_a_method_in_another_case_gets_the_right_one() -> None:
    (found,) = faults({"speculative_config.method": "EAGLE3"})
    assert "did you mean eagle3 or eagle?" in found


@pytest.mark.parametrize("number", ["0", "-1", "3.0", "three", ""])
def test_the_number_of_draft_tokens_is_a_positive_integer(number: str) -> None:
    assert faults({**NGRAM, "speculative_config.num_speculative_tokens": number}) == [
        f"speculative_config.num_speculative_tokens = {number!r}: must be an integer of at least 1. Correct the value."
    ]


def test_json_values_have_their_own_types() -> None:
    assert faults({"speculative_config": '{"method": "ngram", "num_speculative_tokens": "3"}'}) == [
        "speculative_config.num_speculative_tokens = '3': must be an integer of at least 1. Correct the value."
    ]


@pytest.mark.parametrize("text", ["{'method': 'ngram'}", '{"method": "ngram",}', "", "${SPEC}", '{"x": True}'])
def test_broken_json_is_refused_with_the_place(text: str) -> None:
    (found,) = faults({"speculative_config": text})
    assert found.startswith("speculative_config = ")
    assert "not valid JSON" in found
    assert found.endswith("Mend it, or use flat keys such as speculative_config.method.")


def test_a_draft_free_method_takes_no_draft() -> None:
    assert faults({**NGRAM, "speculative_config.model": "org/draft"}) == [
        "speculative_config.model = 'org/draft': ngram takes no draft checkpoint. "
        "Remove it, or choose eagle, eagle3 or medusa."
    ]


@pytest.mark.parametrize("method", ["eagle", "eagle3", "medusa"])
def test_a_draft_method_needs_one(method: str) -> None:
    assert faults({"spec_method": method, "spec_tokens": "3"}) == [
        f"speculative_config.model: {method} drafts with a checkpoint of its own, and none is given. "
        "Set speculative_config.model to a draft that was made for this target."
    ]


def test_another_methods_key_is_misplaced() -> None:
    assert faults({**NGRAM, "speculative_config.suffix_decoding_max_spec_factor": "2"}) == [
        "speculative_config.suffix_decoding_max_spec_factor = '2': the key belongs to the method suffix, and the "
        "method is ngram. Remove it, or change the method."
    ]


def test_a_typo_gets_the_nearest_key() -> None:
    (found,) = faults({**NGRAM, "speculative_config.prompt_lookup_mx": "4"})
    assert "no such key (did you mean prompt_lookup_max or prompt_lookup_min?)" in found


def test_a_sampling_key_is_sent_to_the_request() -> None:
    assert faults({**NGRAM, "speculative_config.temperature": "0"}) == [
        "speculative_config.temperature = '0': no such key. ngram takes model, num_speculative_tokens, "
        "prompt_lookup_max, prompt_lookup_min, rejection_sample_method; sampling belongs in the request."
    ]


def test_the_lookup_window_has_an_order() -> None:
    assert faults(
        {**NGRAM, "speculative_config.prompt_lookup_min": "5", "speculative_config.prompt_lookup_max": "3"}
    ) == [
        "speculative_config.prompt_lookup_min = '5': is above speculative_config.prompt_lookup_max = 3. "
        "Lower it, or raise prompt_lookup_max."
    ]


def test_a_draft_path_must_hold_a_checkpoint(tmp_path: Path) -> None:
    parameters = {"spec_method": "eagle", "spec_tokens": "3", "spec_model": "./draft"}
    (found,) = faults(parameters, tmp_path)
    assert found.startswith(f"spec_model = './draft': the path {tmp_path / 'draft'} doesn't exist.")
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text("{}")
    chosen, _ = speculation.read(parameters, tmp_path)
    assert chosen is not None
    assert chosen.options["model"] == str(tmp_path / "draft")


def test_suffix_needs_its_package_and_not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculation.importlib.util, "find_spec", lambda name: None)
    assert faults({"spec_method": "suffix"}) == [
        "spec_method = 'suffix': suffix needs the package arctic-inference==0.1.1, which isn't installed. "
        "Install it with `pip install arctic-inference==0.1.1`."
    ]
    monkeypatch.setattr(speculation.importlib.util, "find_spec", lambda name: object())
    chosen, found = speculation.read({"spec_method": "suffix"}, Path("/"))
    assert found == []
    assert chosen is not None
    assert chosen.notes == (
        "speculative_config.num_speculative_tokens is not set: suffix drafts up to its tree depth, 24 tokens a step.",
    )


@pytest.mark.parametrize("method", ["draft_model", "dflash", "ngram_gpu", "qwen3_next_mtp"])
def test_a_method_that_rbln_does_not_document_loads_with_a_note(method: str) -> None:
    chosen, found = speculation.read({"spec_method": method, "spec_tokens": "3", "spec_model": "org/draft"}, Path("/"))
    assert found == []
    assert chosen is not None
    assert chosen.notes == (f"The speculative method {method} is not verified on RBLN NPUs.",)


def test_several_faults_come_together() -> None:
    assert len(faults({"spec_method": "ngram", "spec_model": "org/draft"})) == 2


def test_a_fault_names_the_parameter_as_it_was_written() -> None:
    _, found = speculation.read({"spec_method": "ngram", "spec_tokens": "x"}, Path("/"))
    assert found == [Fault("spec_tokens", "must be an integer of at least 1", "Correct the value", "x")]


@pytest.mark.parametrize(
    ("method", "key"),
    [
        ("ngram", "num_speculative_tokens"),
        ("suffix", "num_speculative_tokens"),
        ("suffix", "suffix_decoding_max_tree_depth"),
    ],
)
def test_a_draft_is_not_longer_than_what_vllm_can_check_in_a_step(
    method: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speculation.importlib.util, "find_spec", lambda name: object())
    given = {"speculative_config.method": method, f"speculative_config.{key}": "128"}
    assert speculation.read(given, Path("/"))[1] == []
    assert faults({**given, f"speculative_config.{key}": "129"}) == [
        f"speculative_config.{key} = '129': vLLM checks at most 128 draft tokens in a step, and its engine ends on "
        "more. Set it to 128 at most."
    ]


def test_a_deep_tree_may_give_short_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculation.importlib.util, "find_spec", lambda name: object())
    given = {"method": "suffix", "num_speculative_tokens": "8", "suffix_decoding_max_tree_depth": "500"}
    assert speculation.read({f"speculative_config.{name}": text for name, text in given.items()}, Path("/"))[1] == []
