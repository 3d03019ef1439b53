"""An engine that plays a script: each prompt has its steps, or the error that ends it."""

from __future__ import annotations

import asyncio
import threading
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
        self._held: dict[str, asyncio.Event] = {}
        self.stopped = False
        self.starts = 0
        self.started_by: threading.Thread | None = None
        self.start_errors: list[Exception] = []
        self.died_of: str | None = None

    def start(self) -> str:
        self.starts += 1
        self.started_by = threading.current_thread()
        self.died_of = None
        if self.start_errors:
            raise self.start_errors.pop(0)
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
            if held := self._held.get(generation.prompt):
                await held.wait()
            raise

    def metrics(self) -> list[Sample]:
        return []

    def hold(self, prompt: str) -> asyncio.Event:
        """The engine will say nothing of that prompt, and let go of it only when the event is set."""
        self._scripts = {key: script for key, script in self._scripts.items() if key != prompt}
        return self._held.setdefault(prompt, asyncio.Event())

    def failure(self) -> str | None:
        return self.died_of

    def progress(self) -> object | None:
        return len(self.seen)

    def stop(self) -> None:
        self.stopped = True
