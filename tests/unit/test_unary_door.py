"""The unary door over a scripted target: one answer on every path, and nothing said or asked after it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rbln_vllm_backend import unary_door
from rbln_vllm_backend.errors import Cancelled, InvalidRequest, NotFound, RequestError, Unavailable
from rbln_vllm_backend.unary_door import UnaryDoor
from rbln_vllm_backend.watch import Watch
from waiting import until

DEADLINE_S = 5.0


class RecordingClient:
    """Implements ``unary_door.Client``."""

    def __init__(self, prompt: str = "hi") -> None:
        self.prompt = prompt
        self.said: list[Any] = []
        self.gone = False
        self.asked_after_the_answer = 0
        self.final = threading.Event()

    def answer(self, response: Any) -> None:
        self._say(response)

    def fail(self, error: RequestError) -> None:
        self._say((error.code, str(error)))

    def is_cancelled(self) -> bool:
        self.asked_after_the_answer += bool(self.said)
        return self.gone

    def _say(self, what: Any) -> None:
        self.said.append(what)
        self.final.set()


class ScriptedTarget:
    """Implements ``unary_door.Target``: "waits" ends when it is cancelled, "stuck" never, others as scripted."""

    def __init__(self) -> None:
        self.open: dict[str, threading.Event] = {}
        self.answers: dict[str, Any] = {"hi": "hello"}
        self.refuse_cancels = 0
        self.cancels = 0

    def ask(self, client: RecordingClient, call_id: str) -> Any:
        if client.prompt == "stuck":
            threading.Event().wait()
        if client.prompt == "waits":
            self.open[call_id] = threading.Event()
            assert self.open[call_id].wait(DEADLINE_S)
            raise Cancelled("The request was cancelled.")
        answer = self.answers[client.prompt]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self, call_id: str) -> None:
        self.cancels += 1
        if self.cancels <= self.refuse_cancels or call_id not in self.open:
            raise NotFound("no such call")
        self.open[call_id].set()


@contextmanager
def open_door(limit: int = 1000, is_served: bool = True, drain_timeout_s: float = 20.0) -> Iterator[Any]:
    target = ScriptedTarget()
    door = UnaryDoor(target, limit)
    watch = Watch(door, lambda: is_served, interval_s=0.01, drain_timeout_s=drain_timeout_s, ready_poll_s=0.01)
    watch.start()
    yield door, target
    watch.stop()
    door.stop()


def ask(door: UnaryDoor, prompt: str) -> RecordingClient:
    client = RecordingClient(prompt)
    door.accept(client)
    return client


def test_a_request_gets_the_targets_answer() -> None:
    with open_door() as (door, _):
        client = ask(door, "hi")
        assert client.final.wait(DEADLINE_S)
    assert client.said == ["hello"]


def test_two_hundred_requests_wait_at_once() -> None:
    with open_door() as (door, target):
        clients = [ask(door, "waits") for _ in range(200)]
        until(lambda: len(target.open) == 200)
        for event in list(target.open.values()):
            event.set()
        assert all(client.final.wait(DEADLINE_S) for client in clients)
    assert {len(client.said) for client in clients} == {1}


def test_the_targets_error_keeps_its_code() -> None:
    with open_door() as (door, target):
        target.answers["bad"] = InvalidRequest("no")
        client = ask(door, "bad")
        assert client.final.wait(DEADLINE_S)
    assert client.said == [("INVALID_ARG", "no")]


def test_an_unknown_error_is_told_in_one_fixed_sentence(caplog: pytest.LogCaptureFixture) -> None:
    with open_door() as (door, target):
        target.answers["odd"] = KeyError("inner detail")
        client = ask(door, "odd")
        assert client.final.wait(DEADLINE_S)
    ((code, message),) = client.said
    assert code == "INTERNAL"
    assert "inner detail" not in message
    assert "inner detail" in caplog.text


def test_above_the_limit_requests_are_refused() -> None:
    with open_door(limit=2) as (door, target):
        waiting = [ask(door, "waits"), ask(door, "waits")]
        refused = ask(door, "hi")
        assert refused.said == [
            ("UNAVAILABLE", "serving.max_inflight_requests = 2 requests are in flight; try again later.")
        ]
        until(lambda: len(target.open) == 2)
        for event in list(target.open.values()):
            event.set()
        assert all(client.final.wait(DEADLINE_S) for client in waiting)
        until(lambda: ask(door, "hi").final.wait(DEADLINE_S) and not door._open)


def test_a_request_for_which_no_thread_is_left_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_door() as (door, _):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", _no_thread)
            refused = ask(door, "hi")
        assert refused.said == [
            ("UNAVAILABLE", "No thread is left for the request (can't start new thread); try again later.")
        ]
        served = ask(door, "hi")
        assert served.final.wait(DEADLINE_S)
        assert served.said == ["hello"]
        assert not door._open


def _no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_client_that_has_gone_is_stopped_at_the_target_again_and_again() -> None:
    with open_door() as (door, target):
        target.refuse_cancels = 3  # the call hasn't reached the target yet
        client, stays = ask(door, "waits"), ask(door, "waits")
        until(lambda: len(target.open) == 2)
        client.gone = True
        assert client.final.wait(DEADLINE_S)
        assert stays.said == []
        stays.gone = True
        assert stays.final.wait(DEADLINE_S)
    assert client.said == [("CANCELLED", "The request was cancelled.")]
    assert target.cancels >= 4


def test_a_client_is_never_asked_about_after_its_answer() -> None:
    with open_door() as (door, _):
        clients = [ask(door, "hi") for _ in range(500)]
        assert all(client.final.wait(DEADLINE_S) for client in clients)
        until(lambda: not door._open)
    assert sum(client.asked_after_the_answer for client in clients) == 0


def test_when_the_model_is_going_open_requests_end_within_the_drain_time() -> None:
    with open_door(is_served=False, drain_timeout_s=0.1) as (door, _):
        client = ask(door, "waits")
        assert client.final.wait(DEADLINE_S)
    assert client.said == [("UNAVAILABLE", "The model was unloaded before the request ended.")]


def test_a_target_that_never_answers_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unary_door, "_STUBBORN_S", 0.2)
    with open_door(is_served=False, drain_timeout_s=0.1) as (door, _):
        client = ask(door, "stuck")
        assert client.final.wait(DEADLINE_S)
        assert door.ask_clients() == 0
    assert client.said == [("UNAVAILABLE", "The model was unloaded before the request ended.")]


def test_an_answer_that_cannot_be_sent_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(RecordingClient):
        def answer(self, response: Any) -> None:
            raise Unavailable("the server has gone")

    with open_door() as (door, _):
        door.accept(Broken())
        until(lambda: not door._open and "could not be sent" in caplog.text)
