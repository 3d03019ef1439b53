"""Figures of the benchmark out of given runs: medians, and ratios taken round by round."""

from __future__ import annotations

import math
import sys
from dataclasses import astuple, fields
from pathlib import Path
from typing import get_type_hints

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import pytest
from comparison import figures
from comparison.figures import REFERENCE, Row


def row(contestant: str, number: int, tokens_per_s: float, **more: object) -> Row:
    numbers = {name: kind() for name, kind in get_type_hints(Row).items()}
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
    text = figures.markdown([*ROWS, row("ours", 3, 190.0, failed=2, cpu_us_facade=math.nan)], ["make bench"])
    assert "| 8 | 64 | vLLM's OpenAI server | 200 (100–400) | 1.00 |" in text
    assert "| 8 | 64 | ours (**2 failed**) | 190 (90–200) | 0.90 |" in text
    assert "nan" not in text


def test_cpu_and_latency_stand_beside_those_of_the_same_round() -> None:
    rows = []
    for number in range(3):
        cpu = {"cpu_us_frontend": 120, "cpu_us_tritonserver": 90}
        rows += [
            row(REFERENCE, number, 100, cpu_us_frontend=200, ttft_p50_ms=5 + number, gap_p50_ms=1),
            row(figures.IN_PROCESS, number, 200, gap_p50_ms=0.8),
            row("ours", number, 90, ttft_p50_ms=6 + number, gap_p50_ms=1.3, **cpu),
        ]
    assert "| 8 | 64 | ours | 0.90 | 0.60 | 1.05 | +1.00 | +0.30 | +0.50 |" in figures.markdown(rows, ["make bench"])


def test_the_csv_says_what_made_it_and_has_every_run(tmp_path: Path) -> None:
    figures.write_csv(ROWS, tmp_path / "x.csv", ["make bench", "make bench again"])
    lines = (tmp_path / "x.csv").read_text().splitlines()
    assert lines[:2] == ["# make bench", "# make bench again"]
    assert lines[2].split(",") == [field.name for field in fields(Row)]
    assert len(lines) == 3 + len(ROWS)


def test_the_csv_reads_back_as_it_was_written(tmp_path: Path) -> None:
    rows = [*ROWS, row("ours", 3, math.nan)]
    figures.write_csv(rows, tmp_path / "x.csv", ["make bench"])
    read, commands = figures.read_csv(tmp_path / "x.csv")
    assert (read[:-1], commands) == (ROWS, ["make bench"])
    assert math.isnan(read[-1].tokens_per_s)
    assert [type(value) for value in astuple(read[0])] == [type(value) for value in astuple(ROWS[0])]


def test_a_turn_that_was_interrupted_is_measured_again_for_all() -> None:
    turns = [row(name, number, 1.0) for number in range(2) for name in (REFERENCE, "ours")]
    assert figures.without_a_broken_turn(turns) == turns
    assert figures.without_a_broken_turn(turns[:3]) == turns[:2]
    assert figures.without_a_broken_turn([]) == []


def test_the_plots_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figures.plot(ROWS, tmp_path / "x")
    assert (tmp_path / "x-none.png").stat().st_size > 1000
