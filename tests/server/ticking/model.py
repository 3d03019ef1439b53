"""The backend's own model around an engine that ticks instead of vLLM: a server with it is up in two seconds.

The server is asked fifty times a second whether it still serves the model, so that a stop races with such a question.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import Any

from rbln_vllm_backend import triton_model
from rbln_vllm_backend.engine import Generation, Piece, Step
from rbln_vllm_backend.metrics_bridge import Sample

TICK_S = 0.004  # the parameter env.TICK_S sets another


class TickingEngine:
    """Implements ``engine.Engine``: one letter each tick, up to ``max_tokens``; without ``stream`` all in one step."""

    def __init__(self, config: object) -> None:
        self._ticks = 0

    def start(self) -> str:
        return "a ticking engine"

    async def generate(self, generation: Generation) -> AsyncGenerator[Step, None]:
        tick_s = float(os.environ.get("TICK_S", TICK_S))
        most = generation.sampling["max_tokens"]
        for number in range(1, most + 1):
            await asyncio.sleep(tick_s)
            self._ticks += 1
            reason = "length" if number == most else None
            letters = 1 if generation.stream else number
            if generation.stream or reason:
                yield Step((Piece(0, "a" * letters, letters, reason),), num_input_tokens=1, finished=reason is not None)

    def metrics(self) -> Iterator[Sample]:
        yield Sample("vllm:ticks_total", "Ticks.", True, {}, float(self._ticks))

    def failure(self) -> str | None:
        return None

    def progress(self) -> object | None:
        return self._ticks

    def stop(self) -> None:
        pass


patched: Any = triton_model
patched.VllmEngine = TickingEngine
patched.Watch = partial(triton_model.Watch, ready_poll_s=0.02)
TritonPythonModel = triton_model.TritonPythonModel
