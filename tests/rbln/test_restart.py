"""An engine on NPUs that was killed says so, and is started a second time, by spawn, in a process with threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.conftest import EngineOnALoop, started
from waiting import until

from .npu_engine import npu_engine

GREEDY = {"temperature": 0.0, "max_tokens": 16, "ignore_eos": True}
NOTICED_S = 30.0
STARTED_S = 600.0

pytestmark = pytest.mark.timeout(900)


def text(engine: EngineOnALoop) -> str:
    """A greedy answer."""
    return "".join(piece.text for step in engine.ask("one two three one two", **GREEDY) for piece in step.pieces)


def kill_core(engine: EngineOnALoop) -> None:
    """Returns once the engine says that it has failed."""
    engine.core().kill()
    until(engine.engine.failure, NOTICED_S)


@contextmanager
def started_again(engine: EngineOnALoop) -> Iterator[None]:
    """The engine's second life; it is stopped at the end, before the thread that started it ends."""
    running, released = threading.Event(), threading.Event()

    def start() -> None:
        engine.engine.stop()
        engine.engine.start()
        running.set()
        released.wait()

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    try:
        assert running.wait(STARTED_S)
        yield
    finally:
        engine.engine.stop()
        released.set()
        thread.join()


def test_an_engine_that_was_killed_is_started_again_and_says_the_same(checkpoint: Path, cache: Path) -> None:
    with started(npu_engine(checkpoint, cache)) as engine:
        assert engine.engine.failure() is None
        at_rest = engine.engine.progress()
        assert at_rest is not None
        before = text(engine)
        assert engine.engine.progress() != at_rest
        kill_core(engine)
        assert engine.engine.failure() == "vLLM's engine has ended"
        with started_again(engine):
            assert engine.engine.failure() is None
            assert text(engine) == before
