"""Kills an engine's core and starts the engine again, as the backend does: by spawn, on a thread that stays."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .conftest import EngineOnALoop

GREEDY = {"temperature": 0.0, "max_tokens": 16, "ignore_eos": True}
NOTICED_S = 30.0
STARTED_S = 600.0


def text(engine: EngineOnALoop) -> str:
    """A greedy answer."""
    return "".join(piece.text for step in engine.ask("one two three one two", **GREEDY) for piece in step.pieces)


def kill_core(engine: EngineOnALoop) -> None:
    """Returns once the engine says that it has failed."""
    engine.core().kill()
    deadline = time.monotonic() + NOTICED_S
    while engine.engine.failure() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


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
