"""One thread that asks the server what it doesn't tell: which clients have gone, and whether the model is going.

Both questions are exchanges with the server, so they are asked for all requests by one timer, never per token.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

_log = logging.getLogger(__name__)


class Watched(Protocol):
    """What has clients: the service, or the unary model's door."""

    @property
    def accepted(self) -> int:
        """Requests taken over since the start."""

    def ask_clients(self) -> int:
        """Looks after every open request, and cancels those whose client has gone. Returns how many are open."""

    def end_all(self) -> None:
        """Ends every open request with UNAVAILABLE; may be called again while some stay open."""


class Watch:
    """Polls while requests are open, until ``stop``.

    ``is_served`` says whether the server still counts this model as ready. Triton calls ``finalize`` only after the
    last open request has ended, so an unload or a shutdown has to be noticed before: once the model isn't served any
    more, open requests may go on for ``drain_timeout_s``. A no while requests still arrive, as a server that answers
    too late gives, ends nothing. A reload isn't noticed: the name stays served, first by us, then by the new stub, and
    our open requests go on to their end. Without open requests it isn't asked: a question that meets a load or an
    unload can end or hang the server (24.10).
    """

    def __init__(
        self,
        service: Watched,
        is_served: Callable[[], bool],
        interval_s: float,
        drain_timeout_s: float,
        ready_poll_s: float = 1.0,
    ) -> None:
        self._service = service
        self._is_served = is_served
        self._interval_s = interval_s
        self._drain_timeout_s = drain_timeout_s
        self._ready_poll_s = ready_poll_s
        self._drain: _Drain | None = None
        self._asked_at_s = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._asked_at_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        failing = False
        while not self._stopped.wait(self._interval_s):
            try:
                self._look()
                failing = False
            except Exception:  # such as a thread that can't be started; the next look may work
                if not failing:
                    _log.exception("A look after the open requests failed inside the backend")
                failing = True

    def _look(self) -> None:
        open_requests = self._service.ask_clients()
        if open_requests and time.monotonic() - self._asked_at_s >= self._ready_poll_s:
            self._asked_at_s = time.monotonic()
            self._drain_if_going(open_requests)

    def _drain_if_going(self, open_requests: int) -> None:
        now, accepted = time.monotonic(), self._service.accepted
        if self._is_served():
            self._drain = None
        elif self._drain is None or self._drain.accepted != accepted:
            self._drain = _Drain(now, accepted)
            _log.info("The model is going: %d open requests may go on for %g s", open_requests, self._drain_timeout_s)
        elif now - self._drain.began >= self._drain_timeout_s:
            self._service.end_all()


@dataclass(frozen=True)
class _Drain:
    """When the model was first seen going, and how many requests had arrived by then."""

    began: float
    accepted: int
