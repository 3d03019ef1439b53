"""An engine that dies under its streams: each is answered at once, the next engine serves, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from model_repository import small_engine, write_model
from rbln_vllm_backend import shared_memory
from running_server import RunningServer, running
from waiting import until

from .client import Stream, ask, post
from .processes import core_of, engine_processes, gone, worker_of

CONTEXT = 32_768
# A minute and more: no stream ends before a slow machine has come to the kill.
GREEDY = {"temperature": 0.0, "max_tokens": 30_000, "ignore_eos": True}
MAKER = Path(__file__).parents[1] / "tiny_checkpoint.py"
SHORT = {**GREEDY, "max_tokens": 8}
DIED = "The engine has died."  # in the moment before it is noticed
DOWN = "The engine is down and is started again; try again later."
ANSWERED_S = 2.0
STALL_S = 20
RESTARTED_S = 300.0  # a starved machine needs minutes
REFUSED_S = 1.0  # 0.1 s on a machine of its own; this one is busy


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("death")
    checkpoint = folder / "checkpoint"
    subprocess.run([sys.executable, MAKER, checkpoint, str(CONTEXT)], check=True, capture_output=True)
    options = {"serving.engine_restarts": "10", "serving.engine_stall_s": str(STALL_S), "max_model_len": str(CONTEXT)}
    write_model(folder / "models", "llm", {**small_engine(checkpoint), **options})
    with running(folder / "models", folder / "log", ["--model-control-mode=explicit", "--load-model=llm"]) as server:
        yield server


def serves_again(server: RunningServer) -> bool:
    return ask(server, "hi", SHORT).finals == 1


@pytest.mark.parametrize("victim", [core_of, worker_of])
def test_a_killed_process_of_the_engine_ends_every_stream_and_is_replaced(
    one_server: RunningServer, victim: object
) -> None:
    server = one_server
    until(lambda: serves_again(server), RESTARTED_S)
    before = [core_of(server), worker_of(server)]
    memory = shared_memory.mapped_by(process.pid for process in before)
    text = ask(server, "one two", SHORT).text
    victim_pid = victim(server).pid  # type: ignore[operator]
    streams = [Stream(server, f"{word} one two one two", GREEDY) for word in "abcdefghij"]
    for stream in streams:
        stream.first_piece()
    os.kill(victim_pid, signal.SIGKILL)
    began = time.monotonic()
    with ThreadPoolExecutor(len(streams)) as pool:
        answers = list(pool.map(lambda stream: stream.answer(), streams))
    answered_s = time.monotonic() - began
    began = time.monotonic()
    refused = ask(server, "hi", SHORT)
    refused_s = time.monotonic() - began
    print(f"answered after {answered_s:.2f} s, refused in {refused_s:.3f} s")
    # One that had all of its tokens by then has its FINAL.
    assert {(answer.error, answer.finals) for answer in answers} <= {(DOWN, 0), (DIED, 0), (None, 1)}
    assert all(sum(answer.tokens) == GREEDY["max_tokens"] for answer in answers if answer.error is None)
    assert sum(answer.error is not None for answer in answers) >= len(answers) / 2
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
    until(lambda: serves_again(one_server), RESTARTED_S)
    before = [core_of(one_server), worker_of(one_server)]
    streams = [Stream(one_server, f"{word} one two one two", GREEDY) for word in "abcdefghij"]
    for stream in streams:
        stream.first_piece()
    before[0].suspend()
    began = time.monotonic()
    answers = [stream.answer() for stream in streams]
    answered_s = time.monotonic() - began
    # One that had all of its tokens by then has its FINAL.
    assert {(answer.error, answer.finals) for answer in answers} <= {(DOWN, 0), (None, 1)}
    assert all(sum(answer.tokens) == GREEDY["max_tokens"] for answer in answers if answer.error is None)
    assert sum(answer.error is not None for answer in answers) >= len(answers) / 2
    assert answered_s < 2 * STALL_S
    until(lambda: serves_again(one_server), RESTARTED_S)
    print(f"answered after {answered_s:.1f} s, up after {time.monotonic() - began:.1f} s")
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
