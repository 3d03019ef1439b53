"""What a constraint may cost the others: a step waits for each of its requests, one after the other."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from rbln_vllm_backend import vllm_constraints
from rbln_vllm_backend.errors import RequestError

from .conftest import EngineOnALoop

PROMPT = "A prompt of some words."
LONGEST_GAP_S = 5.0  # with xgrammar a step takes more than that for each of these, and minutes in the end


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
def test_no_constraint_holds_up_another_stream(ngram_engine: EngineOnALoop, constraint: dict[str, Any]) -> None:
    """llguidance ends such a request at its own bounds, or keeps it to its constraint at no cost."""

    async def constrained() -> None:
        try:
            async for _ in ngram_engine.steps(
                PROMPT, True, max_tokens=900, ignore_eos=True, structured_outputs=constraint
            ):
                pass
        except RequestError:
            pass

    async def neighbour(stop: asyncio.Event) -> float:
        longest, last = 0.0, time.monotonic()
        while not stop.is_set():
            async for _ in ngram_engine.steps(PROMPT, True, max_tokens=900, ignore_eos=True):
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
        return longest

    async def both() -> float:
        stop = asyncio.Event()
        watched = asyncio.ensure_future(neighbour(stop))
        await constrained()
        stop.set()
        return await watched

    assert ngram_engine.loop.run(both()).result(timeout=120) < LONGEST_GAP_S


def test_the_library_logs_where_its_messages_are_kept_short() -> None:
    from vllm.v1.structured_output import backend_guidance

    assert backend_guidance.logger.name == vllm_constraints.LOGGER
