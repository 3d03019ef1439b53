"""L8: a million streamed tokens, a response each; the memory of stub and server beside that after 50,000.

tritonserver's own memory grows with the first streams and connections whatever model it serves. So the same load then
goes to a model that has nothing of this backend, and the server may grow by 2 % or by as much as it does there.
python benchmarks/soak/long_streams.py [--tokens 1000000]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from soaking import Connection, RunningServer, memory_mib, running, ticking_server, verdict

STREAMS = 16
PER_STREAM = 1000
STEP_TOKENS = 50_000
GROWTH = 1.02
PLAIN_MODEL = Path(__file__).parent / "plain_model"


def main() -> int:
    """Exit status 0 if the stub grows by 2 % at most, and the server by that or by what it does without us."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    tokens = parser.parse_args().tokens
    with ticking_server() as server:
        ours = growth(server, tokens)
    with plain_server() as server:
        plain = growth(server, tokens)
    return verdict(
        ours["stub"] <= GROWTH and ours["server"] <= max(GROWTH, plain["server"]),
        f"{tokens} tokens beside {STEP_TOKENS}: x {ours}; a model without this backend: x {plain}",
    )


@contextlib.contextmanager
def plain_server() -> Iterator[RunningServer]:
    """A tritonserver with a model that streams letters and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PLAIN_MODEL, Path(folder) / "models" / "llm")
        with running(Path(folder) / "models", Path(folder) / "log") as server:
            yield server


def growth(server: RunningServer, tokens: int) -> dict[str, float]:
    """How many times the memory of stub and server after the first step is theirs at the end."""
    memory = []
    responses = 0
    for done in range(STEP_TOKENS, tokens + 1, STEP_TOKENS):
        responses += asyncio.run(stream(server, STEP_TOKENS))
        memory.append(memory_mib(server))
        print(f"{done} tokens in {responses} responses: {memory[-1]}", flush=True)
    return {name: round(memory[-1][name] / first, 4) for name, first in memory[0].items()}


async def stream(server: RunningServer, tokens: int) -> int:
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


if __name__ == "__main__":
    sys.exit(main())
