"""1,000 requests refused by the in-flight limit while 64 streams go on: their inter-token latency with and without.

python benchmarks/soak/flood.py
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time

from soaking import Connection, RunningServer, percentile, ticking_server, verdict

STREAMS = 64
TOKENS = 500
REFUSED = 1000
FLOODERS = 4
REFUSAL = f"serving.max_inflight_requests = {STREAMS} requests are in flight; try again later."


async def streams(server: RunningServer, flood: bool) -> tuple[list[float], int]:
    """Inter-token latencies (s) of the 64 streams, and how many requests were refused."""
    connections = [Connection(server) for _ in range(STREAMS)]
    times: list[list[float]] = [[] for _ in connections]
    running = [
        asyncio.create_task(connection.ask("hi", f'{{"max_tokens": {TOKENS}}}', at))
        for connection, at in zip(connections, times, strict=True)
    ]
    while not all(times):
        await asyncio.sleep(0.01)
    refused = await _flood(server) if flood else 0
    still_running = sum(not task.done() for task in running)
    answers = await asyncio.gather(*running)
    assert {error for _, error in answers} == {None}
    print(f"{refused} refused while {still_running} of {STREAMS} streams ran", flush=True)
    gaps = [later - earlier for at in times for earlier, later in itertools.pairwise(at)]
    await asyncio.gather(*(connection.close() for connection in connections))
    return gaps, refused


async def _flood(server: RunningServer) -> int:
    async def one() -> int:
        connection, refused = Connection(server), 0
        for _ in range(REFUSED // FLOODERS):
            _, error = await connection.ask("hi", '{"max_tokens": 1}')
            refused += error == REFUSAL
        await connection.close()
        return refused

    return sum(await asyncio.gather(*(one() for _ in range(FLOODERS))))


def main() -> int:
    """Exit status 0 if all were refused and every stream came to its end."""
    with ticking_server({"serving.max_inflight_requests": str(STREAMS)}) as server:
        began = time.perf_counter()
        alone, _ = asyncio.run(streams(server, flood=False))
        alone_s = time.perf_counter() - began
        began = time.perf_counter()
        flooded, refused = asyncio.run(streams(server, flood=True))
        flooded_s = time.perf_counter() - began
    for name, gaps, took_s in (("alone", alone, alone_s), ("flooded", flooded, flooded_s)):
        p50, p99 = (1000 * percentile(gaps, share) for share in (0.5, 0.99))
        print(f"{name}: inter-token latency p50 {p50:.1f} ms, p99 {p99:.1f} ms, {took_s:.1f} s in all", flush=True)
    return verdict(refused == REFUSED, f"{refused} of {REFUSED} refused, every stream complete")


if __name__ == "__main__":
    sys.exit(main())
