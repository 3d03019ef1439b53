"""Engines on the simulated NPU, at the port: where drafts meet borders, and what the comparison can see."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.conftest import EngineOnALoop, started
from rbln_vllm_backend.engine import Piece, SpeculationCounts, Step
from trained.text import held_out_documents

from .npu_engine import npu_engine, speculation

PROMPTS = [document.prompt for document in held_out_documents(8, seed=3)]
# Longer than a few blocks, so that there is a whole one to find in the prefix cache.
PROMPTS[-1] = " ".join(PROMPTS[:6])
CONTEXT = 192  # twelve blocks of 16
WHOLE_CONTEXT = {"temperature": 0.0, "ignore_eos": True}
Answer = tuple[str, int, str | None]

pytestmark = pytest.mark.timeout(900)


def parameters(trained: Path, cache: Path, method: str | None = None) -> dict[str, str]:
    chosen = speculation(method, trained) if method else {}
    return npu_engine(trained / "target", cache, max_model_len=str(CONTEXT), **chosen)


@pytest.fixture(scope="module")
def plain(trained: Path, cache: Path) -> list[Answer]:
    """What the target says without speculation, to the end of its context."""
    with started(parameters(trained, cache)) as engine:
        return answers(engine)


@pytest.fixture(scope="module")
def eagle(trained: Path, cache: Path) -> Iterator[EngineOnALoop]:
    with started(parameters(trained, cache, "eagle")) as engine:
        yield engine


def pieces_of(steps: Sequence[Step]) -> list[Piece]:
    return [piece for step in steps for piece in step.pieces]


def answer(steps: Sequence[Step]) -> Answer:
    pieces = pieces_of(steps)
    return "".join(piece.text for piece in pieces), sum(piece.num_tokens for piece in pieces), pieces[-1].finish_reason


def together(engine: EngineOnALoop, **sampling: object) -> list[list[Step]]:
    async def one(prompt: str) -> list[Step]:
        return [step async for step in engine.steps(prompt, True, **{**WHOLE_CONTEXT, **sampling})]

    async def every() -> list[list[Step]]:
        return await asyncio.gather(*map(one, PROMPTS))

    return engine.loop.run(every()).result(timeout=300)


def answers(engine: EngineOnALoop) -> list[Answer]:
    return [answer(steps) for steps in together(engine)]


def counted(all_steps: Sequence[Sequence[Step]]) -> SpeculationCounts:
    counts = [pieces_of(steps)[-1].speculation for steps in all_steps]
    return sum((count for count in counts if count), start=SpeculationCounts())


def test_drafts_across_every_block_border_and_to_the_end_of_the_context_change_no_token(
    plain: list[Answer], eagle: EngineOnALoop
) -> None:
    all_steps = together(eagle)
    assert [answer(steps) for steps in all_steps] == plain
    assert {reason for _, _, reason in plain} == {"length"}
    counts = counted(all_steps)
    assert counts.acceptance_rate >= 0.3
    assert counts.accepted_tokens < counts.draft_tokens


def test_a_prompt_seen_before_comes_from_the_prefix_cache_and_changes_no_token(
    plain: list[Answer], eagle: EngineOnALoop
) -> None:
    def hits() -> float:
        return sum(sample.value for sample in eagle.engine.metrics() if sample.name == "vllm:prefix_cache_hits_total")

    answers(eagle)
    before = hits()
    assert answers(eagle) == plain
    assert hits() > before


def test_an_aborted_stream_leaves_its_neighbours_alone(plain: list[Answer], eagle: EngineOnALoop) -> None:
    async def cut_off(prompt: str) -> None:
        steps = eagle.steps(prompt, True, **WHOLE_CONTEXT)
        await anext(steps)
        await steps.aclose()

    async def one(prompt: str) -> Answer:
        return answer([step async for step in eagle.steps(prompt, True, **WHOLE_CONTEXT)])

    async def all_of_them() -> list[Answer]:
        cut, kept = PROMPTS[:4], PROMPTS[4:]
        results = await asyncio.gather(*map(cut_off, cut), *map(one, kept))
        return [result for result in results if result is not None]

    assert eagle.loop.run(all_of_them()).result(timeout=300) == plain[4:]


@pytest.mark.parametrize(
    ("constraint", "pattern"),
    [({"regex": "[ab]{3}c"}, "[ab]{3}c"), ({"json": '{"enum": ["left", "right"]}'}, '"left"|"right"')],
    ids=["regex", "json"],
)
def test_a_constraint_holds_while_the_engine_speculates(
    eagle: EngineOnALoop, constraint: dict[str, str], pattern: str
) -> None:
    async def asked() -> Answer:
        steps = eagle.steps(PROMPTS[0], True, temperature=0.0, max_tokens=64, structured_outputs=constraint)
        return answer([step async for step in steps])

    async def beside_another() -> tuple[Answer, Answer]:
        free = eagle.steps(PROMPTS[1], True, temperature=0.0, max_tokens=40)
        return await asyncio.gather(asked(), collected(free))

    async def collected(steps: AsyncGenerator[Step, None]) -> Answer:
        return answer([step async for step in steps])

    (text, _, reason), (_, tokens, _) = eagle.loop.run(beside_another()).result(timeout=300)
    assert re.fullmatch(pattern, text), text
    assert reason == "stop"
    assert tokens


@pytest.mark.parametrize("stream", [True, False])
def test_a_stop_string_inside_a_draft_ends_counts_and_logprobs_with_its_own_token(
    eagle: EngineOnALoop, stream: bool
) -> None:
    tried = 0
    for prompt in PROMPTS:
        whole = pieces_of(eagle.ask(prompt, **WHOLE_CONTEXT, max_tokens=40, logprobs=0))
        ids = [token for piece in whole for token in ids_of(piece)]
        text = "".join(piece.text for piece in whole)
        for stop, tokens in inside_drafts(whole, text):
            pieces = pieces_of(eagle.ask(prompt, stream, **WHOLE_CONTEXT, max_tokens=40, logprobs=0, stop=[stop]))
            assert "".join(piece.text for piece in pieces) == text[: text.index(stop)]
            assert pieces[-1].finish_reason == "stop"
            assert sum(piece.num_tokens for piece in pieces) == tokens
            assert [token for piece in pieces for token in ids_of(piece)] == ids[:tokens]
            tried += 1
    assert tried >= len(PROMPTS)


def ids_of(piece: Piece) -> list[int]:
    """The token ids, which are the first candidates of the logprobs."""
    return [next(iter(position)) for position in piece.logprobs or ()]


def inside_drafts(whole: Sequence[Piece], text: str) -> Iterator[tuple[str, int]]:
    """Stop strings that the first token of a longer step completes, each with the number of tokens up to there."""
    tokens, length = 0, 0
    for piece in whole:
        first = next(iter((piece.logprobs or [{}])[0].values())).decoded_token or ""
        stop = (text[:length] + first.replace("\u0120", " "))[-6:]
        is_whole = piece.num_tokens > 2 and piece.text.startswith(first.replace("\u0120", " ")) and stop.isascii()
        if is_whole and text.find(stop) + len(stop) == length + len(first):
            yield stop, tokens + 1
        tokens += piece.num_tokens
        length += len(piece.text)


@contextmanager
def fault(name: str) -> Iterator[None]:
    """Processes started meanwhile simulate a broken NPU."""
    os.environ["SIMULATED_NPU_FAULT"] = name
    try:
        yield
    finally:
        del os.environ["SIMULATED_NPU_FAULT"]


@pytest.mark.parametrize("name", ["drop_kv_writes", "wrong_verify_row"])
def test_the_comparison_sees_a_broken_kv_cache(trained: Path, cache: Path, plain: list[Answer], name: str) -> None:
    with fault(name), started(parameters(trained, cache, "eagle")) as broken:
        assert answers(broken) != plain


def test_a_wrong_row_in_the_draft_models_own_steps_shows_in_its_counts(
    trained: Path, cache: Path, plain: list[Answer]
) -> None:
    """The target has the last word, so no token changes: the counts are what such a fault is seen by."""

    def one_by_one(engine: EngineOnALoop) -> list[SpeculationCounts]:
        all_steps = [engine.ask(prompt, **WHOLE_CONTEXT) for prompt in PROMPTS]
        assert [answer(steps) for steps in all_steps] == plain
        return [counted([steps]) for steps in all_steps]

    without_cache = {**parameters(trained, cache, "eagle"), "enable_prefix_caching": "false"}
    with started(without_cache) as healthy:
        counts = one_by_one(healthy)
        assert one_by_one(healthy) == counts
    with fault("wrong_draft_row"), started(without_cache) as broken:
        assert one_by_one(broken) != counts
