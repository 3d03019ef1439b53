"""Real vLLM engines, in this process and its children."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from model_repository import NGRAM, small_engine
from rbln_vllm_backend import config, environment
from rbln_vllm_backend.engine import Generation, Prompt, Step
from rbln_vllm_backend.loop_thread import LoopThread
from rbln_vllm_backend.vllm_engine import VllmEngine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts an engine for each test comes first, so that the processes of a parallel run end together."""
    items.sort(key=lambda item: "trained" not in getattr(item, "fixturenames", ()))


class EngineOnALoop:
    """An engine and the loop that it runs on; ``ask`` collects the steps of one request."""

    def __init__(self, parameters: dict[str, str]) -> None:
        settings = config.read(parameters, Path("/"))
        environment.prepare(settings.environment, settings.platform)
        self.engine = VllmEngine(settings)
        self._not_its_own = frozenset(psutil.Process().children())
        self.description = self.engine.start()
        self.loop = LoopThread()
        self.loop.start()
        self._count = 0

    def steps(self, prompt: Prompt, stream: bool, priority: int = 0, **sampling: Any) -> AsyncGenerator[Step, None]:
        self._count += 1
        return self.engine.generate(Generation(f"r{self._count}", prompt, sampling, stream, None, priority))

    def ask(self, prompt: Prompt, stream: bool = True, **sampling: Any) -> list[Step]:
        async def collect() -> list[Step]:
            return [step async for step in self.steps(prompt, stream, **sampling)]

        return self.loop.run(collect()).result(timeout=120)

    def core(self) -> psutil.Process:
        """The engine's core; engines of other tests may run beside it."""
        own = frozenset(psutil.Process().children()) - self._not_its_own
        (core,) = (child for child in own if "EngineCore" in " ".join(child.cmdline()))
        return core

    def stop(self) -> None:
        self.engine.stop()
        self.loop.stop()


@contextmanager
def started(parameters: dict[str, str]) -> Iterator[EngineOnALoop]:
    engine = EngineOnALoop(parameters)
    try:
        yield engine
    finally:
        engine.stop()


@pytest.fixture(scope="session")
def ngram_engine(checkpoint: Path) -> Iterator[EngineOnALoop]:
    with started({**small_engine(checkpoint), **NGRAM}) as engine:
        yield engine


@pytest.fixture(scope="session")
def plain_engine(checkpoint: Path) -> Iterator[EngineOnALoop]:
    with started(small_engine(checkpoint)) as engine:
        yield engine
