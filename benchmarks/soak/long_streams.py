"""L8: a million streamed tokens, a response each; the memory of stub and server beside that after 50,000 and 100,000.

The server's allocator fills its arenas with the first streams: about 1 MiB more comes between 50,000 and 100,000 tokens
than in all that follow. The verdict is on the growth since 50,000; that since 100,000 is printed beside it.
python benchmarks/soak/long_streams.py [--tokens 1000000]
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from soaking import Connection, RunningServer, memory_mib, ticking_server, verdict

STREAMS = 16
PER_STREAM = 1000
STEP_TOKENS = 50_000
EARLY_TOKENS = 50_000
PLATEAU_TOKENS = 100_000
GROWTH = 1.02


async def run(server: RunningServer, tokens: int) -> int:
    """Streams so many tokens; every client reads. The number of responses."""
    turns = iter(range(tokens // PER_STREAM))

    async def one() -> int:
        connection, total = Connection(server.grpc), 0
        for _ in turns:
            responses, error = await connection.ask("hi", f'{{"max_tokens": {PER_STREAM}}}')
            assert error is None, error
            assert 0 < responses <= PER_STREAM
            total += responses
        await connection.close()
        return total

    return sum(await asyncio.gather(*(one() for _ in range(STREAMS))))


def main() -> int:
    """Exit status 0 if the memory grows by 2 % at most."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    tokens = parser.parse_args().tokens
    memory: dict[int, dict[str, float]] = {}
    with ticking_server() as server:
        responses = done = 0
        while done < tokens:
            step = min(STEP_TOKENS, tokens - done)
            responses += asyncio.run(run(server, step))
            done += step
            memory[done] = memory_mib(server)
            print(f"{done} tokens in {responses} responses: {memory[done]}", flush=True)
    early, growth = (
        {name: round(memory[tokens][name] / memory[start][name], 4) for name in memory[start]}
        for start in (EARLY_TOKENS, PLATEAU_TOKENS)
    )
    return verdict(
        max(early.values()) <= GROWTH,
        f"{tokens} tokens: {memory[tokens]} MiB, x {early} since {EARLY_TOKENS}, x {growth} since {PLATEAU_TOKENS}",
    )


if __name__ == "__main__":
    sys.exit(main())
