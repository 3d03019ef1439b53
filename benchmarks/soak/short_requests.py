"""L5: short requests over 20 connections; the rate stays, the memory too.

python benchmarks/soak/short_requests.py [--requests 100000]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from soaking import Connection, RunningServer, memory_mib, ticking_server, verdict

CONNECTIONS = 20
TENTHS = 10
RATE_KEPT = 0.8  # last tenth beside the second; the rest of the machine may be busy
GROWTH = 1.02


async def tenth(server: RunningServer, requests: int) -> float:
    """Requests a second."""
    left = iter(range(requests))
    began = time.perf_counter()

    async def one() -> None:
        connection = Connection(server.grpc)
        for _ in left:
            responses, error = await connection.ask("hi", '{"max_tokens": 2}')
            assert error is None, error
            assert responses in (1, 2), responses  # pieces may merge
        await connection.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return requests / (time.perf_counter() - began)


def main() -> int:
    """Exit status 0 if rate and memory hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    requests = parser.parse_args().requests
    with ticking_server() as server:
        rates, memory = [], []
        for _ in range(TENTHS):
            rates.append(asyncio.run(tenth(server, requests // TENTHS)))
            memory.append(memory_mib(server))
            print(f"{rates[-1]:.0f} requests/s, {memory[-1]}", flush=True)
    first, last = rates[1], rates[-1]
    growth = {name: memory[-1][name] / memory[1][name] for name in memory[0]}
    return verdict(
        last >= RATE_KEPT * first and max(growth.values()) <= GROWTH,
        f"{requests} requests: {first:.0f} -> {last:.0f} requests/s, memory x {growth} since the second tenth",
    )


if __name__ == "__main__":
    sys.exit(main())
