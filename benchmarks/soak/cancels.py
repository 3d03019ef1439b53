"""200 gRPC cancels of requests that are queued, in prefill, decoding, unread: how soon each left the engine's counts.

C4 with --storm N: so many prompts of up to 100 kB submitted and cancelled at once, in ten bursts; nothing is left of
any burst, in tritonserver's queue or in the engine, and the memory after the later bursts is that after the earlier.
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
from collections.abc import Iterator

from soaking import Connection, RunningServer, memory_mib, percentile, verdict, vllm_server

SLOTS = 4
LIMIT_S = 0.3
LONG = '{"max_tokens": 1500, "ignore_eos": true, "temperature": 0}'
PROMPT_TOKENS = 300
COUNTS = re.compile(r"^vllm:num_requests_(?:running|waiting)\{.*\} (\S+)$", re.MULTILINE)
PENDING = re.compile(r"^nv_inference_pending_request_count\{.*\} (\S+)$", re.MULTILINE)
TAKEN = re.compile(r"^nv_inference_count\{.*\} (\S+)$", re.MULTILINE)
NEW_TOKENS = re.compile(r"^vllm:generation_tokens_total\{.*\} (\S+)$", re.MULTILINE)
STATES = ("queued", "prefill", "decode", "unread")
SEEN_S = 2.0
UNREAD_TOKENS = 20  # of a client that takes none of them
STORM_BURSTS = 10
STORM_GROWTH = 1.05
STORM_LONGEST_S = 300.0  # of one burst
STORM_AT_ONCE = 16
STORM_REPEATS = (10, 100, 12_500)  # of "one two "; the longest prompt has 100 kB, or 87,500 tokens
STORM_POSITIONS = 98_304
STORM_LONGEST_PAUSE_S = 0.3  # between a request and its cancel; with 0.02 most wait in tritonserver's own queue
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
    connections = [Connection(server.grpc) for _ in range(STORM_AT_ONCE)]
    memory = []
    for burst in range(STORM_BURSTS):
        began = time.perf_counter()
        turns = iter(range(count // STORM_BURSTS))
        await asyncio.gather(*(_cancelled_at_once(connection, turns) for connection in connections))
        sent_s = time.perf_counter() - began
        while pending := await asyncio.to_thread(total, server, PENDING):
            assert time.perf_counter() - began < STORM_LONGEST_S, f"{pending} requests still wait in tritonserver"
            await asyncio.sleep(0.1)
        await until_unfinished(server, 0)
        memory.append(memory_mib(server))
        print(
            f"{burst + 1}: sent in {sent_s:.1f} s, gone after {time.perf_counter() - began:.1f}: {memory[-1]}",
            flush=True,
        )
    await asyncio.gather(*(connection.close() for connection in connections))
    earlier, later = memory[: STORM_BURSTS // 2], memory[STORM_BURSTS // 2 :]
    growth = {name: round(max(one[name] for one in later) / max(one[name] for one in earlier), 4) for name in memory[0]}
    words = f"{count} cancelled, {total(server, TAKEN)} of them in the backend, none unfinished"
    return verdict(
        max(growth.values()) <= STORM_GROWTH, f"{words}; memory of the later bursts x {growth} beside the earlier"
    )


async def _cancelled_at_once(connection: Connection, turns: Iterator[int]) -> None:
    for _ in turns:
        stream = connection.open("one two " * random.choice(STORM_REPEATS), LONG)
        first = asyncio.create_task(_first(stream))
        await asyncio.sleep(STORM_LONGEST_PAUSE_S * random.random() ** 3)  # half of them below 13 %
        stream.cancel()
        await asyncio.gather(first, return_exceptions=True)


def main() -> int:
    """Exit status 0 if all leave in time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cancels", type=int, default=200)
    parser.add_argument("--storm", type=int, default=0)
    options = parser.parse_args()
    status = 0
    if options.cancels:
        with vllm_server(OPTIONS) as server:
            status = asyncio.run(cancels(server, options.cancels))
    if options.storm:
        with vllm_server({**OPTIONS, "max_model_len": str(STORM_POSITIONS)}, max_position=STORM_POSITIONS) as server:
            status = asyncio.run(storm(server, options.storm)) or status
    return status


if __name__ == "__main__":
    sys.exit(main())
