"""A model that is loaded anew is served all the while, and the streams of the one before go on to their end."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil

from model_repository import write_ticking_model
from running_server import RunningServer, running
from waiting import until

from .client import Stream, ask, post
from .processes import stub_of

TOKENS = 2000  # eight seconds


def stub_pids(server: RunningServer) -> set[int]:
    return {child.pid for child in psutil.Process(server.process.pid).children() if "stub" in child.name()}


def test_a_reload_refuses_no_request_and_ends_no_stream(tmp_path: Path) -> None:
    write_ticking_model(tmp_path / "models", "llm", **{"serving.drain_timeout_s": "0.5"})
    with running(
        tmp_path / "models", tmp_path / "log", ["--model-control-mode=explicit", "--load-model=llm"]
    ) as server:
        old = stub_of(server).pid
        streams = [Stream(server, f"{number}", {"max_tokens": TOKENS}) for number in range(4)]
        for stream in streams:
            stream.first_piece()
        loaded: list[int] = []
        loading = threading.Thread(target=lambda: loaded.append(post(server, "repository/models/llm/load")[0]))
        loading.start()
        while loading.is_alive():
            assert ask(server, "hi", {"max_tokens": 2}).finals == 1
        assert loaded == [200]
        assert ask(server, "hi", {"max_tokens": 2}).finals == 1
        answers = [stream.answer() for stream in streams]
        until(lambda: old not in stub_pids(server), 30)
        assert ask(server, "hi", {"max_tokens": 2}).finals == 1
    assert [(answer.error, answer.finals, sum(answer.tokens)) for answer in answers] == [(None, 1, TOKENS)] * 4
    assert "The model is going" not in server.log_text()
