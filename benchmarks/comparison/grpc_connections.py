"""gRPC as the load generator speaks it: HTTP/2 frames counted as they come in.

A client library takes as long for one response as the server that is measured: on two processors it would be the
bottleneck. Here a response costs the split of its frame; only the first byte of a message is looked at, which tells an
error from an answer. RFC 9113 (HTTP/2), RFC 7541 (HPACK; literals alone, and nothing is decoded), gRPC over HTTP/2.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence
from typing import Any

from comparison.load import Failure

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GO_AWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 0x1, 0x1, 0x4
_WINDOW = 2**31 - 1
_INITIAL_WINDOW_SIZE = 4  # the setting's number
_ERROR_FIELD = 0x0A  # ModelStreamInferResponse: field 1 is error_message, field 2 the answer
_PATH = "/inference.GRPCInferenceService/ModelStreamInfer"


def call(host: str, message: bytes) -> tuple[bytes, bytes]:
    """The header block and the body of one call with one message."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": _PATH,
        ":authority": host,
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(b"\0" + _literal(name) + _literal(value) for name, value in headers.items())
    return block, struct.pack(">BI", 0, len(message)) + message


def _literal(text: str) -> bytes:
    assert len(text) < 127
    return bytes([len(text)]) + text.encode()


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


class InferStream(asyncio.Protocol):
    """One connection with one ModelStreamInfer call at a time: one request, its responses. A ``load.Connection``."""

    def __init__(self, calls: Sequence[tuple[bytes, bytes]]) -> None:
        self._calls = calls
        self._transport: Any
        self._ended: asyncio.Future[None]
        self._stream = -1  # a client's streams are odd
        self._received = b""
        self._message = b""
        self._arrivals: list[int] = []
        self._error = ""

    async def ask(self, number: int) -> list[int]:
        """See ``load.Connection.ask``."""
        if self._transport.is_closing():
            raise Failure("the server has hung up")
        block, body = self._calls[number]
        self._ended = asyncio.get_running_loop().create_future()
        self._arrivals, self._message, self._error = [], b"", ""
        self._stream += 2
        frames = _frame(_HEADERS, _END_HEADERS, self._stream, block) + _frame(_DATA, _END_STREAM, self._stream, body)
        self._transport.write(frames)
        await self._ended
        if self._error or not self._arrivals:
            raise Failure(self._error or "a call without a response")
        return self._arrivals

    def close(self) -> None:
        """See ``load.Connection.close``."""
        self._transport.close()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        settings = _frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, _WINDOW))
        whole = _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _WINDOW - 65535))
        transport.write(_PREFACE + settings + whole)

    def connection_lost(self, exc: Exception | None) -> None:
        self._error = self._error or f"the server hung up ({exc})"
        self._end()

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        received = self._received + data if self._received else data
        at, size = 0, len(received)
        while size - at >= 9:
            end = at + 9 + int.from_bytes(received[at : at + 3], "big")
            if end > size:
                break
            self._take(received[at + 3], received[at + 4], received[at + 9 : end], now)
            at = end
        self._received = received[at:]

    def _take(self, kind: int, flags: int, payload: bytes, now: int) -> None:
        if kind == _DATA:
            self._count(payload, now)
        elif kind == _SETTINGS and not flags & _ACK:
            self._transport.write(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            self._transport.write(_frame(_PING, _ACK, 0, payload))
        elif kind in (_RESET, _GO_AWAY):
            self._error = self._error or f"the server ended the call with frame {kind}"
            self._end()
        if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            self._end()

    def _count(self, payload: bytes, now: int) -> None:
        message = self._message + payload if self._message else payload
        while len(message) >= 5 and len(message) >= (end := 5 + int.from_bytes(message[1:5], "big")):
            if end > 5 and message[5] == _ERROR_FIELD:
                self._error = self._error or message[7:end].decode(errors="replace")[:500]
            self._arrivals.append(now)
            message = message[end:]
        self._message = message

    def _end(self) -> None:
        if hasattr(self, "_ended") and not self._ended.done():
            self._ended.set_result(None)
