"""What the way to the engine costs: vLLM's AsyncLLM in-process, vLLM's own server, and this backend through Triton.

All have the same tiny checkpoint and engine flags, are up at the same time, and take turns in an order that rotates
from round to round; a round's prompts are the same for all, and new to all. The first turn of each warms it up and
isn't counted. Raw figures go to NAME.csv, medians and ratios to NAME.md, plots to NAME-SPECULATION.png. A measurement
that was interrupted goes on with --continue: what NAME.csv has isn't measured again.

    python benchmarks/serving_comparison.py [--concurrency 1,8,32,64,128] [--rounds 3] [--output FOLDER/NAME]

Any other model of a running Triton that has the tensors text_input, sampling_parameters and stream is measured beside
them: --other-model NAME --other-grpc HOST:PORT [--other-pid PID of its tritonserver].
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import psutil  # noqa: E402
from comparison import figures  # noqa: E402
from comparison.contestants import Contestant, InProcess, OpenAIServer, Run, TritonDoor, doors, triton  # noqa: E402
from comparison.figures import Row  # noqa: E402
from comparison.line_process import LineProcess  # noqa: E402
from tqdm import tqdm  # noqa: E402

import tiny_checkpoint  # noqa: E402
from model_repository import NGRAM, small_engine  # noqa: E402

SPECULATION: Mapping[str, Mapping[str, str]] = {"none": {}, "ngram": NGRAM}
DOORS = ("in-process", "openai", "triton")
SEED = 20261129
_LOG_SHOWN = 4000  # characters
_MOST_ANSWERS = 16  # of one stream: a single one is slow, and a few answers tell its latency
WARM_UP = Run(concurrency=8, requests=16, max_tokens=32, seed=SEED - 1)


def main() -> int:
    """Measures, and writes the figures; raw ones after each run, so that a broken measurement leaves what it has."""
    options = _options()
    command = shlex.join(["python", "benchmarks/serving_comparison.py", *sys.argv[1:]])
    rows, commands = _so_far(options)
    if command not in commands:
        commands.append(command)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(_Load()) as load:
        checkpoint = _checkpoint(Path(folder) / "checkpoint", options.max_model_len)
        for speculation in options.speculation:
            plan = _plan(speculation, options, rows)
            if not plan:
                continue
            parameters = _parameters(checkpoint, speculation, options)
            logs = Path(folder) / speculation
            logs.mkdir()
            with _contestants(parameters, logs, load.process, options) as contestants:
                try:
                    for turn in _turns(contestants, plan, speculation, options):
                        rows.append(turn)
                        figures.write_csv(rows, _csv(options.output), commands)
                finally:
                    _report(rows, options.output, commands)
    print(figures.markdown(rows, commands))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers, names = _list_of(int), _list_of(str)
    parser.add_argument("--concurrency", type=numbers, default=[1, 8, 32, 64, 128], metavar="N,…")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--speculation", type=names, default=list(SPECULATION), metavar="none,ngram")
    parser.add_argument("--doors", type=names, default=list(DOORS), metavar="in-process,openai,triton")
    parser.add_argument("--max-tokens", type=numbers, default=[128], metavar="N,…", help="tokens of each answer")
    parser.add_argument("--tokens", type=int, default=8192, help="tokens of a run, within 2 to 16 answers a stream")
    parser.add_argument("--stream-interval", type=int, default=1, help="vLLM's flag of that name, for all")
    parser.add_argument("--max-model-len", type=int, default=512)
    parser.add_argument("--parameter", action="append", default=[], metavar="KEY=VALUE", help="another of config.pbtxt")
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another Triton with this parameter of config.pbtxt, measured beside the first",
    )
    parser.add_argument("--other-model", help="a model of a running Triton")
    parser.add_argument("--other-grpc", default="127.0.0.1:8001", metavar="HOST:PORT")
    parser.add_argument("--other-pid", type=int)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "serving")
    parser.add_argument("--continue", action="store_true", dest="goes_on", help="keep what --output has, add the rest")
    return parser.parse_args()


def _list_of(kind: type) -> object:
    return lambda text: [kind(part) for part in text.split(",")]


class _Load:
    """The load generator's process, for as long as the measurement."""

    def __init__(self) -> None:
        self.process = LineProcess("load_process")

    def close(self) -> None:
        self.process.stop()


def _checkpoint(folder: Path, max_model_len: int) -> Path:
    # In a process of its own: what that imports isn't measured with the rest.
    # A token without text is no response of ours, but one of vLLM's server: each has some.
    made = f"tiny_checkpoint.make(pathlib.Path({str(folder)!r}), {max_model_len}, always_text=True)"
    code = f"import tiny_checkpoint, pathlib; {made}"
    subprocess.run([sys.executable, "-c", code], cwd=Path(tiny_checkpoint.__file__).parent, check=True)
    return folder


def _parameters(checkpoint: Path, speculation: str, options: argparse.Namespace) -> dict[str, str]:
    parameters = small_engine(
        checkpoint, max_model_len=str(options.max_model_len), max_num_seqs=str(max(options.concurrency))
    )
    if options.stream_interval > 1:
        parameters["stream_interval"] = str(options.stream_interval)
    further = dict(item.split("=", 1) for item in options.parameter)
    return {**parameters, **SPECULATION[speculation], **further}


