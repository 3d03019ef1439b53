"""NVIDIA's perf_analyzer against the decoupled model, its figures beside those of our own load generator.

    python benchmarks/perf_analyzer_report.py --grpc localhost:8001 [--model llm] [--concurrency 1,8,32,64]

drives a running server; without --grpc one is started with the tiny checkpoint of the tests. The inputs are
benchmarks/perf_analyzer/inputs.json: 32 prompts, answers of 64 tokens. Anything invalid gives exit status 1.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from comparison import perf_analyzer  # noqa: E402
from comparison.line_process import LineProcess  # noqa: E402
from comparison.load import Outcome  # noqa: E402
from comparison.load_process import Job  # noqa: E402
from comparison.perf_analyzer import Analysis  # noqa: E402
from tqdm import tqdm  # noqa: E402

import tiny_checkpoint  # noqa: E402
from model_repository import small_engine, write_model  # noqa: E402
from running_server import running  # noqa: E402

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rbln-vllm-backend" / "perf_analyzer"
MAX_TOKENS = 64  # as in inputs.json
SEED = 20261130
_HEAD = (
    "| streams | load generator | requests | failed | responses/s | responses per token | TTFT p50, p99 (ms) "
    "| gap p50, p99 (ms) |\n|---|---|---|---|---|---|---|---|"
)


def main() -> int:
    """Prints the table, and writes it where that is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grpc", help="host:port of a running server")
    parser.add_argument("--model", default="llm")
    parser.add_argument("--concurrency", default="1,8,32,64")
    parser.add_argument("--output", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    program = perf_analyzer.command(CACHE)
    streams = [int(number) for number in options.concurrency.split(",")]
    lines, failed = [_HEAD], 0
    with tempfile.TemporaryDirectory() as folder, _server(options.grpc, Path(folder), max(streams)) as address:
        load = LineProcess("load_process")
        for number in tqdm(streams):
            requests = max(32, 2 * number)
            theirs = perf_analyzer.run(program, Analysis(options.model, address, number, requests), Path(folder))
            host, port = address.rsplit(":", 1)
            ours = load.run(
                Job("grpc", host, int(port), options.model, "", number, requests, MAX_TOKENS, SEED + number)
            )
            lines += [_line(number, "perf_analyzer", theirs), _line(number, "serving_comparison", ours)]
            failed += theirs.failed + ours.failed
        load.stop()
    command = shlex.join(["python", "benchmarks/perf_analyzer_report.py", *sys.argv[1:]])
    table = f"Made by `{command}`.\n\n" + "\n".join(lines) + "\n"
    print(table)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(table)
    return 1 if failed else 0


@contextlib.contextmanager
def _server(grpc: str | None, folder: Path, streams: int) -> Iterator[str]:
    if grpc is not None:
        yield grpc.replace("localhost", "127.0.0.1")
        return
    checkpoint = tiny_checkpoint.make(folder / "checkpoint", always_text=True)
    write_model(folder / "models", "llm", small_engine(checkpoint, max_num_seqs=str(streams)))
    with running(folder / "models", folder / "tritonserver.log", own_session=False) as server:
        yield server.grpc.replace("localhost", "127.0.0.1")


def _line(streams: int, name: str, outcome: Outcome) -> str:
    tokens = (outcome.requests - outcome.failed) * MAX_TOKENS or 1
    cells = [
        str(streams),
        name,
        str(outcome.requests),
        str(outcome.failed),
        f"{outcome.responses / outcome.duration_s:.0f}",
        f"{outcome.responses / tokens:.2f}",
        f"{outcome.ttft_p50_ms:.1f}, {outcome.ttft_p99_ms:.1f}",
        f"{outcome.gap_p50_ms:.2f}, {outcome.gap_p99_ms:.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
