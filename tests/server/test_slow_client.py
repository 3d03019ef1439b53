"""A client that doesn't read: neither the engine nor others wait for it, and it gets all of its text in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
from tritonclient.grpc import aio

from model_repository import write_ticking_model
from running_server import RunningServer, running

from .client import ask, inputs
from .processes import stub_of

TOKENS = 1_000_000
NEIGHBOURS_TOKENS = 1000
STUB_GROWTH_MIB = 100  # a million steps that wait singly would take several times as much


async def request() -> AsyncIterator[dict[str, Any]]:
    tensors = inputs("hi", {"max_tokens": TOKENS}, True)
    yield {"model_name": "llm", "inputs": tensors, "enable_empty_final_response": True}


def stub_mib(server: RunningServer) -> float:
    return float(stub_of(server).memory_info().rss / 2**20)


async def slow_stream(server: RunningServer) -> tuple[int, int, int]:
    """Reads one response, lets a neighbour have a whole answer, then reads the rest: characters, tokens, responses."""
    async with aio.InferenceServerClient(server.grpc) as client:
        stream = client.stream_infer(request())
        characters = tokens = responses = 0
        before = stub_mib(server)
        async for result, error in stream:
            assert error is None
            if not responses:
                answer = await asyncio.to_thread(ask, server, "hi", {"max_tokens": NEIGHBOURS_TOKENS})
                assert (sum(answer.tokens), answer.finals) == (NEIGHBOURS_TOKENS, 1)
                await asyncio.to_thread(_until_the_engine_has_made_all, server)
                assert stub_mib(server) - before < STUB_GROWTH_MIB
            responses += 1
            text = result.as_numpy("text_output")
            if text is not None:
                characters += len(text[0])
                tokens += int(result.as_numpy("num_output_tokens")[0])
            if result.get_response().parameters["triton_final_response"].bool_param:
                break
        return characters, tokens, responses


def _until_the_engine_has_made_all(server: RunningServer) -> None:
    """The stub is idle once it has handed everything to the server."""
    stub: psutil.Process = stub_of(server)
    while stub.cpu_percent(interval=1.0) > 20:
        pass


def test_a_client_that_does_not_read_costs_neither_its_neighbours_nor_its_text(tmp_path: Path) -> None:
    write_ticking_model(tmp_path / "models", "llm", **{"env.TICK_S": "0"})
    with running(tmp_path / "models", tmp_path / "log") as server:
        characters, tokens, responses = asyncio.run(slow_stream(server))
    print(f"{tokens} tokens in {responses} responses")
    assert (characters, tokens) == (TOKENS, TOKENS)
    assert responses < TOKENS
