"""Many unary requests at once, each handed to the model that answers: the unary model, without Triton.

A call blocks in the server from its start to its end, so each request has a thread of its own; it costs a stack that is
hardly touched and no interpreter time while it waits.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from rbln_vllm_backend.errors import Cancelled, RequestError, Unavailable, as_request_error

_log = logging.getLogger(__name__)

_UNLOADED = "The model was unloaded before the request ended."
_CANCELLED = "The request was cancelled."
_STUBBORN_S = 5.0  # how long a call that is being stopped may take to end
_CANCEL_THREADS = 4


class Client(Protocol):
    """One client's unary request, as the server gives it."""

    def answer(self, response: Any) -> None:
        """Sends the target's response, and with it FINAL."""

    def fail(self, error: RequestError) -> None:
        """Sends one error, with FINAL."""

    def is_cancelled(self) -> bool:
        """Whether the client has gone; an exchange with the server. Never asked during or after FINAL (Triton 24.10
        crashes)."""


class Target(Protocol):
    """The model that answers."""

    def ask(self, client: Any, call_id: str) -> Any:
        """Its whole answer to the request of a client as it was accepted; blocks until it is there. Raises
        RequestError."""

    def cancel(self, call_id: str) -> None:
        """Has it end a call, which is then answered with an error; blocks shortly. Raises RequestError."""


class _Open:
    """A request between its acceptance and its FINAL. Whoever closes it first may say something to its client."""

    def __init__(self, client: Client) -> None:
        self.call_id = uuid.uuid4().hex
        self.client = client
        self.reason: RequestError | None = None  # why it is being stopped
        self.stopping_since: float | None = None
        self._stopping = threading.Lock()  # held while the target is asked to stop it
        self._closed = False
        self._asking = threading.Lock()

    def close(self) -> bool:
        """Whether the caller may send the one response; after it, the client is never asked about again."""
        with self._asking:
            was_open, self._closed = not self._closed, True
        return was_open

    def client_has_gone(self) -> bool:
        """Asks the server, unless the response is already on its way."""
        with self._asking:
            return not self._closed and self.client.is_cancelled()

    def stop(self, reason: RequestError) -> bool:
        """Notes why it ends; False if the target is being asked to stop it already."""
        if not self._stopping.acquire(blocking=False):
            return False
        self.reason = self.reason or reason
        self.stopping_since = self.stopping_since or time.monotonic()
        return True

    def stop_was_asked(self) -> None:
        """The target was asked; should it not know the call yet, it is asked again."""
        self._stopping.release()


class UnaryDoor:
    """Requests in, one answer each. ``accept`` is called by Triton's thread, the rest by the watch."""

    def __init__(self, target: Target, max_inflight_requests: int) -> None:
        self._target = target
        self._limit = max_inflight_requests
        self._open: dict[str, _Open] = {}
        self._cancels = ThreadPoolExecutor(_CANCEL_THREADS, thread_name_prefix="cancel")
        self.accepted = 0  # requests taken over since the start

    def accept(self, client: Client) -> None:
        """Takes a request over; it gets exactly one FINAL. Never blocks on the target, never raises.

        Refused with UNAVAILABLE above ``serving.max_inflight_requests``.
        """
        if len(self._open) >= self._limit:
            client.fail(
                Unavailable(f"serving.max_inflight_requests = {self._limit} requests are in flight; try again later.")
            )
            return
        self.accepted += 1
        opened = _Open(client)
        self._open[opened.call_id] = opened
        try:
            threading.Thread(target=self._serve, args=(opened,), name="unary-call", daemon=True).start()
        except RuntimeError as error:  # a container's limit of processes
            self._finish(opened, None, Unavailable(f"No thread is left for the request ({error}); try again later."))

    def ask_clients(self) -> int:
        """Looks after every open request, and stops those whose client has gone. Returns how many are open."""
        open_now = list(self._open.values())
        for opened in open_now:
            if opened.client_has_gone():
                self._stop(opened, Cancelled(_CANCELLED))
        return len(open_now)

    def end_all(self) -> None:
        """Stops every open request; each gets UNAVAILABLE, also when the target doesn't answer any more."""
        for opened in list(self._open.values()):
            self._stop(opened, Unavailable(_UNLOADED))
            since = opened.stopping_since
            if since is not None and time.monotonic() - since > _STUBBORN_S:
                self._finish(opened, None, opened.reason)

    def stop(self) -> None:
        """Ends the threads that cancel."""
        self._cancels.shutdown(wait=False, cancel_futures=True)

    def _serve(self, opened: _Open) -> None:
        response, error = None, None
        try:
            response = self._target.ask(opened.client, opened.call_id)
        except Exception as raised:
            error = opened.reason or as_request_error(raised, opened.call_id)
            if not isinstance(raised, RequestError):
                _log.exception("Request %s failed inside the backend", opened.call_id)
        self._finish(opened, response, error)

    def _finish(self, opened: _Open, response: Any, error: RequestError | None) -> None:
        if not opened.close():
            return
        self._open.pop(opened.call_id, None)
        try:
            if error is None:
                opened.client.answer(response)
            else:
                opened.client.fail(error)
        except Exception:
            _log.exception("The answer of request %s could not be sent", opened.call_id)

    def _stop(self, opened: _Open, reason: RequestError) -> None:
        if opened.stop(reason):
            self._cancels.submit(self._cancel, opened)

    def _cancel(self, opened: _Open) -> None:
        try:
            self._target.cancel(opened.call_id)
        except Exception as error:  # it has ended, or has not begun: the next poll knows
            _log.debug("Call %s could not be cancelled: %s", opened.call_id, error)
        finally:
            opened.stop_was_asked()
