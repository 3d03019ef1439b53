"""LoRA adapters by name, and vectors from a pooling checkpoint, on the real engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny_adapter
from model_repository import small_engine
from rbln_vllm_backend.engine import Embedding, Generation, Step, TokenIds
from rbln_vllm_backend.errors import RequestError, Unsupported

from .conftest import EngineOnALoop, started

PROMPT = "one two three one two three one two three"
GREEDY = {"temperature": 0.0, "max_tokens": 16, "ignore_eos": True}


def token_ids(steps: list[Step]) -> tuple[int, ...]:
    return tuple(token for step in steps for piece in step.pieces for token in piece.token_ids)


def ask(engine: EngineOnALoop, generation: Generation) -> list[Step]:
    async def collect() -> list[Step]:
        return [step async for step in engine.engine.generate(generation)]

    return engine.loop.run(collect()).result(timeout=120)


@pytest.fixture(scope="module")
def adapted(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineOnALoop]:
    folder = tmp_path_factory.mktemp("adapters")
    tiny_adapter.make(folder / "loud", seed=1)
    tiny_adapter.make(folder / "odd", seed=2)
    tiny_adapter.make(folder / "broken")
    (folder / "broken" / "adapter_model.safetensors").write_bytes(b"no safetensors")
    parameters = {
        **small_engine(checkpoint, enable_lora="true", max_lora_rank="8"),
        **{f"serving.lora.{name}": str(folder / name) for name in ("loud", "odd", "broken")},
    }
    with started(parameters) as engine:
        yield engine


def test_each_adapter_writes_its_own_text_beside_the_checkpoint(adapted: EngineOnALoop) -> None:
    names = [None, "loud", "odd", None, "odd", "loud"]
    told = [
        token_ids(ask(adapted, Generation(f"a{number}", PROMPT, GREEDY, True, adapter=name)))
        for number, name in enumerate(names)
    ]
    assert told[3:] == [told[0], told[2], told[1]]
    assert len(set(told)) == 3


def test_an_adapter_that_cannot_be_loaded_fails_its_own_requests_only(adapted: EngineOnALoop) -> None:
    for number in range(2):
        with pytest.raises(RequestError) as caught:
            ask(adapted, Generation(f"b{number}", PROMPT, GREEDY, True, adapter="broken"))
        assert str(caught.value).startswith("lora_name = 'broken': vLLM can't load the adapter (")
    good = ask(adapted, Generation("good", PROMPT, GREEDY, True, adapter="loud"))
    assert len(token_ids(good)) == 16


@pytest.fixture(scope="module")
def pooling(checkpoint: Path) -> Iterator[EngineOnALoop]:
    with started(small_engine(checkpoint, runner="pooling", convert="embed")) as engine:
        yield engine


def vector(steps: list[Step]) -> list[float]:
    (step,) = steps
    assert step.finished
    (piece,) = step.pieces
    assert piece.num_tokens == 0
    return [float(number) for number in json.loads(piece.text)]


def test_a_pooling_checkpoint_gives_the_prompts_vector(pooling: EngineOnALoop) -> None:
    whole = vector(ask(pooling, Generation("e1", PROMPT, {}, False, embedding=Embedding())))
    assert len(whole) == 64
    assert sum(number * number for number in whole) == pytest.approx(1, abs=1e-3)
    assert vector(ask(pooling, Generation("e2", TokenIds([5, 6, 7]), {}, False, embedding=Embedding()))) != whole
    (step,) = ask(pooling, Generation("e3", TokenIds([5] * 512), {}, False, embedding=Embedding()))
    assert step.num_input_tokens == 512


def test_a_pooling_checkpoint_writes_no_text(pooling: EngineOnALoop) -> None:
    with pytest.raises(Unsupported) as caught:
        ask(pooling, Generation("t1", PROMPT, GREEDY, True))
    assert str(caught.value) == "text_input: this checkpoint gives vectors, and no text; send embedding_request."


def test_a_checkpoint_that_writes_gives_no_vector(plain_engine: EngineOnALoop) -> None:
    with pytest.raises(Unsupported) as caught:
        ask(plain_engine, Generation("v1", PROMPT, {}, False, embedding=Embedding()))
    assert str(caught.value) == (
        "embedding_request: this checkpoint writes text; with runner = pooling it may give vectors."
    )
    with pytest.raises(RequestError):
        ask(plain_engine, Generation("v2", PROMPT, {}, False, embedding=Embedding(dimensions=3)))
