"""1,000 requests refused by the in-flight limit while 64 streams go on: their inter-token latency beside quiet spells.

Each stream gives 20 tokens a second, as a language model may; three quiet spells alternate with three floods, which
come from a process of their own.
python benchmarks/soak/flood.py [--turns 3]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import time
from collections.abc import Sequence

from soaking import Connection, RunningServer, percentile, ticking_server, verdict

STREAMS = 64
TICK_S = 0.05
TOKENS = 1200  # a minute
QUIET_S = 5.0
REFUSED = 1000
FLOODERS = 4
REFUSAL = f"serving.max_inflight_requests = {STREAMS} requests are in flight; try again later."
OPTIONS = {"serving.max_inflight_requests": str(STREAMS), "env.TICK_S": str(TICK_S)}

Spell = tuple[float, float]  # from, to; seconds


async def streams(server: RunningServer, turns: int) -> tuple[list[list[float]], list[Spell], list[Spell], int]:
    """When each stream's responses came (s), the quiet spells, the floods, and how many requests were refused."""
    connections = [Connection(server.grpc) for _ in range(STREAMS)]
    times: list[list[float]] = [[] for _ in connections]
    running = [
        asyncio.create_task(connection.ask("hi", f'{{"max_tokens": {TOKENS}}}', at))
        for connection, at in zip(connections, times, strict=True)
    ]
    while not all(times):
        await asyncio.sleep(0.01)
    quiet: list[Spell] = []
    flooded: list[Spell] = []
    refused = 0
    for _ in range(turns):
        began = time.perf_counter()
        await asyncio.sleep(QUIET_S)
        quiet.append((began, time.perf_counter()))
        flood, count = await _flood_from_another_process(server)
        flooded.append(flood)
        refused += count
    still_running = sum(not task.done() for task in running)
    assert still_running == STREAMS, f"only {still_running} of {STREAMS} streams outlasted the floods"
    answers = await asyncio.gather(*running)
    assert {error for _, error in answers} == {None}
    await asyncio.gather(*(connection.close() for connection in connections))
    return times, quiet, flooded, refused


async def _flood_from_another_process(server: RunningServer) -> tuple[Spell, int]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--flood", server.grpc, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    began, ended, refused = output.split()
    return (float(began), float(ended)), int(refused)


async def flood(address: str) -> None:
    """Prints when it began and ended, on the clock that all processes share, and how many were refused."""

    async def one() -> int:
        connection, refused = Connection(address), 0
        for _ in range(REFUSED // FLOODERS):
            _, error = await connection.ask("hi", '{"max_tokens": 1}')
            refused += error == REFUSAL
        await connection.close()
        return refused

    began = time.perf_counter()
    refused = sum(await asyncio.gather(*(one() for _ in range(FLOODERS))))
    print(began, time.perf_counter(), refused)


def latencies_ms(times: Sequence[Sequence[float]], spells: Sequence[Spell]) -> list[float]:
    """The inter-token latencies within the spells, of all streams."""
    pairs = itertools.chain.from_iterable(itertools.pairwise(at) for at in times)
    return [1000 * (later - earlier) for earlier, later in pairs if any(a <= earlier and later <= b for a, b in spells)]


def report(name: str, times: Sequence[Sequence[float]], spells: Sequence[Spell]) -> None:
    """Prints the latencies of each spell and of all together."""
    for number, chosen in enumerate((*([spell] for spell in spells), spells)):
        gaps = latencies_ms(times, chosen)
        which = f"{name} {number + 1}" if number < len(spells) else f"{name}, all"
        took_s = sum(end - begin for begin, end in chosen)
        p50, p99 = percentile(gaps, 0.5), percentile(gaps, 0.99)
        print(f"{which}: inter-token latency p50 {p50:.1f} ms, p99 {p99:.1f} ms, {took_s:.1f} s", flush=True)


def main() -> int:
    """Exit status 0 if all were refused and every stream came to its end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--flood", metavar="HOST:PORT", help="only send the requests there")
    options = parser.parse_args()
    if options.flood:
        asyncio.run(flood(options.flood))
        return 0
    with ticking_server(OPTIONS) as server:
        times, quiet, flooded, refused = asyncio.run(streams(server, options.turns))
    report("quiet", times, quiet)
    report("flooded", times, flooded)
    asked = REFUSED * options.turns
    return verdict(refused == asked, f"{refused} of {asked} refused, {STREAMS} streams outlasted them, all complete")


if __name__ == "__main__":
    sys.exit(main())
