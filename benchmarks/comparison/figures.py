"""Figures out of runs: a row of the raw CSV for each run, medians and ratios in Markdown, plots."""

from __future__ import annotations

import csv
import math
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import get_type_hints

REFERENCE = "vLLM's OpenAI server"
IN_PROCESS = "AsyncLLM in-process"


@dataclass(frozen=True)
class Row:
    """One run. ``cpu_us_…`` are microseconds of processor time per token, by part; NaN where a part isn't known.

    ``idle_share`` is what all other contestants used meanwhile, as a share of one processor.
    """

    round: int
    contestant: str
    speculation: str
    concurrency: int
    requests: int
    failed: int
    max_tokens: int
    stream_interval: int
    tokens_per_s: float
    responses_per_token: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    gap_p50_ms: float
    gap_p99_ms: float
    cpu_us_frontend: float
    cpu_us_tritonserver: float
    cpu_us_facade: float
    cpu_us_engine: float
    cpu_us_client: float
    rss_mb_frontend: float
    rss_mb_tritonserver: float
    rss_mb_engine: float
    idle_share: float


_COMMENT = "# "


def write_csv(rows: Sequence[Row], path: Path, commands: Sequence[str]) -> None:
    """The raw figures; the first lines are the commands that made them."""
    with path.open("w", newline="") as file:
        file.writelines(f"{_COMMENT}{command}\n" for command in commands)
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {key: round(value, 3) if isinstance(value, float) else value for key, value in asdict(row).items()}
            )


def read_csv(path: Path) -> tuple[list[Row], list[str]]:
    """The rows and the commands of ``write_csv``."""
    lines = path.read_text().splitlines()
    commands = [line.removeprefix(_COMMENT) for line in lines if line.startswith(_COMMENT)]
    kinds = get_type_hints(Row)
    table = csv.DictReader(line for line in lines if not line.startswith(_COMMENT))
    return [Row(**{name: kinds[name](text) for name, text in line.items()}) for line in table], commands


def without_a_broken_turn(rows: Sequence[Row]) -> list[Row]:
    """The rows but for the last turn's, where an interruption left fewer contestants there than in the first turn."""
    turns = [(row.round, row.speculation, row.concurrency, row.max_tokens, row.stream_interval) for row in rows]
    if not rows or turns.count(turns[-1]) == turns.count(turns[0]):
        return list(rows)
    return [row for row, turn in zip(rows, turns, strict=True) if turn != turns[-1]]


@dataclass(frozen=True)
class _Group:
    """All rounds of one contestant at one setting."""

    rows: Sequence[Row]

    def median(self, name: str) -> float:
        return statistics.median(getattr(row, name) for row in self.rows)

    def spread(self, name: str) -> str:
        values = [getattr(row, name) for row in self.rows]
        return f"{min(values):.0f}–{max(values):.0f}"


def markdown(rows: Sequence[Row], commands: Sequence[str]) -> str:
    """Tables of medians over the rounds; the ratio is the median of the rounds' own ratios to vLLM's server."""
    rounds = len({row.round for row in rows})
    made_by = ", ".join(f"`{command}`" for command in commands)
    lines = [f"Medians of {rounds} alternating rounds; in brackets the lowest and the highest. Made by {made_by}.", ""]
    for speculation in dict.fromkeys(row.speculation for row in rows):
        chosen = [row for row in rows if row.speculation == speculation]
        lines += [f"### Speculation: {speculation}", "", *_table(chosen), *_comparison(chosen)]
    return "\n".join(lines)


_HEAD = (
    "| streams | tokens per answer | door | tokens/s "
    "| of vLLM's server | TTFT p50, p99 (ms) | gap p50, p99 (ms) | responses per token "
    "| CPU µs per token: frontend | tritonserver | facade | engine | client | RSS MB: frontend, tritonserver |"
)


def _table(rows: Sequence[Row]) -> list[str]:
    lines = [_HEAD, "|" + "---|" * 14]
    for setting in sorted({(row.concurrency, row.max_tokens) for row in rows}):
        at = [row for row in rows if (row.concurrency, row.max_tokens) == setting]
        # In the order of the first round, whatever a later one began with.
        for contestant in dict.fromkeys(row.contestant for row in sorted(at, key=lambda row: row.round)):
            group = _Group([row for row in at if row.contestant == contestant])
            lines.append(_line(setting, contestant, group, ratio(at, contestant)))
    return [*lines, ""]


def _line(setting: tuple[int, int], contestant: str, group: _Group, to_reference: float | None) -> str:
    median = group.median
    failed = sum(row.failed for row in group.rows)
    cpu = [f"{median(f'cpu_us_{part}'):.0f}" for part in ("frontend", "tritonserver", "facade", "engine", "client")]
    cells = [
        *map(str, setting),
        contestant + (f" (**{failed} failed**)" if failed else ""),
        f"{median('tokens_per_s'):.0f} ({group.spread('tokens_per_s')})",
        "–" if to_reference is None else f"{to_reference:.2f}",
        f"{median('ttft_p50_ms'):.1f}, {median('ttft_p99_ms'):.1f}",
        f"{median('gap_p50_ms'):.2f}, {median('gap_p99_ms'):.2f}",
        f"{median('responses_per_token'):.2f}",
        *cpu,
        f"{median('rss_mb_frontend'):.0f}, {median('rss_mb_tritonserver'):.0f}",
    ]
    return "| " + " | ".join(cells).replace("nan", "–") + " |"


