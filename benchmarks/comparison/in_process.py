"""AsyncLLM without a door: the load is driven in the process that holds it. Its arguments are vLLM's engine flags."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import uvloop

from comparison.load import Failure, Outcome, drive
from comparison.load_process import Job
from comparison.prompts import prompts


class _Request:
    """A ``load.Connection`` whose requests go straight to the engine."""

    def __init__(self, llm: Any, job: Job, client: int) -> None:
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        self._llm = llm
        self._prefix = f"{job.seed}-{client}-{time.monotonic_ns()}-"
        self._prompts = prompts(job.seed, job.requests)
        self._params = SamplingParams(
            temperature=0.0, max_tokens=job.max_tokens, ignore_eos=True, output_kind=RequestOutputKind.DELTA
        )

    async def ask(self, number: int) -> list[int]:
        """See ``load.Connection.ask``."""
        arrivals = []
        try:
            async for _ in self._llm.generate(self._prompts[number], self._params, f"{self._prefix}{number}"):
                arrivals.append(time.perf_counter_ns())
        except Exception as error:
            raise Failure(str(error)) from error
        return arrivals

    def close(self) -> None:
        """See ``load.Connection.close``."""


async def serve(flags: Sequence[str], out: Any) -> None:
    """Starts the engine, says so, then answers a job on each line."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.engine.async_llm import AsyncLLM

    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
    llm = AsyncLLM.from_engine_args(AsyncEngineArgs.from_cli_args(parser.parse_args(flags)))
    try:
        print("ready", file=out, flush=True)
        for line in sys.stdin:
            job = msgspec.json.decode(line, type=Job)
            outcome: Outcome = await drive([_Request(llm, job, at) for at in range(job.concurrency)], job.requests)
            print(outcome.line(), file=out, flush=True)
    finally:
        llm.shutdown()


def main() -> None:
    """What vLLM prints goes to the log; the answers have the output for themselves."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    uvloop.run(serve(sys.argv[1:], out))


if __name__ == "__main__":
    main()
