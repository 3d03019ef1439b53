"""An engine that dies or hangs: its streams end at once, it is started again, and at some point no more."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from fakes.engine import ScriptedEngine, step
from fakes.reply import RecordingReply
from rbln_vllm_backend.engine import Step
from rbln_vllm_backend.errors import EngineStartError
from rbln_vllm_backend.pulse import Pulse
from rbln_vllm_backend.request import Request
from rbln_vllm_backend.service import Service
from rbln_vllm_backend.serving_options import ServingOptions
from rbln_vllm_backend.supervision import Supervision
from waiting import until

DEADLINE_S = 5.0
DOWN = "The engine is down and is started again; try again later."
GONE = "The engine has died too often and stays down; load the model again."


@dataclass
class Supervised:
    engine: ScriptedEngine
    service: Service
    supervision: Supervision

    def ask(self, prompt: str) -> RecordingReply:
        reply = RecordingReply()
        self.service.accept(Request(prompt, True, {}, frozenset(), "", ""), reply)
        return reply


@contextmanager
def supervised(
    scripts: Mapping[str, Sequence[Step | Exception]],
    restarts: int = 3,
    stall_s: float = 0.0,
    first_pause_s: float = 0.0,
    warmup: bool = False,
) -> Iterator[Supervised]:
    engine = ScriptedEngine(scripts)
    service = Service(engine, ServingOptions(warmup=False))
    engine.start()
    service.start()
    service._options = ServingOptions(warmup=warmup)
    supervision = Supervision(engine, service, restarts, stall_s, interval_s=0.01, first_pause_s=first_pause_s)
    supervision.start()
    yield Supervised(engine, service, supervision)
    supervision.stop()
    service.stop()
    supervision.release()


def test_a_death_without_traffic_is_noticed_and_the_engine_started_again() -> None:
    with supervised({"hi": [step("a", finish="stop")]}) as it:
        it.engine.died_of = "killed"
        until(lambda: it.engine.starts == 2 and it.service.is_accepting)
        reply = it.ask("hi")
        assert reply.final.wait(DEADLINE_S)
    assert reply.text == "a"


def test_every_open_stream_is_answered_once_and_the_model_isnt_ready_meanwhile() -> None:
    with supervised({}, first_pause_s=60.0) as it:
        replies = [it.ask("waits") for _ in range(10)]
        until(lambda: len(it.engine.seen) == 10)
        it.engine.died_of = "killed"
        assert all(reply.final.wait(DEADLINE_S) for reply in replies)
        assert not it.service.is_accepting
        began = time.monotonic()
        refused = it.ask("waits")
        assert refused.final.wait(DEADLINE_S)
        assert time.monotonic() - began < 0.1
    assert {(reply.finals, str(reply.errors[0])) for reply in (*replies, refused)} == {(1, DOWN)}
    assert {reply.errors[0].code for reply in (*replies, refused)} == {"UNAVAILABLE"}


def test_a_stream_is_answered_though_the_engine_keeps_its_request() -> None:
    with supervised({"stubborn": [step("a")]}, first_pause_s=60.0) as it:
        held = it.engine.hold("stubborn")
        reply = it.ask("stubborn")
        until(lambda: it.engine.seen)
        it.engine.died_of = "killed"
        assert reply.final.wait(1.0)
        it.service._loop.call(held.set)
    assert (reply.finals, str(reply.errors[-1])) == (1, DOWN)


def test_after_too_many_deaths_the_engine_stays_down_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with supervised({}, restarts=2) as it:
        for starts in (2, 3):
            it.engine.died_of = "killed"
            until(lambda: it.engine.starts == starts and it.service.is_accepting)  # noqa: B023
        it.engine.died_of = "killed"
        until(lambda: it.engine.stopped and not it.service.is_accepting and "stays down" in caplog.text)
        refused = it.ask("hi")
        assert refused.final.wait(DEADLINE_S)
        assert not it.service.is_accepting
    assert it.engine.starts == 3
    assert str(refused.errors[0]) == GONE


def test_a_restart_that_fails_counts_and_the_next_may_succeed(caplog: pytest.LogCaptureFixture) -> None:
    with supervised({"hi": [step("a", finish="stop")]}, restarts=2) as it:
        it.engine.start_errors = [EngineStartError("no device")]
        it.engine.died_of = "killed"
        until(lambda: it.engine.starts == 3 and it.service.is_accepting)
        assert it.ask("hi").final.wait(DEADLINE_S)
    assert "no device" in caplog.text


def test_the_engine_is_warmed_up_before_it_serves_again() -> None:
    with supervised({}, warmup=True) as it:
        it.engine.died_of = "killed"
        until(lambda: [one.request_id for one in it.engine.seen] == ["warm-up"])
        assert not it.service.is_accepting  # this engine never ends its warm-up
        it.engine.died_of = "killed again"
        until(lambda: it.engine.starts == 3)


def test_the_thread_that_starts_engines_outlives_them() -> None:
    with supervised({}) as it:
        it.engine.died_of = "killed"
        until(lambda: it.engine.starts == 2 and it.service.is_accepting)
        it.supervision.stop()
        assert it.engine.started_by is not None
        assert it.engine.started_by.is_alive()
    assert not it.engine.started_by.is_alive()


def test_a_death_while_stopping_is_not_healed() -> None:
    with supervised({}) as it:
        it.supervision.stop()
        it.engine.died_of = "killed"
    assert it.engine.starts == 1


def test_stopping_gives_up_a_restart_on_its_way() -> None:
    with supervised({}, first_pause_s=60.0) as it:
        it.engine.died_of = "killed"
        until(lambda: not it.service.is_accepting)
        stopping = threading.Thread(target=it.supervision.stop)
        stopping.start()
        stopping.join(DEADLINE_S)
        assert not stopping.is_alive()
    assert it.engine.starts == 1


def test_an_engine_that_hangs_is_taken_for_dead() -> None:
    with supervised({}, stall_s=0.2, first_pause_s=60.0) as it:
        reply = it.ask("waits")
        assert reply.final.wait(DEADLINE_S)
    assert str(reply.errors[0]) == DOWN


class Progress:
    value: object | None = 0

    def __call__(self) -> object | None:
        return self.value


def test_an_engine_has_stopped_when_it_made_no_step_while_requests_ran() -> None:
    pulse = Pulse(Progress(), stall_s=100)
    pulse.has_stopped(989, running=False)
    assert not any(pulse.has_stopped(now, running=True) for now in range(1000, 1100, 11))
    assert pulse.has_stopped(1110, running=True)


def test_a_process_that_stood_still_itself_takes_no_engine_for_stalled() -> None:
    pulse = Pulse(Progress(), stall_s=100)
    pulse.has_stopped(1000, running=False)
    assert not any(pulse.has_stopped(now, running=True) for now in (1011, 1022, 1200, 1211))


def test_an_engine_without_requests_may_rest() -> None:
    pulse = Pulse(Progress(), stall_s=100)
    assert not any(pulse.has_stopped(now, running=False) for now in range(0, 1000, 10))
    assert not pulse.has_stopped(1010, running=True)


def test_a_step_is_a_sign_of_life() -> None:
    progress = Progress()
    pulse = Pulse(progress, stall_s=100)
    for now in range(0, 1000, 20):
        progress.value = now // 60
        assert not pulse.has_stopped(now, running=True)


@pytest.mark.parametrize(("value", "stall_s"), [(None, 100), (0, 0)])
def test_without_statistics_or_a_limit_no_engine_is_taken_for_stalled(value: object, stall_s: float) -> None:
    progress = Progress()
    progress.value = value
    pulse = Pulse(progress, stall_s)
    assert not any(pulse.has_stopped(now, running=True) for now in range(0, 1000, 20))
