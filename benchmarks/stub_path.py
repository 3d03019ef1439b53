"""CPU per token of this backend's own part of the stub, without vLLM and Triton: service, streams, sender threads.

An engine gives every stream a token in each step; a response is an exchange of one byte with another process, which
stands for the exchange with tritonserver. To compare two checkouts, run it in turns with each one's PYTHONPATH.

    python benchmarks/stub_path.py [--streams 64] [--steps 200] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import rbln_vllm_backend
from rbln_vllm_backend.engine import Generation, Piece, Step
from rbln_vllm_backend.request import Request
from rbln_vllm_backend.service import Service
from rbln_vllm_backend.serving_options import ServingOptions

STEP_S = 0.015  # between two engine steps, so that the process isn't saturated
MOST_SENDERS = 16


class SteppingEngine:
    """Implements ``engine.Engine``: all streams move together, a token in each step."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._waiting: list[asyncio.Future[None]] = []
        self._ticker: asyncio.Task[None] | None = None

    async def generate(self, generation: Generation) -> AsyncGenerator[Step, None]:
        loop = asyncio.get_running_loop()
        for number in range(1, self._steps + 1):
            turn = loop.create_future()
            self._waiting.append(turn)
            if self._ticker is None or self._ticker.done():
                self._ticker = loop.create_task(self._tick())
            await turn
            reason = "length" if number == self._steps else None
            yield Step((Piece(0, "ab", 1, reason, token_ids=[1]),), num_input_tokens=5, finished=reason is not None)

    async def _tick(self) -> None:
        while self._waiting:
            await asyncio.sleep(STEP_S)
            waiting, self._waiting = self._waiting, []
            for turn in waiting:
                turn.set_result(None)
            await asyncio.sleep(0)

    def stop(self) -> None:
        pass


class Echo:
    """Another process that answers each byte; every sender thread has a line of its own."""

    def __init__(self) -> None:
        pairs = [socket.socketpair() for _ in range(MOST_SENDERS)]
        if not os.fork():
            for mine, theirs in pairs:
                mine.close()
                threading.Thread(target=_echo, args=(theirs,)).start()
            _live_by_threads()
        self._free = iter([mine for mine, _ in pairs])
        for _, theirs in pairs:
            theirs.close()
        self._lines = threading.local()
        self._lock = threading.Lock()

    def exchange(self) -> None:
        """One byte there and back."""
        line: socket.socket | None = getattr(self._lines, "line", None)
        if line is None:
            with self._lock:
                line = self._lines.line = next(self._free)
        line.send(b"x")
        line.recv(1)


def _live_by_threads() -> None:
    """The child lives by its threads alone, until their lines are closed."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
    os._exit(0)


def _echo(line: socket.socket) -> None:
    while received := line.recv(1):
        line.send(received)


class EchoedReply:
    """Implements ``stream.Reply``."""

    def __init__(self, echo: Echo) -> None:
        self._echo = echo
        self.responses = 0
        self.final = threading.Event()

    def send(self, step: Step) -> None:
        self._echo.exchange()
        self.responses += 1
        if step.finished:
            self.final.set()

    def fail(self, error: Exception) -> None:
        raise error

    def is_cancelled(self) -> bool:
        return False


def main() -> int:
    """Prints a line for each round, and the median."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    echo = Echo()
    engine: Any = SteppingEngine(options.steps)
    service = Service(engine, ServingOptions(warmup=False))
    service.start()
    gc.collect()
    gc.freeze()
    print(Path(rbln_vllm_backend.__file__).parent)
    figures = [_round(service, echo, options.streams, options.steps) for _ in range(options.rounds)]
    print(f"median {statistics.median(figures):.1f} µs, lowest {min(figures):.1f} µs of CPU per token")
    service.stop()
    return 0


def _round(service: Service, echo: Echo, streams: int, steps: int) -> float:
    replies = [EchoedReply(echo) for _ in range(streams)]
    cpu, clock = time.process_time(), time.perf_counter()
    for reply in replies:
        service.accept(Request("p", True, {}, frozenset(), "", ""), reply)
    for reply in replies:
        reply.final.wait()
    cpu_us = (time.process_time() - cpu) / (streams * steps) * 1e6
    speed = streams * steps / (time.perf_counter() - clock)
    per_token = sum(reply.responses for reply in replies) / (streams * steps)
    print(f"{cpu_us:.1f} µs of CPU per token, {speed:.0f} tokens/s, {per_token:.2f} responses per token")
    return cpu_us


if __name__ == "__main__":
    sys.exit(main())
