"""Waiting for what other threads and processes bring about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def until(condition: Callable[[], object], deadline_s: float = 10.0) -> None:
    """Returns once the condition holds; asked every few milliseconds."""
    give_up_at = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < give_up_at, "the condition never held"
        time.sleep(0.002)


class Stalls:
    """How long this machine stood still, in seconds: virtual ones do, for everybody at once."""

    _TICK_S, _LATE_S = 0.02, 0.2

    def __init__(self) -> None:
        self.seconds = 0.0
        self._over = threading.Event()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._over.wait(self._TICK_S):
            now = time.monotonic()
            if now - before > self._LATE_S:
                self.seconds += now - before - self._TICK_S
            before = now

    @classmethod
    @contextmanager
    def watched(cls) -> Iterator[Stalls]:
        """Watches for them meanwhile."""
        stalls = cls()
        thread = threading.Thread(target=stalls._watch, daemon=True)
        thread.start()
        try:
            yield stalls
        finally:
            stalls._over.set()
            thread.join()
