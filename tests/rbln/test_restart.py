"""An engine on NPUs is started a second time, by spawn, in a process that has threads by then."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.conftest import started
from engine.restarting import kill_core, started_again, text

from .npu_engine import npu_engine

pytestmark = pytest.mark.timeout(900)


def test_an_engine_that_was_killed_is_started_again_and_says_the_same(checkpoint: Path, cache: Path) -> None:
    with started(npu_engine(checkpoint, cache)) as engine:
        before = text(engine)
        kill_core(engine)
        with started_again(engine):
            assert text(engine) == before
