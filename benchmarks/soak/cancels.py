"""200 gRPC cancels of requests that are queued, in prefill, decoding, unread: how soon each left the engine's counts.

C4 with --storm N: so many prompts of up to 100 kB submitted and cancelled at once; memory stays, nothing is left.
python benchmarks/soak/cancels.py [--cancels 200] [--storm 10000]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import re
import sys
import time
import urllib.request

from soaking import Connection, RunningServer, memory_mib, percentile, verdict, vllm_server

SLOTS = 4
LIMIT_S = 0.3
LONG = '{"max_tokens": 1500, "ignore_eos": true, "temperature": 0}'
PROMPT_TOKENS = 300
COUNTS = re.compile(r"^vllm:num_requests_(?:running|waiting)\{.*\} (\S+)$", re.MULTILINE)
NEW_TOKENS = re.compile(r"^vllm:generation_tokens_total\{.*\} (\S+)$", re.MULTILINE)
STATES = ("queued", "prefill", "decode", "unread")
SEEN_S = 2.0
UNREAD_TOKENS = 20  # of a client that takes none of them
STORM_GROWTH = 1.05
STORM_AT_ONCE = 16
OPTIONS = {"max_num_seqs": str(SLOTS), "max_model_len": "2048", "serving.metrics_interval_s": "0.02"}


def total(server: RunningServer, lines: re.Pattern[str]) -> int:
    """The sum of the metrics whose lines these are."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics") as response:
        text = response.read().decode()
    return int(sum(float(number) for number in lines.findall(text)))


def unfinished(server: RunningServer) -> int:
    """Requests that the engine counts as running or waiting."""
    return total(server, COUNTS)


async def until_unfinished(server: RunningServer, count: int) -> float:
    """Waits until the engine counts no more than so many; the time in seconds."""
    began = time.perf_counter()
    while await asyncio.to_thread(unfinished, server) > count:
        assert time.perf_counter() - began < 30, f"{unfinished(server)} unfinished requests, not {count}"
        await asyncio.sleep(0.005)
    return time.perf_counter() - began


async def one_cancel(server: RunningServer, connection: Connection, state: str) -> float | None:
    """Seconds from the cancel until the engine has let go.

    None if that can't be told, as on a machine that stalls: the request wasn't seen in its state, or others ended.
    """
    others = [connection.open(f"{number} one two", LONG) for number in range(SLOTS if state == "queued" else 0)]
    readers = [asyncio.create_task(_read(stream)) for stream in others]
    took_s = None
    if await _seen(server, COUNTS, len(others)):
        written = await asyncio.to_thread(total, server, NEW_TOKENS)
        # Words that no other prompt begins with, so that a prefill can't come from the prefix cache.
        prompt = " ".join(str(random.randrange(10)) for _ in range(PROMPT_TOKENS)) if state == "prefill" else "hi"
        stream = connection.open(prompt, LONG)
        if state == "decode":
            await _first(stream)
            seen = True
        elif state == "unread":
            seen = await _seen(server, NEW_TOKENS, written + UNREAD_TOKENS)
        else:
            seen = await _seen(server, COUNTS, len(others) + 1)
        stream.cancel()
        if seen:
            took_s = await until_unfinished(server, len(others))
        if any(reader.done() for reader in readers):
            took_s = None
        readers.append(asyncio.create_task(_read(stream)))
    for other in others:
        other.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    await until_unfinished(server, 0)
    return took_s


async def _seen(server: RunningServer, lines: re.Pattern[str], least: int) -> bool:
    """Waits for the sum of these metrics; on a machine that stalls the requests may have ended before."""
    began = time.perf_counter()
    while await asyncio.to_thread(total, server, lines) < least:
        if time.perf_counter() - began > SEEN_S:
            return False
        await asyncio.sleep(0.005)
    return True


async def _first(stream: object) -> None:
    async for _ in stream:  # type: ignore[attr-defined]
        return


async def _read(stream: object) -> None:
    async for _ in stream:  # type: ignore[attr-defined]
        pass


async def cancels(server: RunningServer, count: int) -> int:
    """The exit status."""
    connection, took_s = Connection(server.grpc), dict[str, list[float]]((state, []) for state in STATES)
    for number in range(count):
        state = STATES[number % len(STATES)]
        while (took := await one_cancel(server, connection, state)) is None:
            print(f"{number}, {state}: it couldn't be seen so; once more", flush=True)
        took_s[state].append(took)
        if took > LIMIT_S:
            print(f"{time.strftime('%H:%M:%S')} {number}, {state}: {took:.3f} s", flush=True)
    await connection.close()
    for state, times in took_s.items():
        p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
        print(f"{state}: p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms of {len(times)}", flush=True)
    p99 = percentile(list(itertools.chain(*took_s.values())), 0.99)
    return verdict(p99 <= LIMIT_S, f"{count} cancels: p99 {1000 * p99:.0f} ms until the engine's counts are down")


async def storm(server: RunningServer, count: int) -> int:
    """The exit status."""
    turns, memory = iter(range(count)), []

    async def one(connection: Connection) -> None:
        for number in turns:
            stream = connection.open("one two " * random.choice((10, 100, 12_500)), LONG)
            first = asyncio.create_task(_first(stream))
            await asyncio.sleep(random.random() * 0.02)
            stream.cancel()
            await asyncio.gather(first, return_exceptions=True)
            if number % max(1, count // 10) == 0:
                memory.append(memory_mib(server))
                print(f"{number}: {memory[-1]}", flush=True)

    connections = [Connection(server.grpc) for _ in range(STORM_AT_ONCE)]
    await asyncio.gather(*(one(connection) for connection in connections))
    await asyncio.gather(*(connection.close() for connection in connections))
    await until_unfinished(server, 0)
    memory.append(memory_mib(server))
    # The server's allocator keeps what sixteen prompts of 100 kB took at once, wherever they met: so from the half on.
    growth = {name: round(memory[-1][name] / memory[len(memory) // 2][name], 4) for name in memory[0]}
    words = f"{count} cancelled, none unfinished, memory {memory[-1]} MiB, x {growth} since the half of them"
    return verdict(max(growth.values()) <= STORM_GROWTH, words)


def main() -> int:
    """Exit status 0 if all leave in time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cancels", type=int, default=200)
    parser.add_argument("--storm", type=int, default=0)
    options = parser.parse_args()
    with vllm_server(OPTIONS) as server:
        status = asyncio.run(cancels(server, options.cancels)) if options.cancels else 0
        return (asyncio.run(storm(server, options.storm)) if options.storm else 0) or status


if __name__ == "__main__":
    sys.exit(main())
