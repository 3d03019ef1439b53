"""Ctrl-C on `serve` with ten streams open: each is drained, or ends with one error; status 0, nothing is left."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from model_repository import small_engine, write_model, write_ticking_model
from rbln_vllm_backend import shared_memory

from .client import Stream
from .processes import gone
from .serving import Serving, serving

STREAMS = 10
UNLOADED = "The model was unloaded before the request ended."
DRAIN_S = 2.0
STOPPED_S = 60.0  # seconds of its own, more on a machine that is busy


@pytest.fixture
def ticking(tmp_path: Path) -> Path:
    write_ticking_model(tmp_path / "models", "llm", **{"serving.drain_timeout_s": f"{DRAIN_S:g}"})
    return tmp_path / "models"


def open_streams(serve: Serving, max_tokens: int) -> list[Stream]:
    sampling = {"max_tokens": max_tokens, "temperature": 0.0, "ignore_eos": True}
    streams = [Stream(serve, f"{number} one two", sampling) for number in range(STREAMS)]
    for stream in streams:
        stream.first_piece()
    return streams


def test_streams_that_end_in_time_are_drained(ticking: Path, tmp_path: Path) -> None:
    with serving(ticking, tmp_path / "log") as serve:
        everything = serve.descendants()
        streams = open_streams(serve, max_tokens=250)  # a second of them
        serve.interrupt()
        answers = [stream.answer() for stream in streams]
        assert serve.process.wait(STOPPED_S) == 0
        assert gone(everything)
    assert [(answer.error, answer.finals, sum(answer.tokens)) for answer in answers] == [(None, 1, 250)] * STREAMS


def test_streams_that_would_go_on_end_with_one_error_each(ticking: Path, tmp_path: Path) -> None:
    with serving(ticking, tmp_path / "log") as serve:
        everything = serve.descendants()
        streams = open_streams(serve, max_tokens=100_000)
        serve.interrupt()
        began = time.monotonic()
        answers = [stream.answer() for stream in streams]
        assert time.monotonic() - began >= DRAIN_S
        assert serve.process.wait(STOPPED_S) == 0
        assert gone(everything)
    assert [(answer.error, answer.finals) for answer in answers] == [(UNLOADED, 0)] * STREAMS


def test_the_engine_goes_too(checkpoint: Path, tmp_path: Path) -> None:
    options = {"max_model_len": "2048", "serving.drain_timeout_s": f"{DRAIN_S:g}"}
    write_model(tmp_path / "models", "llm", {**small_engine(checkpoint), **options})
    with serving(tmp_path / "models", tmp_path / "log") as serve:
        everything = serve.descendants()
        memory = shared_memory.mapped_by(process.pid for process in everything)
        streams = open_streams(serve, max_tokens=1900)
        serve.interrupt()
        began = time.monotonic()
        answers = [stream.answer() for stream in streams]
        print(f"the last stream ended {time.monotonic() - began:.1f} s after the interrupt")
        assert serve.process.wait(STOPPED_S) == 0
        print(f"stopped after {time.monotonic() - began:.1f} s")
        assert gone(everything)
    # One that had all of its tokens by then has its FINAL.
    assert {(answer.error, answer.finals) for answer in answers} <= {(UNLOADED, 0), (None, 1)}
    assert memory
    assert not any(file.exists() for file in memory)
