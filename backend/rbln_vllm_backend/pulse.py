"""Whether an engine still makes steps: one that hangs answers nobody, and its process doesn't end."""

from __future__ import annotations

from collections.abc import Callable


class Pulse:
    """Takes an engine for stalled that made no step for ``stall_s`` seconds while requests ran; 0: never.

    ``progress`` is ``engine.Engine.progress``. It is asked ten times in ``stall_s``, so a stall is noticed at most a
    tenth later. Where it says nothing (None) no engine is taken for stalled: a long unary answer gives no sign either.
    """

    def __init__(self, progress: Callable[[], object | None], stall_s: float) -> None:
        self._progress = progress
        self._stall_s = stall_s
        self._seen: object | None = None
        self._since_s = 0.0  # when the engine last moved, or had nothing to do
        self._asked_s = 0.0

    def has_stopped(self, now_s: float, running: bool) -> bool:
        """To be asked often; ``running`` says whether requests run in the engine now."""
        if not running or not self._stall_s:
            self._seen, self._since_s, self._asked_s = None, now_s, now_s
            return False
        if now_s - self._asked_s < self._stall_s / 10:
            return False
        if now_s - self._asked_s > self._stall_s / 2:
            self._since_s = now_s  # nobody looked: it was this process that stood still
        self._asked_s = now_s
        seen = self._progress()
        if seen is None or seen != self._seen:
            self._seen, self._since_s = seen, now_s
        return now_s - self._since_s >= self._stall_s
