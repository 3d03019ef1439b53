"""An engine that plays a script: each prompt has its steps, or the error that ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

from rbln_vllm_backend.engine import Generation, Piece, Step
from rbln_vllm_backend.metrics_bridge import Sample


def step(text: str, tokens: int = 1, finish: str | None = None, index: int = 0) -> Step:
    """A step with one piece; it finishes the request if the piece has a finish reason."""
    return Step((Piece(index, text, tokens, finish),), num_input_tokens=3, finished=finish is not None)


class Waits(Exception):
    """As an item of a script: the engine says no more until the request is aborted."""


class ScriptedEngine:
    """Implements ``engine.Engine``. A prompt without a script waits until it is aborted.

    ``gate``, when given, holds every step back until it is set; ``aborted`` and ``seen`` record what happened.
    """

    def __init__(self, scripts: Mapping[str, Sequence[Step | Exception]]) -> None:
        self._scripts = scripts
        self.seen: list[Generation] = []
        self.aborted: list[str] = []
        self.stopped = False

    def start(self) -> str:
        return "a scripted engine"

    async def generate(self, generation: Generation) -> AsyncGenerator[Step, None]:
        self.seen.append(generation)
        try:
            for item in self._scripts.get(generation.prompt, ()):
                await asyncio.sleep(0)
                if isinstance(item, Waits):
                    await asyncio.Event().wait()
                if isinstance(item, Exception):
                    raise item
                yield item
            if generation.prompt not in self._scripts:
                await asyncio.Event().wait()
        except (asyncio.CancelledError, GeneratorExit):
            self.aborted.append(generation.prompt)
            raise

    def metrics(self) -> list[Sample]:
        return []

    def stop(self) -> None:
        self.stopped = True
