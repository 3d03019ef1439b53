"""A model that the server has dropped without a word: its engine must not stay."""

from __future__ import annotations

import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)

PATIENCE_S = 10.0


class Absence:
    """Puts the engine to rest when the model has not been served for a while, with no request open or arriving.

    Triton calls ``finalize`` only after the last request has been given back, and 24.10 keeps one for ever whose client
    left in the moment of its FINAL. While the server loads the model anew it isn't served either, and the load may fail
    and leave this instance in its place: with a successor at hand nothing is done, and an engine at rest is woken when
    the model is served again.
    """

    def __init__(
        self,
        has_successor: Callable[[], bool],
        rest: Callable[[], None],
        wake: Callable[[], None],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._has_successor = has_successor
        self._rest = rest
        self._wake = wake
        self._patience_s = patience_s
        self._since_s: float | None = None
        self._accepted = 0
        self._resting = False

    def note(self, served: bool, num_open: int, accepted: int, now_s: float) -> None:
        """To be told each second or so; ``accepted`` counts all requests since the start."""
        if served:
            self._since_s = None
            if self._resting:
                _log.info("The server serves the model again; its engine is started")
                self._resting = False
                self._wake()
        elif self._resting:
            return
        elif num_open or accepted != self._accepted or self._since_s is None or self._has_successor():
            self._since_s = now_s
        elif now_s - self._since_s >= self._patience_s:
            _log.warning("The server has dropped the model and holds a request of it; its engine is stopped")
            self._resting = True
            self._rest()
        self._accepted = accepted
