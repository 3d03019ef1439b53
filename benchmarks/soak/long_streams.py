"""L8: a million streamed tokens, a response each; the memory of stub and server beside that after 50,000.

tritonserver's own memory grows with its first streams and connections whatever model it serves, by more in one run than
in another. So it is held to two other things: it is no larger in the end than under the same load on a model that has
nothing of this backend, and it doesn't grow in the second half.
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
    """Exit status 0 if at most 2 %: the stub's growth, the server's in the second half and beside a plain model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    tokens = parser.parse_args().tokens
    if tokens < 4 * STEP_TOKENS:
        parser.error(f"--tokens: at least {4 * STEP_TOKENS}, to have a second half")
    with ticking_server() as server:
        ours = measured(server, tokens)
    with plain_server() as server:
        plain = measured(server, tokens)
    since_first, since_half = (
        {name: round(ours[-1][name] / ours[step][name], 4) for name in ours[0]} for step in (0, len(ours) // 2 - 1)
    )
    beside_plain = round(ours[-1]["server"] / plain[-1]["server"], 4)
    return verdict(
        max(since_first["stub"], since_half["server"], beside_plain) <= GROWTH,
        f"memory after {tokens} tokens x {since_first} since {STEP_TOKENS}, x {since_half} since the half; "
        f"the server x {beside_plain} beside a model without this backend",
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
