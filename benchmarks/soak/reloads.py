"""L1: loads and unloads, each with a stream served; memory, processes and shared memory don't grow.

python benchmarks/soak/reloads.py [--turns 20] [--engine ticking|vllm]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

import psutil
from soaking import Connection, RunningServer, memory_mib, ticking_server, verdict, vllm_server

from running_server import READY_DEADLINE_S
from server.client import post
from server.processes import gone

EXPLICIT = ("--model-control-mode=explicit", "--load-model=llm")
UNLOADED_S = 60.0
GROWTH = 1.05


async def serve_one(server: RunningServer) -> None:
    """One streamed answer."""
    connection = Connection(server.grpc)
    _, error = await connection.ask("hi", '{"max_tokens": 8}')
    assert error is None, error
    await connection.close()


def turn(server: RunningServer) -> float:
    """Serves, unloads, and loads again; the server's memory in MiB when unloaded, where no process may be left."""
    asyncio.run(serve_one(server))
    assert post(server, "repository/models/llm/unload")[0] == 200
    children = psutil.Process(server.process.pid).children(recursive=True)
    deadline = time.monotonic() + UNLOADED_S
    while not gone(children):
        assert time.monotonic() < deadline, children
        time.sleep(0.05)
    memory = memory_mib(server)["server"]
    assert post(server, "repository/models/llm/load", deadline_s=READY_DEADLINE_S)[0] == 200
    return memory


def main() -> int:
    """Exit status 0 if nothing grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--engine", choices=("ticking", "vllm"), default="vllm")
    options = parser.parse_args()
    serving = vllm_server if options.engine == "vllm" else ticking_server
    with serving(arguments=EXPLICIT) as server:
        memory = []
        for number in range(options.turns):
            memory.append(turn(server))
            print(f"turn {number + 1}: {memory[-1]:.1f} MiB when unloaded", flush=True)
        asyncio.run(serve_one(server))
    growth = memory[-1] / memory[min(4, len(memory) - 1)]
    return verdict(growth <= GROWTH, f"{options.turns} loads: server x {growth:.3f} since the fifth, no process left")


if __name__ == "__main__":
    sys.exit(main())
