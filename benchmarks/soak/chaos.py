"""32 streams; the engine's core, then its worker, killed five times each: answered, restarted, nothing left.

python benchmarks/soak/chaos.py [--kills 5]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time

import psutil
from soaking import Connection, RunningServer, verdict, vllm_server

from server.processes import core_of, engine_processes, worker_of

STREAMS = 32
LONG = '{"max_tokens": 480, "ignore_eos": true, "temperature": 0}'
ANSWERED_S = 2.0
RESTARTED_S = 300.0


async def strike(server: RunningServer, victim: psutil.Process) -> tuple[float, int]:
    """Kills it under 32 streams: seconds until the last was answered, and how many ended with an error."""
    connections = [Connection(server) for _ in range(STREAMS)]
    times: list[list[float]] = [[] for _ in connections]
    running = [
        asyncio.create_task(connection.ask(f"{number} one two", LONG, at))
        for number, (connection, at) in enumerate(zip(connections, times, strict=True))
    ]
    while not all(times):
        await asyncio.sleep(0.01)
    os.kill(victim.pid, signal.SIGKILL)
    began = time.perf_counter()
    answers = await asyncio.wait_for(asyncio.gather(*running), 60)
    took_s = time.perf_counter() - began
    await asyncio.gather(*(connection.close() for connection in connections))
    return took_s, sum(error is not None for _, error in answers)


async def until_ready(server: RunningServer) -> float:
    """Seconds until a request is served again."""
    connection, began = Connection(server), time.perf_counter()
    while (await connection.ask("hi", '{"max_tokens": 2}'))[1] is not None:
        assert time.perf_counter() - began < RESTARTED_S
        await asyncio.sleep(0.1)
    await connection.close()
    return time.perf_counter() - began


def main() -> int:
    """Exit status 0 if every stream ended in time and nothing is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5, help="of each kind")
    kills = parser.parse_args().kills
    slowest_s = 0.0
    with vllm_server({"serving.engine_restarts": "100"}) as server:
        processes = len(engine_processes(server))
        for name, victim in (("core", core_of), ("worker", worker_of)):
            for number in range(kills):
                answered_s, errors = asyncio.run(strike(server, victim(server)))
                ready_s = asyncio.run(until_ready(server))
                slowest_s = max(slowest_s, answered_s)
                print(
                    f"{name} {number + 1}: {errors} of {STREAMS} streams ended with an error, the last after "
                    f"{answered_s:.2f} s; ready again after {ready_s:.1f} s",
                    flush=True,
                )
        left = len(engine_processes(server)) - processes
    return verdict(
        slowest_s <= ANSWERED_S and left <= 0, f"slowest answer {slowest_s:.2f} s, {left} processes too many"
    )


if __name__ == "__main__":
    sys.exit(main())
