"""A question to the server that may never be answered: a server that stops can lose it."""

from __future__ import annotations

import threading
from collections.abc import Callable

PATIENCE_S = 1.0


class PatientQuestion:
    """Puts a yes-or-no question on a thread of its own; no answer in time counts as no, and is waited for further."""

    def __init__(self, question: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        self._question = question
        self._patience_s = patience_s
        self._answer = True
        self._thread: threading.Thread | None = None

    def __call__(self) -> bool:
        """The answer, within ``patience_s`` seconds."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._ask, name="question", daemon=True)
            self._thread.start()
        self._thread.join(self._patience_s)
        return self._answer and not self._thread.is_alive()

    def _ask(self) -> None:
        self._answer = self._question()
