"""Tokens a second with and without speculation, through a real tritonserver, on the demo model.

Two kinds of work, one that quotes its input and one that writes freely, at several numbers of streams. The engines take
turns, one loaded at a time, since idle engines cost time too; the figures are medians over the rounds.

    python benchmarks/speculation_speed.py [--rounds 3] [--streams 1,8] [--output docs/speculation-speed.md]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from tqdm import tqdm  # noqa: E402

from model_repository import small_engine, write_model  # noqa: E402
from rbln_vllm_backend.demo_model import DEFAULT_FOLDER  # noqa: E402
from running_server import RunningServer, running  # noqa: E402
from server.client import Answer, ask_all, post  # noqa: E402

SAMPLING = {"temperature": 0.0, "max_tokens": 96, "ignore_eos": True}
METHODS = {
    "none": {},
    "ngram": {
        "speculative_config.method": "ngram",
        "speculative_config.num_speculative_tokens": "5",
        "speculative_config.prompt_lookup_min": "2",
        "speculative_config.prompt_lookup_max": "5",
    },
    "suffix": {"speculative_config.method": "suffix"},
}
PAGE = """# Tokens a second with speculation

Written by `make speculation-speed`: the demo model (SmolLM2-135M-Instruct, float32) on {cores} CPU cores behind
Triton, all streams together, {tokens} new tokens each, medians of {rounds} rounds; engines take turns in one run.
The more streams, the less room a pass has for drafted tokens: measure at your own number.

{table}"""
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
PASSAGE = (
    "The old lighthouse keeper, Tomas, climbed the one hundred and twelve steps every evening at dusk. He carried a "
    "lantern, a flask of tea, and a small notebook in which he wrote the names of the ships that passed. On the night "
    "of the great storm he counted seven ships, and the last of them, a schooner called the Merry Anne, came so close "
    "to the rocks that he could hear the captain shouting orders to the crew. Tomas rang the bell until his arms "
    "ached, and the schooner turned away in time. In the morning he found a crate of oranges on the beach, with a "
    "note that said: for the keeper of the light, with thanks."
)
WORK = {
    "quoting": CHAT.format("Repeat the following text exactly.\n\n" + PASSAGE),
    "free text": CHAT.format("Write a short story about a lighthouse keeper and a storm."),
}


@dataclass(frozen=True)
class Run:
    """One method at one number of streams on one kind of work."""

    method: str
    work: str
    streams: int
    tokens_per_s: float
    drafted: int
    accepted: int


def main() -> int:
    """Prints the table, and writes it where that is asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", default="1,8")
    parser.add_argument("--output", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    streams = [int(number) for number in options.streams.split(",")]
    methods = [name for name in METHODS if name != "suffix" or find_spec("arctic_inference")]
    runs: list[Run] = []
    with tempfile.TemporaryDirectory() as folder:
        for method in methods:
            engine = small_engine(DEFAULT_FOLDER, max_num_seqs=str(max(streams)))
            write_model(Path(folder) / "models", method, {**engine, **METHODS[method]})
        with running(Path(folder) / "models", Path(folder) / "log", ["--model-control-mode=explicit"]) as server:
            for _, method in tqdm([(turn, method) for turn in range(options.rounds) for method in methods]):
                runs += measure(server, method, streams)
    table = report(runs, methods, streams)
    print(table)
    if options.output:
        page = PAGE.format(cores=os.cpu_count(), tokens=SAMPLING["max_tokens"], rounds=options.rounds, table=table)
        options.output.write_text(page)
    return 0


def measure(server: RunningServer, method: str, streams: Sequence[int]) -> list[Run]:
    """Loads the method's model, runs every kind of work at every number of streams, and unloads it."""
    unloaded = f"successfully unloaded '{method}'"
    before = server.log_text().count(unloaded)
    post(server, f"repository/models/{method}/load")
    runs = [once(server, method, work, number) for number in streams for work in WORK]
    post(server, f"repository/models/{method}/unload")
    # The unload is asynchronous, and the old engine must not compete with the next.
    deadline = time.monotonic() + 60
    while server.log_text().count(unloaded) == before:
        assert time.monotonic() < deadline, "the model was never unloaded"
        time.sleep(0.1)
    return runs


def once(server: RunningServer, method: str, work: str, streams: int) -> Run:
    """All streams at once, each with a first word of its own, so that no prefix is shared."""
    prompts = [WORK[work].replace("<|im_start|>user\n", f"<|im_start|>user\n{number}. ") for number in range(streams)]
    began = time.monotonic()
    answers = ask_all(server, prompts, SAMPLING, model=method, switches=["return_speculation"])
    took = time.monotonic() - began
    tokens = sum(sum(answer.tokens) for answer in answers)
    return Run(method, work, streams, tokens / took, _total(answers, "draft"), _total(answers, "accepted"))


def _total(answers: Sequence[Answer], which: str) -> int:
    return sum(int(answer.last[f"num_{which}_tokens"][0]) for answer in answers)


def report(runs: Sequence[Run], methods: Sequence[str], streams: Sequence[int]) -> str:
    """A Markdown table: a row for each kind of work and number of streams, a column for each method."""
    head = (
        "| work | streams | " + " | ".join(f"`{method}`" if method != "none" else method for method in methods) + " |"
    )
    lines = [head, "|---|---|" + "---|" * len(methods)]
    for work in WORK:
        for number in streams:
            cells = [_cell(runs, method, work, number) for method in methods]
            lines.append(f"| {work} | {number} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(runs: Sequence[Run], method: str, work: str, streams: int) -> str:
    def of(name: str) -> list[Run]:
        return [run for run in runs if (run.method, run.work, run.streams) == (name, work, streams)]

    speed, plain = (statistics.median(run.tokens_per_s for run in of(name)) for name in (method, "none"))
    if method == "none":
        return f"{speed:.1f} tokens/s"
    last = of(method)[-1]
    return f"{speed:.1f} ({speed / plain:.2f} times; {last.accepted} of {last.drafted} drafts accepted)"


if __name__ == "__main__":
    sys.exit(main())
