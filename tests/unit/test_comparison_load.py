"""The load generator of the benchmark, against small servers of known answers: it counts every response, and errors."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from comparison import perf_analyzer
from comparison.grpc_connections import InferStream, call
from comparison.http_connections import EventStream, WholeAnswer, post
from comparison.load import Connection, Outcome, drive, percentile_ms

EVENTS = [b'data: {"text": "a"}\n\n', b'data: {"text": "b"}\n\n', b'data: {"text": "c"}\n\n', b"data: [DONE]\n\n"]
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(parts: list[bytes]) -> bytes:
    return HEAD + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@asynccontextmanager
async def answering(packets: list[bytes]) -> AsyncIterator[int]:
    """The port of a server that answers each request with these packets, one write each."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            for packet in packets:
                writer.write(packet)
                await writer.drain()
                await asyncio.sleep(0)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def driven(port: int, make: Callable[[], Any], requests: int, streams: int = 2) -> Outcome:
    loop = asyncio.get_running_loop()
    connections: list[Connection] = []
    for _ in range(streams):
        _, connection = await loop.create_connection(make, "127.0.0.1", port)
        connections.append(connection)
    outcome = await asyncio.wait_for(drive(connections, requests), 30)
    for connection in connections:
        connection.close()
    return outcome


def asked(packets: list[bytes], kind: Any, requests: int = 5) -> Outcome:
    async def run() -> Outcome:
        async with answering(packets) as port:
            return await driven(port, lambda: kind([post("host", "/path", b"{}")] * requests), requests)

    return asyncio.run(run())


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_every_event_is_counted_however_the_packets_are_cut(size: int) -> None:
    whole = chunked(EVENTS)
    # The status line comes in one piece, as every server sends it.
    packets = [HEAD, *(whole[at : at + size] for at in range(len(HEAD), len(whole), size))]
    outcome = asked(packets, EventStream)
    assert (outcome.requests, outcome.failed, outcome.responses) == (5, 0, 15)


def test_a_whole_answer_is_one_response() -> None:
    outcome = asked([b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{", b"}  "], WholeAnswer)
    assert (outcome.failed, outcome.responses) == (0, 5)


def test_an_outcome_without_gaps_crosses_to_another_process() -> None:
    outcome = asked([b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{}  "], WholeAnswer)
    assert math.isnan(outcome.gap_p50_ms)
    assert repr(Outcome.of_line(outcome.line())) == repr(outcome)


def test_a_whole_answer_may_come_in_chunks() -> None:
    outcome = asked([chunked([b'{"text_output": "a"}'])], WholeAnswer)
    assert (outcome.failed, outcome.responses) == (0, 5)


def test_an_error_status_is_a_failure_with_its_text() -> None:
    outcome = asked([b"HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nbad"], EventStream)
    assert (outcome.failed, outcome.responses) == (5, 0)
    assert outcome.failure.endswith("bad")


def test_a_server_that_hangs_up_fails_every_request_that_is_left() -> None:
    async def run() -> Outcome:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(65536)
            writer.close()

        async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await driven(port, lambda: EventStream([post("host", "/path", b"{}")] * 5), 5)

    outcome = asyncio.run(run())
    assert (outcome.requests, outcome.failed, outcome.responses) == (5, 5, 0)


def grpc_outcome(answers: list[bytes], requests: int = 5) -> Outcome:
    """What the load generator makes of a real gRPC server that answers every call with these messages."""
    grpc = pytest.importorskip("grpc")

    async def stream(requests: Any, context: Any) -> AsyncIterator[bytes]:
        async for message in requests:
            assert message == b"question"
            for answer in answers:
                yield answer

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc, name-defined]
        def service(self, details: Any) -> Any:
            assert details.method == "/inference.GRPCInferenceService/ModelStreamInfer"
            return grpc.stream_stream_rpc_method_handler(stream)

    async def run() -> Outcome:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([Handler()])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            return await driven(port, lambda: InferStream([call("host", b"question")] * requests), requests)
        finally:
            await server.stop(None)

    return asyncio.run(run())


def test_every_message_of_a_grpc_stream_is_counted() -> None:
    # Field 2 (the answer) of a ModelStreamInferResponse, short and longer than a frame of HTTP/2.
    outcome = grpc_outcome([b"\x12\x01a", b"\x12" + b"x" * 40_000, b"\x12\x01c"])
    assert (outcome.requests, outcome.failed, outcome.responses) == (5, 0, 15)


def test_an_error_message_of_a_grpc_stream_is_a_failure_with_its_text() -> None:
    outcome = grpc_outcome([b"\x12\x01a", b"\x0a\x03bad"])
    assert (outcome.failed, outcome.failure) == (5, "bad")


def test_a_grpc_call_without_a_response_is_a_failure() -> None:
    assert grpc_outcome([]).failure == "a call without a response"


def test_percentiles_are_in_milliseconds() -> None:
    assert percentile_ms([1_000_000, 2_000_000, 3_000_000], 50) == 2.0
    assert percentile_ms([5_000_000], 99) == 5.0


def test_perf_analyzers_export_gives_the_same_figures() -> None:
    requests = [
        {"timestamp": 1_000_000, "response_timestamps": [3_000_000, 4_000_000, 6_000_000]},
        {"timestamp": 2_000_000, "response_timestamps": [6_000_000, 7_000_000]},
        {"timestamp": 2_000_000, "response_timestamps": []},
    ]
    outcome = perf_analyzer.outcome({"experiments": [{"requests": requests}]}, client_cpu_s=0.5)
    assert (outcome.requests, outcome.failed, outcome.responses, outcome.client_cpu_s) == (3, 1, 5, 0.5)
    assert (outcome.ttft_p50_ms, outcome.gap_p50_ms, outcome.duration_s) == (3.0, 1.0, 0.006)
