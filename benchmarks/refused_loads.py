"""How long a wrong speculation setting takes to fail its load, and what it says, through a real tritonserver.

python benchmarks/refused_loads.py [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from speculation_report import speculation  # noqa: E402
from tqdm import tqdm  # noqa: E402

from model_repository import small_engine, write_model  # noqa: E402
from running_server import running  # noqa: E402
from server.client import post  # noqa: E402
from trained_checkpoints import trained_checkpoints  # noqa: E402

METHODS = ("ngram", "suffix", "eagle", "eagle3", "medusa", "mtp")
PREFIX = "speculative_config."
NUMBER = PREFIX + "num_speculative_tokens"


def main() -> int:
    """Exit status 0 only if every load failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    checkpoints = trained_checkpoints()
    rows = ["| setting | seconds | message |", "|---|---|---|"]
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        repository.mkdir()
        cases = list(settings(checkpoints, Path(folder)))
        with running(repository, Path(folder) / "log", ["--model-control-mode=explicit"]) as server:
            for number, (what, parameters) in enumerate(tqdm(cases)):
                write_model(repository, f"m{number}", {**small_engine(checkpoints / "target"), **parameters})
                began = time.monotonic()
                status, body = post(server, f"repository/models/m{number}/load")
                seconds = time.monotonic() - began
                refused += status == 400
                message = (
                    re.sub(r"\s+", " ", body.get("error", f"status {status}"))
                    .replace(str(checkpoints), "…")
                    .replace(folder, "…")
                )
                rows.append(f"| {what} | {seconds:.1f} | {message.replace('|', chr(92) + '|')} |")
    table = "\n".join(rows) + "\n"
    print(table)
    if options.output:
        options.output.write_text(table)
    return 0 if refused == len(cases) else 1


def settings(checkpoints: Path, scratch: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """What is wrong, and the parameters."""
    for method in METHODS:
        good = dict(speculation(method, checkpoints))
        if method == "mtp":
            good["model"] = str(checkpoints / "mtp_target")
        if method != "suffix":
            yield f"`{method}` without a number of tokens", {key: good[key] for key in good if key != NUMBER}
        for value in ("0", "-1", "3.0", "three"):
            yield f"`{method}`, number of tokens `{value}`", {**good, NUMBER: value}
    ngram, eagle = dict(speculation("ngram", checkpoints)), dict(speculation("eagle", checkpoints))
    yield "no method", {NUMBER: "3"}
    yield "an unknown key", {**ngram, PREFIX + "tokens": "3"}
    yield "a misspelt key", {**ngram, PREFIX + "promt_lookup_max": "3"}
    yield "a sampling key", {**ngram, PREFIX + "temperature": "0"}
    yield "another method's key", {**eagle, PREFIX + "prompt_lookup_max": "3"}
    for name in ("n-gram", "ngrams", "[ngram]", "EAGLE3"):
        yield f"method `{name}`", {**ngram, PREFIX + "method": name}
    for text in (
        '{"method": "ngram", "num_speculative_tokens": True}',
        "{'method': 'ngram'}",
        '{"method": "ngram",}',
        "",
        "${SPECULATION}",
    ):
        yield f"JSON `{text}`", {"speculative_config": text}
    yield "JSON and flat keys", {**ngram, "speculative_config": '{"method": "ngram"}'}
    yield "minimum above maximum", {**ngram, PREFIX + "prompt_lookup_min": "5"}
    yield "`ngram` with asynchronous scheduling", {**ngram, "async_scheduling": "true"}
    yield "a draft for `ngram`", {**ngram, PREFIX + "model": str(checkpoints / "eagle")}
    yield "`eagle` without a draft", {key: eagle[key] for key in eagle if key != PREFIX + "model"}
    yield "a draft that is not there", {**eagle, PREFIX + "model": "./not/there"}
    yield "a draft folder without a config", {**eagle, PREFIX + "model": str(checkpoints)}
    for name, value in (("hidden_size", 4096), ("vocab_size", 32000)):
        foreign = scratch / name
        foreign.mkdir()
        config = json.loads((checkpoints / "eagle" / "config.json").read_text())
        (foreign / "config.json").write_text(json.dumps({**config, name: value}))
        yield f"a draft of another {name}", {**eagle, PREFIX + "model": str(foreign)}


if __name__ == "__main__":
    sys.exit(main())
