"""Figures of the benchmark out of given runs: medians, and ratios taken round by round."""

from __future__ import annotations

import math
import sys
from dataclasses import fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import pytest
from comparison import figures
from comparison.figures import REFERENCE, Row


def row(contestant: str, number: int, tokens_per_s: float, **more: object) -> Row:
    numbers = {field.name: 0.0 for field in fields(Row)}
    return Row(
        **{  # type: ignore[arg-type]
            **numbers,
            "round": number,
            "contestant": contestant,
            "speculation": "none",
            "concurrency": 8,
            "max_tokens": 64,
            "tokens_per_s": tokens_per_s,
            "failed": 0,
            **more,
        }
    )


ROWS = [
    *(row(REFERENCE, number, speed) for number, speed in enumerate([100.0, 200.0, 400.0])),
    *(row("ours", number, speed) for number, speed in enumerate([90.0, 190.0, 200.0])),
]


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    # 0.9, 0.95, 0.5: the ratio of the medians would be 0.95.
    assert figures.ratio(ROWS, "ours") == pytest.approx(0.9)
    assert figures.ratio([one for one in ROWS if one.contestant == "ours"], "ours") is None


def test_the_table_has_a_line_for_each_contestant_with_median_spread_and_failures() -> None:
    text = figures.markdown([*ROWS, row("ours", 3, 190.0, failed=2, cpu_us_facade=math.nan)], "make bench")
    assert "| 8 | 64 | vLLM's OpenAI server | 200 (100–400) | 1.00 |" in text
    assert "| 8 | 64 | ours (**2 failed**) | 190 (90–200) | 0.90 |" in text
    assert "nan" not in text


def test_the_csv_says_what_made_it_and_has_every_run(tmp_path: Path) -> None:
    figures.write_csv(ROWS, tmp_path / "x.csv", "make bench")
    lines = (tmp_path / "x.csv").read_text().splitlines()
    assert lines[0] == "# make bench"
    assert lines[1].split(",") == [field.name for field in fields(Row)]
    assert len(lines) == 2 + len(ROWS)


def test_the_plots_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figures.plot(ROWS, tmp_path / "x")
    assert (tmp_path / "x-none.png").stat().st_size > 1000
