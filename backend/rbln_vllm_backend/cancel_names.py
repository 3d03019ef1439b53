"""Which open requests a name cancels: a client's own request id, or the private id of a unary call."""

from __future__ import annotations

from rbln_vllm_backend.errors import InvalidRequest, NotFound, Unsupported


class CancelNames:
    """Belongs to the loop. With ``clients_may`` false only private ids, which nobody can guess, are found."""

    def __init__(self, clients_may: bool) -> None:
        self._clients_may = clients_may
        self._private: dict[str, str] = {}
        self._clients: dict[str, set[str]] = {}

    def add(self, request_id: str, call_id: str | None, client_id: str) -> None:
        """A request is open; ``client_id`` may be empty, and need not be unique."""
        if call_id:
            self._private.setdefault(call_id, request_id)
        if client_id and self._clients_may:
            self._clients.setdefault(client_id, set()).add(request_id)

    def remove(self, request_id: str, call_id: str | None, client_id: str) -> None:
        """The request has ended."""
        if call_id and self._private.get(call_id) == request_id:
            del self._private[call_id]
        same = self._clients.get(client_id, set())
        same.discard(request_id)
        if not same:
            self._clients.pop(client_id, None)

    def find(self, name: str) -> list[str]:
        """The requests that the name cancels.

        Raises:
            NotFound: no open request has it. Unsupported: clients may not cancel here. InvalidRequest: it is empty.
        """
        if not name:
            raise InvalidRequest("cancel_request_id: the request id is empty.")
        if name in self._private:
            return [self._private[name]]
        if not self._clients_may:
            raise Unsupported(
                "cancel_request_id: cancelling by request id is off; serving.allow_cancel_by_id turns it on."
            )
        if name not in self._clients:
            raise NotFound(f"cancel_request_id = {name[:80]!r}: no open request of this instance has that id.")
        return list(self._clients[name])
