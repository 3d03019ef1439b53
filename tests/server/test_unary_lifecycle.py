"""The unary model and its target come and go in any order."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from tritonclient import grpc, http
from tritonclient.utils import InferenceServerException

from model_repository import write_ticking_model, write_unary_model
from running_server import RunningServer, running

from .client import post
from .unary import asking, http_client, infer_grpc, infer_http, inputs

SHORT = {"max_tokens": 8}
LONG = {"max_tokens": 10_000}
DRAIN_TIMEOUT_S = 1.0
UNLOADED = "The model was unloaded before the request ended."


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The unary model and its target, which ticks."""
    drain = {"serving.drain_timeout_s": f"{DRAIN_TIMEOUT_S:g}"}
    write_ticking_model(tmp_path / "models", "llm", **drain)
    write_unary_model(tmp_path / "models", "llm_unary", "llm", **drain)
    return tmp_path / "models"


@pytest.fixture
def explicit(repository: Path, tmp_path: Path) -> Iterator[RunningServer]:
    """A server that has loaded the unary model alone."""
    with running(repository, tmp_path / "log", ["--model-control-mode=explicit", "--load-model=llm_unary"]) as started:
        yield started


def load(server: RunningServer, name: str) -> None:
    assert post(server, f"repository/models/{name}/load")[0] == 200


def unload(server: RunningServer, name: str) -> None:
    assert post(server, f"repository/models/{name}/unload")[0] == 200


def status_of(call: Callable[[], object]) -> tuple[str, str]:
    """ "200", or the error's status; and its message."""
    try:
        call()
    except InferenceServerException as error:
        return error.status(), error.message()
    return "200", ""


def ask(server: RunningServer) -> tuple[str, str]:
    return status_of(lambda: infer_http(server, "llm_unary", asking("hi", SHORT)))


def until_status(server: RunningServer, status: str, deadline_s: float) -> str:
    """Asks until the answer has this status; the message then."""
    deadline = time.monotonic() + deadline_s
    while (answer := ask(server))[0] != status:
        assert time.monotonic() < deadline, answer
    return answer[1]


def long_call(client: Any) -> Any:
    return client.async_infer("llm_unary", inputs(http, asking("one two", LONG)))


def test_each_may_come_and_go_while_the_other_stays(explicit: RunningServer) -> None:
    status, message = ask(explicit)
    assert status == "503"
    assert message.startswith("The model llm can't be asked now: ")
    load(explicit, "llm")
    assert ask(explicit) == ("200", "")

    with http_client(explicit, 2) as client:
        # The target goes: its drain ends the call, and who asks afterwards is told.
        call = long_call(client)
        unload(explicit, "llm")
        began = time.monotonic()
        assert status_of(call.get_result) == ("503", UNLOADED)
        assert time.monotonic() - began < DRAIN_TIMEOUT_S + 4
        assert until_status(explicit, "503", 5).startswith("The model llm can't be asked now: ")
        load(explicit, "llm")
        until_status(explicit, "200", 60)

        # The unary model goes, and comes back.
        call = long_call(client)
        unload(explicit, "llm_unary")
        began = time.monotonic()
        assert status_of(call.get_result) == ("503", UNLOADED)
        assert time.monotonic() - began < DRAIN_TIMEOUT_S + 4
        load(explicit, "llm_unary")
        assert ask(explicit) == ("200", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_answers_every_open_call(repository: Path, tmp_path: Path, number: signal.Signals) -> None:
    answers: Queue[Any] = Queue()
    with running(repository, tmp_path / "log") as server, grpc.InferenceServerClient(server.grpc) as client:
        for _ in range(16):
            client.async_infer("llm_unary", inputs(grpc, asking("a", LONG)), lambda result, error: answers.put(error))
        assert infer_grpc(server, "llm_unary", asking("a", SHORT))  # the calls are under way
        server.process.send_signal(number)
        errors = [answers.get(timeout=20) for _ in range(16)]
        assert server.process.wait(timeout_s=30) == 0
    assert {(error.status(), error.message()) for error in errors} == {("StatusCode.UNAVAILABLE", UNLOADED)}
