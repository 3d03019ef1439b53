"""Sampling with speculation on vLLM's CPU platform: one request that samples leaves its neighbours alone."""

from __future__ import annotations

import asyncio

import pytest

from rbln_vllm_backend import vllm_cpu_sampling
from rbln_vllm_backend.engine import Step

from .conftest import EngineOnALoop

PROMPT = "one two three one two three one two three"
GREEDY = {"temperature": 0.0, "max_tokens": 64, "ignore_eos": True}


def text(steps: list[Step]) -> str:
    return "".join(piece.text for step in steps for piece in step.pieces)


def test_a_greedy_request_keeps_its_text_beside_neighbours_that_sample(ngram_engine: EngineOnALoop) -> None:
    alone = text(ngram_engine.ask(PROMPT, **GREEDY))

    async def one(temperature: float) -> list[Step]:
        return [step async for step in ngram_engine.steps(PROMPT, True, **{**GREEDY, "temperature": temperature})]

    async def together() -> list[list[Step]]:
        return await asyncio.gather(*(one(1.0 if number % 2 else 0.0) for number in range(8)))

    answers = [text(steps) for steps in ngram_engine.loop.run(together()).result(timeout=120)]
    assert set(answers[::2]) == {alone}
    assert len(set(answers[1::2])) > 1


@pytest.mark.parametrize("kind", ["float32", "int32", "int64"])
def test_each_requests_value_is_spread_over_its_tokens(kind: str) -> None:
    import torch

    dtype = getattr(torch, kind)
    output = torch.full((6,), -77, dtype=dtype)
    vllm_cpu_sampling.expand(
        output, torch.tensor([0, 7, 9], dtype=dtype), torch.tensor([2, 3, 6]), 0, 1, MAX_NUM_TOKENS=8
    )
    assert output.tolist() == [1, 1, 7, 9, 9, 9]


def test_the_faulty_function_is_where_it_is_looked_for() -> None:
    from vllm.utils import cpu_triton_utils

    assert hasattr(cpu_triton_utils, vllm_cpu_sampling._FAULTY)
