"""One thread that asks the server what it doesn't tell: which clients have gone, and whether the model is going.

Both questions are exchanges with the server, so they are asked for all requests by one timer, never per token.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from rbln_vllm_backend.service import Service

_log = logging.getLogger(__name__)
_READY_POLL_S = 1.0


class Watch:
    """Polls while requests are open, until ``stop``.

    ``is_served`` says whether the server still counts this model as ready; Triton calls ``finalize`` only after the
    last open request has ended, so a drain has to be noticed before.
    """

    def __init__(self, service: Service, is_served: Callable[[], bool], interval_s: float) -> None:
        self._service = service
        self._is_served = is_served
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        asked_at = time.monotonic()
        while not self._stopped.wait(self._interval_s):
            replies = self._service.open_replies()
            for request_id, reply in replies:
                if _gone(reply.is_cancelled):
                    self._service.cancel(request_id)
            if replies and time.monotonic() - asked_at >= _READY_POLL_S:
                asked_at = time.monotonic()
                if not self._is_served():
                    self._service.drain()


def _gone(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except Exception:
        # The request ended between the list and the question.
        _log.debug("A request could not be asked whether it was cancelled", exc_info=True)
        return False
