"""Waiting for what other threads and processes bring about."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], deadline_s: float = 10.0) -> None:
    """Returns once the condition holds; asked every few milliseconds."""
    give_up_at = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < give_up_at, "the condition never held"
        time.sleep(0.002)
