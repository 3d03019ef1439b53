"""HTTP/1.1 as the load generator speaks it: one request at a time on a kept connection, answers counted."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any

from comparison.load import Failure

_LENGTH = re.compile(rb"content-length: *(\d+)", re.I)
_EVENT = b"data: {"
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_OVERLAP = max(len(_EVENT), len(_LAST_CHUNK)) - 1  # what of the last packet may belong to a mark that is cut in two


def post(host: str, path: str, body: bytes) -> bytes:
    """One request as it goes over the wire."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _HttpConnection(asyncio.Protocol):
    """What both kinds of answers share: one request out, the time of each response in, until ``_read`` is true."""

    def __init__(self, requests: Sequence[bytes]) -> None:
        self._requests = requests
        self._transport: Any
        self._ended: asyncio.Future[None]
        self._arrivals: list[int] = []
        self._seen = b""

    async def ask(self, number: int) -> list[int]:
        """See ``load.Connection.ask``."""
        if self._transport.is_closing():
            raise Failure("the server has hung up")
        self._ended = asyncio.get_running_loop().create_future()
        self._arrivals, self._seen = [], b""
        self._transport.write(self._requests[number])
        await self._ended
        return self._arrivals

    def close(self) -> None:
        """See ``load.Connection.close``."""
        self._transport.close()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(Failure(f"the server hung up ({exc})"))

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        if not self._seen and not data.startswith(b"HTTP/1.1 200"):
            self._end(Failure(data.decode(errors="replace")[:500]))
            return
        if self._read(data, now):
            self._end(None if self._arrivals else Failure("an answer without a response"))

    def _read(self, data: bytes, now: int) -> bool:
        raise NotImplementedError

    def _end(self, failure: Failure | None) -> None:
        if hasattr(self, "_ended") and not self._ended.done():
            if failure is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(failure)


class EventStream(_HttpConnection):
    """Server-sent events in a chunked body: a response is one event."""

    def _read(self, data: bytes, now: int) -> bool:
        # An overlap shorter than a mark never holds one, so that none is counted twice.
        seen = self._seen + data
        self._arrivals.extend([now] * (seen.count(_EVENT) - self._seen.count(_EVENT)))
        self._seen = seen[-_OVERLAP:]
        return seen.endswith(_LAST_CHUNK)


class WholeAnswer(_HttpConnection):
    """One body, of a known length or in chunks: a response is the whole."""

    def _read(self, data: bytes, now: int) -> bool:
        self._seen += data
        head, mark, body = self._seen.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        ended = len(body) >= int(length[1]) if length else self._seen.endswith(_LAST_CHUNK)
        if not mark or not ended:
            return False
        self._arrivals.append(now)
        return True
