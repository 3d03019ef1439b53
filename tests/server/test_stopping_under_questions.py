"""A server that stops while it is being asked whether it still serves the model ends every stream, and itself."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from model_repository import write_ticking_model
from running_server import RunningServer, running

from .client import Stream, post

STREAMS = 10
SAMPLING = {"max_tokens": 400}
OPTIONS = {
    "serving.cancel_poll_interval_s": "0.01",
    "serving.metrics_interval_s": "0.1",
    "serving.drain_timeout_s": "1",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_ticking_model(tmp_path / "models", "llm", **OPTIONS)
    return tmp_path / "models"


def open_streams(server: RunningServer) -> list[Stream]:
    streams = [Stream(server, f"{number}", SAMPLING) for number in range(STREAMS)]
    for stream in streams:
        stream.first_piece()
    return streams


@pytest.mark.parametrize("turn", range(6))
def test_a_stop_ends_every_stream(repository: Path, tmp_path: Path, turn: int) -> None:
    with running(repository, tmp_path / "log") as server:
        streams = open_streams(server)
        server.process.send_signal([signal.SIGINT, signal.SIGTERM][turn % 2])
        answers = [stream.answer() for stream in streams]
        assert server.process.wait(timeout_s=30) == 0
    assert "The model is going: " in server.log_text()
    assert {answer.finals or answer.error for answer in answers} <= {
        1,
        "The model was unloaded before the request ended.",
    }


def test_an_unload_ends_every_stream(repository: Path, tmp_path: Path) -> None:
    with running(repository, tmp_path / "log", ["--model-control-mode=explicit", "--load-model=llm"]) as server:
        for _ in range(3):
            streams = open_streams(server)
            assert post(server, "repository/models/llm/unload")[0] == 200
            answers = [stream.answer() for stream in streams]
            server.wait_for_log("successfully unloaded 'llm'", 30)
            assert {answer.error for answer in answers} == {"The model was unloaded before the request ended."}
            assert post(server, "repository/models/llm/load")[0] == 200