@contextlib.contextmanager
def _contestants(
    parameters: Mapping[str, str], logs: Path, load: LineProcess, options: argparse.Namespace
) -> Iterator[list[Contestant]]:
    """All that take part, ready; started one after the other, so that none is starved."""
    found: list[Contestant] = []
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((logs / "vllm.log").open("w"))
        stack.push(functools.partial(_show_log, logs / "vllm.log"))
        if "in-process" in options.doors:
            plain = InProcess(parameters, log)
            stack.callback(plain.stop)
            plain.wait_ready()
            found.append(plain)
        if "openai" in options.doors:
            openai = OpenAIServer(parameters, log, load)
            stack.callback(openai.stop)
            openai.wait_ready()
            found.append(openai)
        if "triton" in options.doors:
            server, has_unary = stack.enter_context(triton(logs, parameters))
            found += doors(server, load, has_unary)
        for number, variant in enumerate(options.also):
            key, value = variant.split("=", 1)
            folder = logs / f"also-{number}"
            folder.mkdir()
            server, _ = stack.enter_context(triton(folder, {**parameters, key: value}))
            found += doors(server, load, unary=False, named=f", {variant}")
        if options.other_model:
            root = psutil.Process(options.other_pid) if options.other_pid else None
            port = int(options.other_grpc.rsplit(":", 1)[1])
            name = options.other_model
            found.append(TritonDoor(f"Triton model {name}", "grpc", "", port, name, load, root, engine_model=name))
        yield found


def _show_log(log: Path, kind: type[BaseException] | None, *_: object) -> None:
    """What vLLM said last, with whatever went wrong."""
    if kind is not None and kind is not KeyboardInterrupt:
        print(log.read_text(errors="replace")[-_LOG_SHOWN:], file=sys.stderr)


Turn = tuple[int, int, int]  # round, tokens of each answer, streams


def _so_far(options: argparse.Namespace) -> tuple[list[Row], list[str]]:
    """What an interrupted measurement left, and the commands that made it."""
    if not options.goes_on or not _csv(options.output).exists():
        return [], []
    rows, commands = figures.read_csv(_csv(options.output))
    return figures.without_a_broken_turn(rows), commands


def _plan(speculation: str, options: argparse.Namespace, rows: Sequence[Row]) -> list[Turn]:
    measured = {
        (row.round, row.max_tokens, row.concurrency)
        for row in rows
        if (row.speculation, row.stream_interval) == (speculation, options.stream_interval)
    }
    turns = product(range(options.rounds), options.max_tokens, options.concurrency)
    return [turn for turn in turns if turn not in measured]


def _turns(
    contestants: Sequence[Contestant], plan: Sequence[Turn], speculation: str, options: argparse.Namespace
) -> Iterator[Row]:
    for contestant in contestants:
        outcome = contestant.run(WARM_UP)
        if outcome.failed:
            raise RuntimeError(f"{contestant.name}: {outcome.failed} requests of the warm-up failed: {outcome.failure}")
    with tqdm(total=len(plan) * len(contestants), desc=f"speculation {speculation}") as progress:
        for number, max_tokens, streams in plan:
            requests = max(2 * streams, min(math.ceil(options.tokens / max_tokens), _MOST_ANSWERS * streams))
            run = Run(streams, requests, max_tokens, SEED + 1000 * number + streams)
            at = number % len(contestants)
            for contestant in [*contestants[at:], *contestants[:at]]:
                yield _measure(contestant, contestants, run, number, speculation, options.stream_interval)
                progress.update()


def _measure(
    contestant: Contestant, all_of_them: Sequence[Contestant], run: Run, number: int, speculation: str, interval: int
) -> Row:
    # Doors of one server are one; those of the server whose turn it is aren't idle.
    others = list({other.root: other for other in all_of_them if other.root != contestant.root}.values())
    idle_before = _seconds(others)
    before = contestant.use()
    outcome = contestant.run(run)
    after = contestant.use()
    idle_s = _seconds(others) - idle_before
    tokens = (run.requests - outcome.failed) * run.max_tokens or math.nan
    used = after.since(before)

    def cpu_us(part: str) -> float:
        return used[part] / tokens * 1e6 if part in used else math.nan

    return Row(
        round=number,
        contestant=contestant.name,
        speculation=speculation,
        concurrency=run.concurrency,
        requests=run.requests,
        failed=outcome.failed,
        max_tokens=run.max_tokens,
        stream_interval=interval,
        tokens_per_s=tokens / outcome.duration_s,
        responses_per_token=outcome.responses / tokens,
        ttft_p50_ms=outcome.ttft_p50_ms,
        ttft_p99_ms=outcome.ttft_p99_ms,
        gap_p50_ms=outcome.gap_p50_ms,
        gap_p99_ms=outcome.gap_p99_ms,
        cpu_us_frontend=cpu_us("frontend"),
        cpu_us_tritonserver=cpu_us("tritonserver"),
        cpu_us_facade=cpu_us("facade"),
        cpu_us_engine=cpu_us("engine"),
        cpu_us_client=outcome.client_cpu_s / tokens * 1e6,
        rss_mb_frontend=after.rss_mb.get("frontend", math.nan),
        rss_mb_tritonserver=after.rss_mb.get("tritonserver", math.nan),
        rss_mb_engine=after.rss_mb.get("engine", math.nan),
        idle_share=idle_s / outcome.duration_s,
    )


def _seconds(contestants: Sequence[Contestant]) -> float:
    return sum(sum(contestant.use().cpu_s.values()) for contestant in contestants)


def _csv(output: Path) -> Path:
    return output.with_name(output.name + ".csv")


def _report(rows: Sequence[Row], output: Path, commands: Sequence[str]) -> None:
    if rows:
        output.with_name(output.name + ".md").write_text(figures.markdown(rows, commands))
        figures.plot(rows, output)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted: the same command with --continue measures the rest.")
