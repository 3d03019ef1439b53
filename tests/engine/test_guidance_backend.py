"""Constraints by llguidance, which docs/security.md names for servers that strangers may ask."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.conftest import EngineOnALoop, started
from model_repository import NGRAM, small_engine
from rbln_vllm_backend.engine import Prompt
from rbln_vllm_backend.errors import RequestError

PROMPT = Prompt("A prompt of some words.")
LONGEST_GAP_S = 5.0  # a step that waits for one of these in xgrammar takes that and, at the end, minutes


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> Iterator[EngineOnALoop]:
    guidance = {"structured_outputs_config": '{"backend": "guidance"}'}
    with started({**small_engine(checkpoint), **NGRAM, **guidance}) as engine:
        yield engine


@pytest.mark.parametrize(
    ("constraint", "pattern"),
    [
        ({"json": {"type": "string", "enum": ["left", "right"]}}, '"left"|"right"'),
        ({"json": json.dumps({"type": "string", "enum": ["left"]})}, '"left"'),
        ({"regex": "[ab]{3}c"}, "[ab]{3}c"),
        ({"choice": ["left", "right"]}, "left|right"),
        ({"grammar": 'root ::= "x" [0-9] "y"'}, "x[0-9]y"),
        ({"grammar": 'start: "x" /[0-9]/ "y"'}, "x[0-9]y"),
    ],
    ids=str,
)
def test_the_text_is_what_the_constraint_wants(engine: EngineOnALoop, constraint: dict[str, Any], pattern: str) -> None:
    steps = engine.ask(PROMPT, temperature=0.0, max_tokens=64, structured_outputs=constraint)
    text = "".join(step.pieces[0].text for step in steps)
    assert re.fullmatch(pattern, text), text
    assert steps[-1].pieces[0].finish_reason == "stop"


@pytest.mark.parametrize(
    "constraint",
    [
        {"regex": "((((a*)*)*)*)*"},
        {"regex": ".+" * 128},
        {"regex": "(.+)+" * 200},
        {"regex": "a?" * 2000},
        {"grammar": 'root ::= e\ne ::= e e | "a" | "b"'},
        {"grammar": "root ::= " + "n " * 8000 + '\nn ::= "a" | ""'},
        {"json": {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(1500)}}},
    ],
    ids=lambda constraint: str(constraint)[:40],
)
def test_no_constraint_holds_up_another_stream(engine: EngineOnALoop, constraint: dict[str, Any]) -> None:
    """The engine's own bounds end such a request, or it is answered; ours, which refuse some of them, aren't asked."""

    async def constrained() -> None:
        try:
            async for _ in engine.steps(PROMPT, True, max_tokens=900, ignore_eos=True, structured_outputs=constraint):
                pass
        except RequestError:
            pass

    async def neighbour(stop: asyncio.Event) -> float:
        longest, last = 0.0, time.monotonic()
        while not stop.is_set():
            async for _ in engine.steps(PROMPT, True, max_tokens=900, ignore_eos=True):
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
        return longest

    async def both() -> float:
        stop = asyncio.Event()
        watched = asyncio.ensure_future(neighbour(stop))
        await constrained()
        stop.set()
        return await watched

    assert engine.loop.run(both()).result(timeout=120) < LONGEST_GAP_S
