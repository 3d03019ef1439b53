"""The load: so many streams at once, each asking its next prompt as soon as its last answer has ended.

The clock is read once for each response, and nothing of a response is decoded, so that the load generator takes as
little as it can of the processors that it shares with what it measures.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Protocol

import msgspec


class Failure(Exception):
    """A request was answered with an error, or not at all."""


class Connection(Protocol):
    """One client, with one request at a time."""

    async def ask(self, number: int) -> list[int]:
        """Sends the prompt of that number; when each response arrived, in ns of ``time.perf_counter_ns``."""

    def close(self) -> None:
        """Hangs up."""


@dataclass(frozen=True)
class Outcome:
    """What one run gave. Latencies are in milliseconds; a gap is the time between two responses of one stream."""

    requests: int
    failed: int
    responses: int
    duration_s: float
    client_cpu_s: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    gap_p50_ms: float
    gap_p99_ms: float
    failure: str = ""  # the first one's text

    def line(self) -> str:
        """One line of JSON, of the dialect that has NaN: a single response leaves no gap."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_line(line: str) -> Outcome:
        """What ``line`` wrote."""
        return msgspec.convert(json.loads(line), Outcome)


async def drive(connections: Sequence[Connection], requests: int) -> Outcome:
    """Asks the prompts 0 … requests-1, as many at once as there are connections."""
    numbers = iter(range(requests))
    firsts: list[int] = []
    answers: list[list[int]] = []
    failures: list[str] = []

    async def client(connection: Connection) -> None:
        for number in numbers:
            began = time.perf_counter_ns()
            try:
                arrivals = await connection.ask(number)
            except Failure as failure:
                failures.append(str(failure))
                continue
            firsts.append(arrivals[0] - began)
            answers.append(arrivals)

    gc.disable()
    cpu, clock = time.process_time(), time.perf_counter()
    await asyncio.gather(*map(client, connections))
    duration_s, client_cpu_s = time.perf_counter() - clock, time.process_time() - cpu
    gc.enable()
    gaps = [later - earlier for arrivals in answers for earlier, later in pairwise(arrivals)]
    return Outcome(
        requests=requests,
        failed=len(failures),
        responses=sum(map(len, answers)),
        duration_s=duration_s,
        client_cpu_s=client_cpu_s,
        ttft_p50_ms=percentile_ms(firsts, 50),
        ttft_p99_ms=percentile_ms(firsts, 99),
        gap_p50_ms=percentile_ms(gaps, 50),
        gap_p99_ms=percentile_ms(gaps, 99),
        failure=failures[0] if failures else "",
    )


def percentile_ms(durations_ns: Sequence[int], percent: int) -> float:
    """The percentile of durations in ns, in ms; NaN of none."""
    if not durations_ns:
        return float("nan")
    if len(durations_ns) == 1:
        return durations_ns[0] / 1e6
    return statistics.quantiles(durations_ns, n=100, method="inclusive")[percent - 1] / 1e6
