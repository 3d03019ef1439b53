"""32 streams; the engine's core, then its worker, killed five times each: answered, restarted, nothing left.

Then, on a server of its own, the restart limit: the second death within it is final, until the model is loaded again.
python benchmarks/soak/chaos.py [--kills 5]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
from soaking import Connection, RunningServer, verdict, vllm_server

from rbln_vllm_backend import shared_memory
from server.client import post
from server.processes import core_of, engine_processes, gone, worker_of
from waiting import until

STREAMS = 32
LONG = '{"max_tokens": 1900, "ignore_eos": true, "temperature": 0}'
ANSWERED_S = 2.0
RESTARTED_S = 300.0
GONE_S = 10.0
DEAD = {"The engine has died.", "The engine is down and is started again; try again later."}
STAYS_DOWN = "The engine has died too often and stays down; load the model again."
OPTIONS = {"max_model_len": "2048"}
EXPLICIT = ("--model-control-mode=explicit", "--load-model=llm")


async def strike(server: RunningServer, victim: psutil.Process) -> tuple[float, Counter[str | None]]:
    """Kills it under 32 streams: seconds until the last had its error, and how many ended with which (None: FINAL)."""
    connections = [Connection(server.grpc) for _ in range(STREAMS)]
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
    return took_s, Counter(error for _, error in answers)


async def until_ready(server: RunningServer) -> float:
    """Seconds until a request is served again."""
    connection, began = Connection(server.grpc), time.perf_counter()
    while (await connection.ask("hi", '{"max_tokens": 2}'))[1] is not None:
        assert time.perf_counter() - began < RESTARTED_S
        await asyncio.sleep(0.1)
    await connection.close()
    return time.perf_counter() - began


async def answer(server: RunningServer) -> str | None:
    """The error of one short request."""
    connection = Connection(server.grpc)
    error = (await connection.ask("hi", '{"max_tokens": 2}'))[1]
    await connection.close()
    return error


def engine_of(server: RunningServer) -> list[psutil.Process]:
    """The core and what it started; the stub's own resource tracker stays with the stub."""
    core = core_of(server)
    return [core, *core.children(recursive=True)]


def files_of(processes: list[psutil.Process]) -> set[Path]:
    """Their files in /dev/shm."""
    return set(shared_memory.mapped_by(process.pid for process in processes))


def chaos(kills: int) -> int:
    """The exit status."""
    slowest_s, wrong = 0.0, 0
    everything: list[psutil.Process] = []
    files: set[Path] = set()
    with vllm_server({**OPTIONS, "serving.engine_restarts": "100"}) as server:
        processes = len(engine_processes(server))
        for name, victim in (("core", core_of), ("worker", worker_of)):
            for number in range(kills):
                engine = engine_of(server)
                everything += engine
                files |= files_of(engine)
                answered_s, ends = asyncio.run(strike(server, victim(server)))
                ready_s = asyncio.run(until_ready(server))
                until(lambda: gone(engine), GONE_S)  # noqa: B023
                slowest_s = max(slowest_s, answered_s)
                errors = sum(count for error, count in ends.items() if error in DEAD)
                wrong += STREAMS - errors - ends[None]
                print(
                    f"{name} {number + 1}: {errors} of {STREAMS} streams ended with an error, {ends[None]} had ended, "
                    f"the last after {answered_s:.2f} s; ready again after {ready_s:.1f} s",
                    flush=True,
                )
        grown = len(engine_processes(server)) - processes
        everything += engine_processes(server)
        files |= files_of(engine_processes(server))
    left = grown + sum(not gone([process]) for process in everything)
    left_files = sum(file.exists() for file in files)
    return verdict(
        slowest_s <= ANSWERED_S and not wrong and not left and not left_files,
        f"slowest answer {slowest_s:.2f} s, {wrong} wrong ends; of {len(everything)} processes {left} are left, "
        f"of {len(files)} files in /dev/shm {left_files}",
    )


def limit() -> int:
    """The exit status."""
    with vllm_server({**OPTIONS, "serving.engine_restarts": "1"}, EXPLICIT) as server:
        for error in (None, STAYS_DOWN):
            engine = engine_of(server)
            asyncio.run(strike(server, core_of(server)))
            until(lambda: asyncio.run(answer(server)) == error, RESTARTED_S)  # noqa: B023
            until(lambda: gone(engine), GONE_S)  # noqa: B023
        left = sum(not gone([process]) for process in engine)
        loaded = post(server, "repository/models/llm/load")[0]
        error = asyncio.run(answer(server))
    return verdict(
        not left and loaded == 200 and error is None,
        f"a second death is final with serving.engine_restarts = 1, {left} processes are left; "
        f"loaded again with status {loaded}, then the answer's error is {error}",
    )


def main() -> int:
    """Exit status 0 if every stream ended in time, nothing is left, and the limit holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5, help="of each kind; 0: only the limit")
    kills = parser.parse_args().kills
    return max(chaos(kills) if kills else 0, limit())


if __name__ == "__main__":
    sys.exit(main())
