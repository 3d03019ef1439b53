"""Every way of drafting on checkpoints that were trained for it: the target's own tokens, in fewer steps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from model_repository import small_engine
from rbln_vllm_backend.engine import SpeculationCounts, Step
from trained.text import held_out_documents

from .conftest import EngineOnALoop, started

TRAINED_METHODS = ("eagle", "eagle3", "medusa", "mtp", "draft_model")
DRAFT_FREE_METHODS = ("ngram", "suffix")
PROMPTS = [document.prompt for document in held_out_documents(12, seed=3)]
GREEDY = {"temperature": 0.0, "max_tokens": 80}

Answer = tuple[str, int]

# The first test may have to train the checkpoints, and every test starts an engine.
pytestmark = pytest.mark.timeout(1200)


def _target(trained: Path, method: str) -> Path:
    return trained / ("mtp_target" if method == "mtp" else "target")


def _speculating(trained: Path, method: str) -> dict[str, str]:
    parameters = small_engine(_target(trained, method))
    parameters["speculative_config.method"] = method
    parameters["speculative_config.num_speculative_tokens"] = "3"
    if method not in ("mtp", *DRAFT_FREE_METHODS):
        parameters["speculative_config.model"] = str(trained / method)
    return parameters


def _answer(steps: Sequence[Step]) -> Answer:
    """Text and number of tokens."""
    pieces = [piece for step in steps for piece in step.pieces]
    return "".join(piece.text for piece in pieces), sum(piece.num_tokens for piece in pieces)


def _all_at_once(engine: EngineOnALoop) -> list[list[Step]]:
    async def one(prompt: str) -> list[Step]:
        return [step async for step in engine.steps(prompt, stream=True, **GREEDY)]

    async def every() -> list[list[Step]]:
        return await asyncio.gather(*map(one, PROMPTS))

    return engine.loop.run(every()).result(timeout=300)


def _counted(answers: Sequence[Sequence[Step]]) -> SpeculationCounts:
    counts = [steps[-1].pieces[0].speculation for steps in answers]
    return sum((count for count in counts if count), start=SpeculationCounts())


@pytest.fixture(scope="module")
def plain_answers(trained: Path) -> list[Answer]:
    """What the target says without speculation; its engine is gone before the next one starts.

    The target of ``mtp`` says the same: ERNIE's layers without experts compute what Llama's do, with the same weights.
    """
    with started(small_engine(trained / "target")) as engine:
        return [_answer(engine.ask(prompt, **GREEDY)) for prompt in PROMPTS]


def test_a_trained_target_goes_on_with_the_scene(plain_answers: list[Answer]) -> None:
    for text, tokens in plain_answers:
        assert tokens > 20
        assert "\N{REPLACEMENT CHARACTER}" not in text[:-1]


@pytest.mark.parametrize("method", TRAINED_METHODS)
def test_a_trained_draft_is_accepted_and_changes_no_token(
    trained: Path, plain_answers: list[Answer], method: str
) -> None:
    counts = _speculated_alike(trained, plain_answers, method)
    assert counts.acceptance_rate >= 0.3
    # A rejected token shows that the target has the last word.
    assert counts.accepted_tokens < counts.draft_tokens


@pytest.mark.parametrize("method", DRAFT_FREE_METHODS)
def test_a_draft_from_earlier_text_is_accepted_and_changes_no_token(
    trained: Path, plain_answers: list[Answer], method: str
) -> None:
    counts = _speculated_alike(trained, plain_answers, method)
    assert 0 < counts.accepted_tokens < counts.draft_tokens


def _speculated_alike(trained: Path, plain_answers: list[Answer], method: str) -> SpeculationCounts:
    """What was counted for the prompts one at a time; every answer, alone and together, is the plain one."""
    with started(_speculating(trained, method)) as engine:
        alone = [engine.ask(prompt, **GREEDY) for prompt in PROMPTS]
        together = _all_at_once(engine)
    assert [_answer(steps) for steps in alone] == plain_answers
    assert [_answer(steps) for steps in together] == plain_answers
    return _counted(alone)
