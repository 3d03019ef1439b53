"""The text behind a prompt that ends inside a character: the fault in vLLM, and the cure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rbln_vllm_backend.engine import Step, TokenIds

from .conftest import EngineOnALoop

WORDS = "The quick brown fox "
BIRD = "🦜"


def fast_detokenizer(tokenizer: Any, prompt_ids: list[int]) -> Any:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.detokenizer import FastIncrementalDetokenizer

    request = SimpleNamespace(sampling_params=SamplingParams(), request_id="r", prompt_token_ids=prompt_ids)
    return FastIncrementalDetokenizer(tokenizer, request)


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(checkpoint)


def test_vllm_has_the_fault(checkpoint: Path) -> None:
    """In a process of its own, which nothing has mended; when this fails, vllm_detokenizer can go."""
    program = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parents[1])!r}]
from transformers import AutoTokenizer
from engine.test_detokenizer import BIRD, WORDS, fast_detokenizer
tokenizer = AutoTokenizer.from_pretrained({str(checkpoint)!r})
ids = tokenizer.encode(WORDS + BIRD)
stream = fast_detokenizer(tokenizer, ids[:-1])
stream.update(ids[-1:], False)
assert stream.output_text == WORDS + BIRD, stream.output_text
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


@pytest.fixture
def mended(tokenizer: Any) -> Any:
    from rbln_vllm_backend import vllm_detokenizer

    vllm_detokenizer.repair()
    vllm_detokenizer.repair()  # twice does no harm
    return lambda ids: fast_detokenizer(tokenizer, ids)


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_the_character_is_completed_and_nothing_is_repeated(mended: Any, tokenizer: Any, missing: int) -> None:
    ids = tokenizer.encode(WORDS + BIRD)
    stream = mended(ids[:-missing])
    stream.update([*ids[-missing:], *tokenizer.encode(" and")], False)
    assert stream.output_text in (f"{BIRD} and", f" {BIRD} and")


def test_a_character_that_is_never_completed_stays_with_the_prompt(mended: Any, tokenizer: Any) -> None:
    stream = mended(tokenizer.encode(WORDS + BIRD)[:-1])
    stream.update(tokenizer.encode("and"), False)
    assert stream.output_text == "and"


def test_a_prompt_that_ends_in_a_replacement_character_is_not_repeated(mended: Any, tokenizer: Any) -> None:
    stream = mended(tokenizer.encode(WORDS + "\ufffd"))
    stream.update(tokenizer.encode("and"), False)
    assert stream.output_text == "and"


def test_other_prompts_keep_vllms_own_stream(mended: Any, tokenizer: Any) -> None:
    from tokenizers.decoders import DecodeStream

    for prompt in (WORDS, BIRD, "\ufffd and more words than the last tokens hold, so that it is far away", ""):
        assert type(mended(tokenizer.encode(prompt)).stream) is DecodeStream


def text(steps: list[Step]) -> str:
    return "".join(piece.text for step in steps for piece in step.pieces)


@pytest.mark.parametrize("missing", [1, 2])
def test_the_engine_repeats_no_prompt_and_finds_no_stop_string_in_it(
    plain_engine: EngineOnALoop, tokenizer: Any, missing: int
) -> None:
    ids = tokenizer.encode(WORDS * 3 + BIRD)[:-missing]
    greedy = {"temperature": 0.0, "max_tokens": 24, "ignore_eos": True}
    steps = plain_engine.ask(TokenIds(ids), **greedy, stop=["quick brown"])
    told = [token for step in steps for piece in step.pieces for token in piece.token_ids]
    assert len(told) == 24
    assert WORDS not in text(steps)
    assert text(steps) == tokenizer.decode(ids + told).removeprefix(tokenizer.decode(ids).rstrip("\ufffd")).lstrip(
        "\ufffd"
    )
    assert text(plain_engine.ask(TokenIds(ids), stream=False, **greedy)) == text(steps)
