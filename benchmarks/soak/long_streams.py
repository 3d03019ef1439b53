"""L8: a million streamed tokens, a response each; the memory of stub and server beside that after 50,000.

The stub may grow by 2 %. tritonserver's own memory grows by some MiB whatever model it serves, in steps, sooner in one
run than in another. So it is held to what it has in the end after the same load on a model that has nothing of this
backend: 10 % more are 6 bytes for a token.
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
STUB_GROWTH = 1.02
BESIDE_PLAIN = 1.10
PLAIN_MODEL = Path(__file__).parent / "plain_model"


def main() -> int:
    """Exit status 0 if the stub's growth, and the server's memory beside a plain model, are within their limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    tokens = parser.parse_args().tokens
    if tokens < 2 * STEP_TOKENS:
        parser.error(f"--tokens: at least {2 * STEP_TOKENS}")
    with ticking_server() as server:
        ours = measured(server, tokens)
    with plain_server() as server:
        plain = measured(server, tokens)
    growth, growth_of_plain = (
        {name: round(memory[-1][name] / first, 4) for name, first in memory[0].items()} for memory in (ours, plain)
    )
    beside_plain = round(ours[-1]["server"] / plain[-1]["server"], 4)
    return verdict(
        growth["stub"] <= STUB_GROWTH and beside_plain <= BESIDE_PLAIN,
        f"memory after {tokens} tokens x {growth} since {STEP_TOKENS}; of a model without this backend x "
        f"{growth_of_plain}; the server x {beside_plain} beside that",
    )


@contextlib.contextmanager
def plain_server() -> Iterator[RunningServer]:
    """A tritonserver with a model that streams letters and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PLAIN_MODEL, Path(folder) / "models" / "llm")
        with running(Path(folder) / "models", Path(folder) / "log") as server:
            yield server


def measured(server: RunningServer, tokens: int) -> list[dict[str, float]]:
    """The memory of stub and server after each step, MiB."""
    memory = []
    responses = 0
    for done in range(STEP_TOKENS, tokens + 1, STEP_TOKENS):
        responses += asyncio.run(stream(server, STEP_TOKENS))
        memory.append(memory_mib(server))
        print(f"{done} tokens in {responses} responses: {memory[-1]}", flush=True)
    return memory


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
