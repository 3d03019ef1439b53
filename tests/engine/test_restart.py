"""An engine says that it has died, whether it moves, and may be started a second time."""

from __future__ import annotations

from pathlib import Path

from model_repository import small_engine

from .conftest import started
from .restarting import kill_core, started_again, text


def test_an_engine_that_was_killed_says_so_and_is_started_again(checkpoint: Path) -> None:
    with started(small_engine(checkpoint)) as engine:
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
