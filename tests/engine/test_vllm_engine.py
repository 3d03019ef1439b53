"""The vLLM adapter on the real engine (CPU): what the port promises."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rbln_vllm_backend.engine import SpeculationCounts, Step
from rbln_vllm_backend.errors import InvalidRequest

from .conftest import EngineOnALoop

PROMPT = "one two three one two three one two three"
GREEDY = {"temperature": 0.0, "max_tokens": 64, "ignore_eos": True}


def text(steps: Sequence[Step]) -> str:
    return "".join(piece.text for step in steps for piece in step.pieces)


def tokens(steps: Sequence[Step]) -> int:
    return sum(piece.num_tokens for step in steps for piece in step.pieces)


def counts(steps: Sequence[Step]) -> SpeculationCounts | None:
    return steps[-1].pieces[0].speculation


def test_the_description_names_version_platform_and_speculation(
    ngram_engine: EngineOnALoop, plain_engine: EngineOnALoop
) -> None:
    assert "vLLM 0.32" in ngram_engine.description
    assert "on cpu" in ngram_engine.description
    assert "speculation ngram" in ngram_engine.description
    assert "no speculation" in plain_engine.description


def test_joined_pieces_equal_the_unary_text(ngram_engine: EngineOnALoop) -> None:
    streamed, unary = ngram_engine.ask(PROMPT, **GREEDY), ngram_engine.ask(PROMPT, stream=False, **GREEDY)
    assert len(streamed) > 1
    assert len(unary) == 1
    assert text(streamed) == text(unary)
    assert tokens(streamed) == tokens(unary) == 64
    assert [step.finished for step in streamed] == [False] * (len(streamed) - 1) + [True]


def test_with_speculation_on_and_off_the_same_tokens(ngram_engine: EngineOnALoop, plain_engine: EngineOnALoop) -> None:
    speculated, plain = ngram_engine.ask(PROMPT, **GREEDY), plain_engine.ask(PROMPT, **GREEDY)
    assert text(speculated) == text(plain)
    numbers = counts(speculated)
    assert numbers is not None
    assert numbers.draft_tokens > 0
    assert numbers.accepted_tokens > 0
    assert len(speculated) < len(plain)
    assert counts(plain) == SpeculationCounts(configured=False)


def test_after_a_stop_string_the_engine_has_no_numbers(ngram_engine: EngineOnALoop) -> None:
    whole = text(ngram_engine.ask(PROMPT, **GREEDY))
    stop = next(char for char in whole[5:] if char not in whole[:5] and char.isprintable())
    steps = ngram_engine.ask(PROMPT, **{**GREEDY, "stop": [stop]})
    assert steps[-1].pieces[0].finish_reason == "stop"
    assert counts(steps) is None


def test_without_max_tokens_it_goes_to_the_end_of_the_context(plain_engine: EngineOnALoop) -> None:
    steps = plain_engine.ask(PROMPT, stream=False, temperature=0.0, ignore_eos=True)
    assert tokens(steps) == 512 - steps[0].num_input_tokens
    assert steps[0].pieces[0].finish_reason == "length"


def test_several_sequences_come_with_their_index(plain_engine: EngineOnALoop) -> None:
    steps = plain_engine.ask(PROMPT, stream=False, n=3, temperature=0.9, seed=1, max_tokens=8, ignore_eos=True)
    assert [piece.index for piece in steps[0].pieces] == [0, 1, 2]
    assert [piece.num_tokens for piece in steps[0].pieces] == [8, 8, 8]


def test_logprobs_have_one_entry_for_each_token(plain_engine: EngineOnALoop) -> None:
    steps = plain_engine.ask(PROMPT, temperature=0.0, max_tokens=8, ignore_eos=True, logprobs=2)
    pieces = [piece for step in steps for piece in step.pieces]
    assert sum(len(piece.logprobs or ()) for piece in pieces) == 8
    assert pieces[-1].cumulative_logprob is not None


@pytest.mark.parametrize(
    ("prompt", "sampling", "words"),
    [
        ("word " * 600, {}, ("text_input", "512")),
        ("x" * 1_000_000, {}, ("text_input",)),
        ("hi", {"logprobs": 21}, ("logprobs", "20")),
        ("hi", {"min_p": 0.05}, ("min_p", "speculative")),
        ("hi", {"logit_bias": {5: 1.0}}, ("logit_bias", "speculative")),
        ("hi", {"structured_outputs": {"regex": "((("}}, ("regex",)),
        ("hi", {"min_tokens": 9, "max_tokens": 2}, ("min_tokens",)),
    ],
    ids=["long", "very long", "logprobs", "min_p", "logit_bias", "regex", "min_tokens"],
)
def test_what_the_engine_refuses_is_the_clients_fault(
    ngram_engine: EngineOnALoop, prompt: str, sampling: dict[str, object], words: Sequence[str]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ngram_engine.ask(prompt, **sampling)
    for word in words:
        assert word in str(caught.value)
    assert tokens(ngram_engine.ask(PROMPT, **{**GREEDY, "max_tokens": 4})) == 4


def test_closing_the_iterator_aborts_the_request(plain_engine: EngineOnALoop) -> None:
    async def one_step_only() -> int:
        steps = plain_engine.steps(PROMPT, stream=True, temperature=0.0, ignore_eos=True)
        await anext(steps)
        await steps.aclose()
        while plain_engine.engine._llm.output_processor.has_unfinished_requests():
            await asyncio.sleep(0.01)
        return 1

    assert plain_engine.loop.run(one_step_only()).result(timeout=30) == 1