def _share(value: float, of: float) -> float:
    return value / of if of else math.nan


def _server_cpu_us(row: Row) -> float:
    """Of all processes between the client and the engine."""
    parts = (row.cpu_us_frontend, row.cpu_us_tritonserver, row.cpu_us_facade)
    return sum(part for part in parts if not math.isnan(part))


@dataclass(frozen=True)
class _Comparison:
    reference: str
    figure: Callable[[Row], float]
    compare: Callable[[float, float], float]
    form: str


_COMPARISONS: Mapping[str, _Comparison] = {
    "tokens/s": _Comparison(REFERENCE, lambda row: row.tokens_per_s, _share, ".2f"),
    "CPU: frontend": _Comparison(REFERENCE, lambda row: row.cpu_us_frontend, _share, ".2f"),
    "all but the engine": _Comparison(REFERENCE, _server_cpu_us, _share, ".2f"),
    "TTFT p50, ms more": _Comparison(REFERENCE, lambda row: row.ttft_p50_ms, operator.sub, "+.2f"),
    "gap p50, ms more": _Comparison(REFERENCE, lambda row: row.gap_p50_ms, operator.sub, "+.2f"),
    "than in-process": _Comparison(IN_PROCESS, lambda row: row.gap_p50_ms, operator.sub, "+.2f"),
}


def ratio(rows: Sequence[Row], contestant: str) -> float | None:
    """The median over the rounds of its tokens/s to the reference's in the same round."""
    return _against(rows, contestant, _COMPARISONS["tokens/s"])


def _against(rows: Sequence[Row], contestant: str, comparison: _Comparison) -> float | None:
    """The median over the rounds of a figure held against the reference's in the same round."""
    figure = comparison.figure
    theirs = {row.round: figure(row) for row in rows if row.contestant == comparison.reference}
    ours = [row for row in rows if row.contestant == contestant and row.round in theirs]
    return statistics.median(comparison.compare(figure(row), theirs[row.round]) for row in ours) if ours else None


def _comparison(rows: Sequence[Row]) -> list[str]:
    """Each figure beside vLLM's own server, or the engine in-process, in the same round; none where it took no part."""
    compared = [name for name in dict.fromkeys(row.contestant for row in rows) if name not in (REFERENCE, IN_PROCESS)]
    lines = []
    for setting in sorted({(row.concurrency, row.max_tokens) for row in rows}):
        at = [row for row in rows if (row.concurrency, row.max_tokens) == setting]
        for contestant in compared:
            found = [(one, _against(at, contestant, one)) for one in _COMPARISONS.values()]
            cells = ["–" if value is None else f"{value:{one.form}}" for one, value in found]
            if any(value is not None for _, value in found):
                lines.append("| " + " | ".join([*map(str, setting), contestant, *cells]).replace("nan", "–") + " |")
    if not lines:
        return []
    head = "| streams | tokens per answer | door | " + " | ".join(_COMPARISONS) + " |"
    said = "Beside vLLM's OpenAI server in the same round, ratios where no unit is named:"
    return [said, "", head, "|" + "---|" * (3 + len(_COMPARISONS)), *lines, ""]


_PANELS = {
    "tokens_per_s": "tokens/s",
    "cpu_us_frontend": "CPU of the frontend, µs per token",
    "ttft_p50_ms": "TTFT p50, ms",
    "gap_p50_ms": "time between responses p50, ms",
}


def plot(rows: Sequence[Row], path: Path) -> None:
    """One picture for each kind of speculation, beside ``path``: four figures over the number of streams.

    Answers of several lengths are told apart in the tables only; the pictures show the shortest.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    for speculation in dict.fromkeys(row.speculation for row in rows):
        figure, panels = pyplot.subplots(2, 2, figsize=(11, 8), layout="constrained")
        shortest = min(row.max_tokens for row in rows)
        ours = [row for row in rows if (row.speculation, row.max_tokens) == (speculation, shortest)]
        for panel, (name, title) in zip(panels.flat, _PANELS.items(), strict=True):
            for contestant in dict.fromkeys(row.contestant for row in ours):
                line = [row for row in ours if row.contestant == contestant]
                streams = sorted({row.concurrency for row in line})
                groups = [_Group([row for row in line if row.concurrency == number]) for number in streams]
                panel.plot(streams, [group.median(name) for group in groups], marker="o", label=contestant)
            panel.set(title=title, xlabel="streams", xscale="log", xticks=streams, xticklabels=streams, ylim=(0, None))
            panel.minorticks_off()
            panel.grid(alpha=0.3)
        panels.flat[0].legend()
        figure.suptitle(f"Speculation: {speculation}")
        figure.savefig(path.with_name(f"{path.stem}-{speculation}.png"), dpi=110)
        pyplot.close(figure)
