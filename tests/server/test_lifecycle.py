"""Load, unload, reload, stop: no process of the engine is left, nor shared memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from model_repository import NGRAM, small_engine, write_model
from running_server import RunningServer, running
from waiting import until

from .client import Stream, ask, generate, post
from .processes import engine_processes, gone, stub_of

GREEDY = {"temperature": 0.0, "max_tokens": 400, "ignore_eos": True}


@pytest.fixture
def one_model(checkpoint: Path, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    write_model(tmp_path / "models", "llm", {**small_engine(checkpoint), **NGRAM})
    return tmp_path / "models", tmp_path / "log"


def shared_memory(server: RunningServer) -> set[Path]:
    """The shared memory that the server, its stub and the engine have mapped."""
    root = psutil.Process(server.process.pid)
    maps = [region for process in (root, *root.children(recursive=True)) for region in process.memory_maps()]
    found = {Path(region.path) for region in maps if region.path.startswith("/dev/shm/")}
    return {file for file in found if file.exists()}


def test_unloading_and_reloading_leaves_no_engine(one_model: tuple[Path, Path]) -> None:
    with running(*one_model, ["--model-control-mode=explicit", "--load-model=llm"]) as server:
        for _ in range(3):
            engine, memory = engine_processes(server), shared_memory(server)
            assert engine
            assert memory
            assert sum(ask(server, "hi", {**GREEDY, "max_tokens": 8}).tokens) == 8
            assert post(server, "repository/models/llm/unload")[0] == 200
            until(lambda: gone(engine), 15)  # noqa: B023
            assert generate(server, text_input="hi")[0] == 404
            assert post(server, "repository/models/llm/load")[0] == 200
        assert sum(ask(server, "hi", {**GREEDY, "max_tokens": 8}).tokens) == 8
        memory |= shared_memory(server)
    assert [file for file in memory if file.exists()] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_with_open_streams_ends_each_and_leaves_nothing(
    one_model: tuple[Path, Path], number: signal.Signals
) -> None:
    with running(*one_model) as server:
        engine, memory = engine_processes(server), shared_memory(server)
        streams = [Stream(server, f"{word} one two one two", GREEDY) for word in "abcdefghij"]
        for stream in streams:
            stream.first_piece()
        server.process.send_signal(number)
        answers = [stream.answer() for stream in streams]
        status = server.process.wait(timeout_s=60)
        assert all(answer.finals == 1 or answer.error for answer in answers)
        until(lambda: gone(engine), 5)
    assert status == 0
    assert [file for file in memory if file.exists()] == []


def test_a_killed_server_takes_its_engine_along(one_model: tuple[Path, Path]) -> None:
    with running(*one_model) as server:
        everything = psutil.Process(server.process.pid).children(recursive=True)
        stream = Stream(server, "one two one two", GREEDY)
        stream.first_piece()
        os.kill(server.process.pid, signal.SIGKILL)
        until(lambda: gone(everything), 10)


def test_a_killed_stub_takes_its_engine_along(one_model: tuple[Path, Path]) -> None:
    with running(*one_model) as server:
        engine = engine_processes(server)
        stub_of(server).kill()
        until(lambda: gone(engine), 10)


def test_a_client_that_hangs_up_frees_the_engine(server: RunningServer) -> None:
    streams = [Stream(server, f"{word} one two one two", GREEDY, model="plain") for word in "abcd"]
    for stream in streams:
        stream.first_piece()
        stream.cancel()
    assert ask(server, "hi", {**GREEDY, "max_tokens": 8}, model="plain").finals == 1


def test_asking_for_gone_clients_never_races_with_an_end(server: RunningServer) -> None:
    def one(number: int) -> int:
        return generate(server, "plain", text_input=f"{number}", max_tokens=1 + number % 3)[0]

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(one, range(600))) == {200}
    assert server.process.wait(timeout_s=0.1) is None
