"""An engine that dies under its streams: each is answered at once, the next engine serves, and nothing is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from model_repository import small_engine, write_model
from rbln_vllm_backend import shared_memory
from running_server import RunningServer, running
from waiting import Stalls, until

from .client import Stream, ask, post
from .processes import core_of, engine_processes, gone, worker_of

GREEDY = {"temperature": 0.0, "max_tokens": 1800, "ignore_eos": True}
SHORT = {**GREEDY, "max_tokens": 8}
DIED = "The engine has died."  # in the moment before it is noticed
DOWN = "The engine is down and is started again; try again later."
ANSWERED_S = 2.0
STALL_S = 20
RESTARTED_S = 300.0  # a starved machine needs minutes
REFUSED_S = 1.0  # 0.1 s on a machine of its own; this one is busy


@pytest.fixture(scope="module")
def one_server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("death")
    options = {"serving.engine_restarts": "10", "serving.engine_stall_s": str(STALL_S), "max_model_len": "2048"}
    write_model(folder / "models", "llm", {**small_engine(checkpoint), **options})
    with running(folder / "models", folder / "log", ["--model-control-mode=explicit", "--load-model=llm"]) as server:
        yield server


def serves_again(server: RunningServer) -> bool:
    return ask(server, "hi", SHORT).finals == 1


def strike(server: RunningServer, blow: Callable[[], None]) -> float:
    """Seconds until the last of ten streams that are struck was answered, without those in which the machine stalled.

    On such a machine most may have ended before: then once more, on the next engine.
    """
    for _ in range(3):
        until(lambda: serves_again(server), RESTARTED_S)
        streams = [Stream(server, f"{word} one two one two", GREEDY) for word in "abcdefghij"]
        for stream in streams:
            stream.first_piece()
        blow()
        with Stalls.watched() as stalls, ThreadPoolExecutor(len(streams)) as pool:
            began = time.monotonic()
            answers = list(pool.map(lambda stream: stream.answer(), streams))
            took_s = time.monotonic() - began
        # One that had all of its tokens by then has its FINAL.
        assert {(answer.error, answer.finals) for answer in answers} <= {(DOWN, 0), (DIED, 0), (None, 1)}
        assert all(sum(answer.tokens) == GREEDY["max_tokens"] for answer in answers if answer.error is None)
        print(f"the last was answered after {took_s:.2f} s; the machine stood still for {stalls.seconds:.2f} s of them")
        if sum(answer.error is not None for answer in answers) >= len(answers) / 2:
            return took_s - stalls.seconds
    pytest.fail("the streams always ended before the blow")


@pytest.mark.parametrize("victim", [core_of, worker_of])
def test_a_killed_process_of_the_engine_ends_every_stream_and_is_replaced(
    one_server: RunningServer, victim: object
) -> None:
    server = one_server
    until(lambda: serves_again(server), RESTARTED_S)
    text = ask(server, "one two", SHORT).text
    before: list[psutil.Process] = []
    memory: frozenset[Path] = frozenset()

    def blow() -> None:
        nonlocal before, memory
        before = [core_of(server), worker_of(server)]
        memory = shared_memory.mapped_by(process.pid for process in before)
        victim(server).kill()  # type: ignore[operator]

    answered_s = strike(server, blow)
    began = time.monotonic()
    refused = ask(server, "hi", SHORT)
    refused_s = time.monotonic() - began
    print(f"refused in {refused_s:.3f} s")
    assert (refused.error, refused.finals) in {(DOWN, 0), (DIED, 0)}
    assert answered_s < ANSWERED_S
    assert refused_s < REFUSED_S
    until(lambda: serves_again(server), RESTARTED_S)
    print(f"up again after {time.monotonic() - began:.1f} s")
    assert ask(server, "one two", SHORT).text == text
    until(lambda: gone(before), 10)
    assert memory
    assert not any(file.exists() for file in memory)


def test_a_death_without_traffic_is_healed(one_server: RunningServer) -> None:
    until(lambda: serves_again(one_server), RESTARTED_S)
    core = core_of(one_server)
    seen = one_server.log_text().count("The engine is up again")
    os.kill(core.pid, signal.SIGKILL)
    until(lambda: one_server.log_text().count("The engine is up again") > seen, RESTARTED_S)
    assert serves_again(one_server)


def test_an_engine_that_hangs_is_replaced(one_server: RunningServer) -> None:
    before: list[psutil.Process] = []

    def blow() -> None:
        nonlocal before
        before = [core_of(one_server), worker_of(one_server)]
        before[0].suspend()

    answered_s = strike(one_server, blow)
    assert answered_s < 2 * STALL_S
    until(lambda: serves_again(one_server), RESTARTED_S)
    until(lambda: gone(before), 10)


def test_an_unload_while_the_engine_is_down_leaves_nothing(one_server: RunningServer) -> None:
    until(lambda: serves_again(one_server), RESTARTED_S)
    core = core_of(one_server)
    os.kill(core.pid, signal.SIGKILL)
    until(lambda: ask(one_server, "hi", SHORT).error, ANSWERED_S)
    everything = engine_processes(one_server)
    assert post(one_server, "repository/models/llm/unload")[0] == 200
    one_server.wait_for_log("successfully unloaded 'llm'", 30)
    until(lambda: gone(everything), 10)
    assert not [one for one in psutil.Process(one_server.process.pid).children(recursive=True) if one.is_running()]
