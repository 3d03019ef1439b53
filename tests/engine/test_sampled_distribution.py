"""With speculation and without, sampling draws from the same distribution."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from model_repository import NGRAM, small_engine

from .conftest import EngineOnALoop, started
from .few_tokens import make_target_and_draft

REQUESTS = 4000
AT_ONCE = 64
# Ends in what it began with, so that a proposer which looks for repeats drafts at every step.
PROMPT = "abcabcabcdabcabcab"
SAMPLING = {"temperature": 1.0, "max_tokens": 4, "min_tokens": 4, "ignore_eos": True}
RARE = 5  # expected counts below this make the chi-square test unreliable (Cochran)
EQUAL = 0.001  # the chance of a false alarm, had the seeds not been fixed
DIFFERENT = 1e-9

Counts = Counter[str]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_target_and_draft(tmp_path_factory.mktemp("few_tokens"))


@pytest.fixture(scope="module")
def plain(checkpoints: tuple[Path, Path]) -> dict[float, Counts]:
    """How often each answer came without speculation, by temperature."""
    with started(_parameters(checkpoints[0])) as engine:
        return {temperature: _answers(engine, 0, temperature)[0] for temperature in (1.0, 0.8)}


def _parameters(target: Path, **speculation: str) -> dict[str, str]:
    engine = small_engine(target, max_model_len="64", max_num_seqs=str(AT_ONCE))
    return {**engine, **{f"speculative_config.{key}": value for key, value in speculation.items()}}


def _answers(engine: EngineOnALoop, first_seed: int, temperature: float = 1.0) -> tuple[Counts, int]:
    """How often each answer came, and how many draft tokens were accepted."""
    door = asyncio.Semaphore(AT_ONCE)

    async def one(seed: int) -> tuple[str, int]:
        async with door:
            steps = [
                step
                async for step in engine.steps(PROMPT, False, **{**SAMPLING, "temperature": temperature, "seed": seed})
            ]
        (piece,) = steps[-1].pieces
        return piece.text, piece.speculation.accepted_tokens if piece.speculation else 0

    async def every() -> list[tuple[str, int]]:
        return await asyncio.gather(*(one(first_seed + number) for number in range(REQUESTS)))

    answers = engine.loop.run(every()).result(timeout=300)
    return Counter(text for text, _ in answers), sum(accepted for _, accepted in answers)


def _chance_of_being_alike(one: Counts, other: Counts) -> float:
    """The p-value of the chi-square test of homogeneity; rare answers are counted together."""
    from scipy.stats import chi2_contingency

    common = [text for text in one | other if one[text] + other[text] >= 2 * RARE]
    table = [[counts[text] for text in common] for counts in (one, other)]
    for row, counts in zip(table, (one, other), strict=True):
        row.append(counts.total() - sum(row))
    return float(chi2_contingency(table).pvalue)


def test_the_test_tells_two_temperatures_apart(plain: dict[float, Counts]) -> None:
    assert len(plain[1.0]) > 100
    assert _chance_of_being_alike(plain[1.0], plain[0.8]) < DIFFERENT


def test_ngram_draws_from_the_targets_distribution(checkpoints: tuple[Path, Path], plain: dict[float, Counts]) -> None:
    with started({**_parameters(checkpoints[0]), **NGRAM}) as engine:
        counts, accepted = _answers(engine, REQUESTS)
    assert 0 < accepted < 3 * REQUESTS
    assert _chance_of_being_alike(plain[1.0], counts) > EQUAL


def test_a_draft_model_draws_from_the_targets_distribution(
    checkpoints: tuple[Path, Path], plain: dict[float, Counts]
) -> None:
    target, draft = checkpoints
    speculation = {"method": "draft_model", "model": str(draft), "num_speculative_tokens": "3"}
    with started(_parameters(target, **speculation)) as engine:
        counts, accepted = _answers(engine, REQUESTS)
    assert 0 < accepted < 3 * REQUESTS
    assert _chance_of_being_alike(plain[1.0], counts) > EQUAL
