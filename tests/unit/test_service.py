"""The application, over a scripted engine: whatever happens, one FINAL, and neighbours go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from fakes.engine import ScriptedEngine, Waits, step
from fakes.reply import RecordingReply
from rbln_vllm_backend.engine import Step
from rbln_vllm_backend.errors import EngineDown, InvalidRequest, RequestError
from rbln_vllm_backend.request import Request
from rbln_vllm_backend.service import Service
from rbln_vllm_backend.serving_options import ServingOptions
from rbln_vllm_backend.stream import ResponseStream
from rbln_vllm_backend.watch import Watch
from waiting import until

DEADLINE_S = 5.0
COLD = ServingOptions(warmup=False)


def asking(prompt: str) -> Request:
    return Request(prompt, True, {}, frozenset(), "", "")


@contextmanager
def serving(
    scripts: Mapping[str, Sequence[Step | Exception]], options: ServingOptions = COLD
) -> Iterator[tuple[Service, ScriptedEngine]]:
    engine = ScriptedEngine(scripts)
    service = Service(engine, options)
    service.start()
    yield service, engine
    service.stop()


def ask(service: Service, prompt: str) -> RecordingReply:
    reply = RecordingReply()
    service.accept(asking(prompt), reply)
    return reply


def test_a_request_gets_its_text_and_one_final() -> None:
    with serving({"hi": [step("a"), step("b", finish="stop")]}) as (service, _):
        reply = ask(service, "hi")
        assert reply.final.wait(DEADLINE_S)
    assert (reply.text, reply.finals, reply.errors) == ("ab", 1, [])


def test_the_engine_learns_the_trace_that_a_request_belongs_to() -> None:
    headers = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    with serving({"hi": [step("a", finish="stop")]}) as (service, engine):
        reply = RecordingReply()
        service.accept(replace(asking("hi"), trace_headers=headers), reply)
        assert reply.final.wait(DEADLINE_S)
    assert [generation.trace_headers for generation in engine.seen] == [headers]


def test_a_bad_request_leaves_its_neighbours_alone() -> None:
    scripts = {"good": [step("a"), step("b", finish="stop")], "bad": [InvalidRequest("no")]}
    with serving(scripts) as (service, _):
        replies = [ask(service, "good" if number % 2 else "bad") for number in range(20)]
        assert all(reply.final.wait(DEADLINE_S) for reply in replies)
    assert {reply.text for reply in replies[1::2]} == {"ab"}
    assert {str(reply.errors[0]) for reply in replies[::2]} == {"no"}
    assert {reply.finals for reply in replies} == {1}


def test_an_unknown_error_is_told_in_one_fixed_sentence(caplog: pytest.LogCaptureFixture) -> None:
    with serving({"hi": [step("a"), KeyError("inner detail")]}) as (service, _):
        reply = ask(service, "hi")
        assert reply.final.wait(DEADLINE_S)
    (error,) = reply.errors
    assert error.code == "INTERNAL"
    assert "inner detail" not in str(error)
    assert "inner detail" in caplog.text


def test_an_engine_that_ends_without_a_last_step_is_an_error() -> None:
    with serving({"hi": [step("a")]}) as (service, _):
        reply = ask(service, "hi")
        assert reply.final.wait(DEADLINE_S)
    assert (reply.finals, reply.errors[0].code) == (1, "INTERNAL")


def test_the_death_of_the_engine_answers_every_open_stream() -> None:
    with serving({"hi": [step("a"), EngineDown("dead")]}) as (service, _):
        replies = [ask(service, "hi") for _ in range(10)]
        assert all(reply.final.wait(DEADLINE_S) for reply in replies)
    assert {reply.errors[0].code for reply in replies} == {"UNAVAILABLE"}


def test_requests_that_arrive_while_the_engine_is_being_lost_disturb_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving({"late": [step("a", finish="stop")]}) as (service, engine):
        replies = [ask(service, "waits") for _ in range(3)]
        until(lambda: len(engine.seen) == 3)
        late: list[RecordingReply] = []
        fail = ResponseStream.fail

        def fail_as_another_arrives(stream: ResponseStream, error: RequestError) -> None:
            fail(stream, error)
            if not late:
                service.resume()
                late.append(ask(service, "late"))

        monkeypatch.setattr(ResponseStream, "fail", fail_as_another_arrives)
        service.suspend(EngineDown("dead"))
        assert all(reply.final.wait(DEADLINE_S) for reply in (*replies, *late))
    assert [str(error) for reply in replies for error in reply.errors] == ["dead"] * 3
    assert late[0].text == "a"


def test_a_cancelled_request_is_aborted_and_answered() -> None:
    with serving({}) as (service, engine):
        reply = ask(service, "waits")
        until(lambda: engine.seen)
        service.cancel(engine.seen[0].request_id)
        assert reply.final.wait(DEADLINE_S)
    assert engine.aborted == ["waits"]
    assert [error.code for error in reply.errors] == ["CANCELLED"]
    assert reply.finals == 1


def test_a_request_is_cancelled_by_its_private_id_or_by_the_clients() -> None:
    for name, allowed in (("secret", False), ("mine", True)):
        with serving({}, replace(COLD, allow_cancel_by_id=allowed)) as (service, engine):
            reply, other, answer = RecordingReply(), ask(service, "other"), RecordingReply()
            service.accept(replace(asking("waits"), client_id="mine"), reply, "secret")
            until(lambda: len(engine.seen) == 2)
            service.cancel_named(name, answer)
            assert reply.final.wait(DEADLINE_S)
            assert answer.final.wait(DEADLINE_S)
            assert (engine.aborted, other.finals) == (["waits"], 0)
        assert [error.code for error in reply.errors] == ["CANCELLED"]
        assert (answer.text, answer.tokens, answer.finals) == ("1", 0, 1)


def test_cancelling_what_is_not_open_is_an_error() -> None:
    for allowed, code in ((False, "UNSUPPORTED"), (True, "NOT_FOUND")):
        with serving({}, replace(COLD, allow_cancel_by_id=allowed)) as (service, _):
            answer = RecordingReply()
            service.cancel_named("nobody", answer)
            assert answer.final.wait(DEADLINE_S)
        assert [error.code for error in answer.errors] == [code]


def test_a_request_that_is_cancelled_at_once_is_answered_too() -> None:
    with serving({}) as (service, _):
        reply = ask(service, "waits")
        for request_id in list(service._open):
            service.cancel(request_id)
        assert reply.final.wait(DEADLINE_S)
    assert (reply.finals, reply.errors[0].code) == (1, "CANCELLED")


def test_cancelling_an_unknown_or_ended_request_does_nothing() -> None:
    with serving({"hi": [step("a", finish="stop")]}) as (service, engine):
        reply = ask(service, "hi")
        assert reply.final.wait(DEADLINE_S)
        service.cancel("no such id")
        service.cancel(engine.seen[0].request_id)
        assert ask(service, "hi").final.wait(DEADLINE_S)
    assert reply.finals == 1


def test_when_the_deadline_is_over_the_request_is_aborted_and_told_how_far_it_came() -> None:
    with serving({"hi": [step("a", tokens=2), step("b", tokens=3), Waits()]}) as (service, engine):
        for stream in (True, False):
            reply = RecordingReply()
            service.accept(replace(asking("hi"), stream=stream, timeout_s=0.05), reply)
            assert reply.final.wait(DEADLINE_S)
            assert [str(error) for error in reply.errors] == ["The request's 0.05 s are over, after 5 new tokens."]
            assert (reply.errors[0].code, reply.finals, reply.text) == ("UNAVAILABLE", 1, "ab" if stream else "")
    assert engine.aborted == ["hi", "hi"]


def test_a_unary_answer_with_a_deadline_is_one_whole_response() -> None:
    with serving({"hi": [step("a"), step("b", tokens=3, finish="stop")]}) as (service, engine):
        reply = RecordingReply()
        service.accept(replace(asking("hi"), stream=False, timeout_s=60.0), reply)
        assert reply.final.wait(DEADLINE_S)
    assert [(one.pieces[0].text, one.pieces[0].num_tokens) for one in reply.steps] == [("ab", 4)]
    assert engine.seen[0].stream


def test_a_deadline_that_was_met_ends_nothing_later() -> None:
    with serving({"hi": [step("a", finish="stop")]}) as (service, _):
        reply = RecordingReply()
        service.accept(replace(asking("hi"), timeout_s=0.05), reply)
        assert reply.final.wait(DEADLINE_S)
        other = RecordingReply()
        service.accept(replace(asking("waits"), timeout_s=0.2), other)
        assert other.final.wait(DEADLINE_S)
    assert (reply.errors, reply.finals) == ([], 1)


def test_adapter_and_priority_reach_the_engine() -> None:
    with serving({"hi": [step("a", finish="stop")]}) as (service, engine):
        reply = RecordingReply()
        service.accept(replace(asking("hi"), adapter="french", priority=-2), reply)
        assert reply.final.wait(DEADLINE_S)
    assert (engine.seen[0].adapter, engine.seen[0].priority) == ("french", -2)


def test_above_the_limit_a_request_is_refused() -> None:
    with serving({}, replace(COLD, max_inflight_requests=2)) as (service, _):
        open_ones = [ask(service, "waits") for _ in range(2)]
        refused = ask(service, "waits")
        assert refused.final.wait(DEADLINE_S)
        assert str(refused.errors[0]) == "serving.max_inflight_requests = 2 requests are in flight; try again later."
        assert refused.errors[0].code == "UNAVAILABLE"
        assert [reply.finals for reply in open_ones] == [0, 0]


def test_stopping_ends_every_open_request_with_one_error() -> None:
    with serving({}) as (service, engine):
        replies = [ask(service, "waits") for _ in range(5)]
    assert engine.stopped
    assert {(reply.finals, reply.errors[0].code) for reply in replies} == {(1, "UNAVAILABLE")}


@contextmanager
def watching(service: Service, is_served: Callable[[], bool], drain_timeout_s: float) -> Iterator[None]:
    watch = Watch(service, is_served, interval_s=0.01, drain_timeout_s=drain_timeout_s, ready_poll_s=0.01)
    watch.start()
    yield
    watch.stop()


def test_when_the_model_is_going_open_requests_end_within_the_drain_time() -> None:
    with serving({}) as (service, _), watching(service, lambda: False, drain_timeout_s=0.1):
        reply = ask(service, "waits")
        assert reply.final.wait(DEADLINE_S)
    assert [str(error) for error in reply.errors] == ["The model was unloaded before the request ended."]
    assert reply.finals == 1


def test_while_requests_still_arrive_the_model_is_not_going() -> None:
    with serving({}) as (service, _), watching(service, lambda: False, drain_timeout_s=0.3):
        early = ask(service, "waits")
        began = time.monotonic()
        while time.monotonic() - began < 1.0:
            ask(service, "waits")
            assert not early.final.wait(0.05)
        assert early.final.wait(DEADLINE_S)


def test_a_model_that_is_served_again_ends_nothing() -> None:
    answers = iter([False, False, *[True] * 1000])
    with serving({}) as (service, _), watching(service, lambda: next(answers), drain_timeout_s=0.2):
        reply = ask(service, "waits")
        assert not reply.final.wait(0.4)


def test_a_look_that_fails_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    failures = iter([RuntimeError("can't start new thread"), RuntimeError("can't start new thread")])

    def is_served() -> bool:
        for failure in failures:
            raise failure
        return False

    with serving({}) as (service, _), watching(service, is_served, drain_timeout_s=0.05):
        reply = ask(service, "waits")
        assert reply.final.wait(DEADLINE_S)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "A look after the open requests failed inside the backend"
    ]


def test_the_warm_up_runs_before_the_model_is_ready() -> None:
    with serving({}, COLD) as (_, engine):
        assert engine.seen == []
    assert _warmed_up(ServingOptions()) == {"warm-up": None, "warm-up-constraint": {"regex": "[a-z]{1,4}"}}


def test_without_constraints_none_is_warmed_up() -> None:
    assert _warmed_up(ServingOptions(structured_outputs=())) == {"warm-up": None}


def test_a_warm_up_that_is_refused_is_the_last_and_the_model_starts(caplog: pytest.LogCaptureFixture) -> None:
    assert list(_warmed_up(ServingOptions(), InvalidRequest("no"))) == ["warm-up"]
    assert "The request warm-up was refused: no" in caplog.text


def _warmed_up(options: ServingOptions, *refusal: Exception) -> dict[str, object]:
    engine = ScriptedEngine(_Anything([*refusal, step("x", finish="length")]))
    service = Service(engine, options)
    service.start()
    service.stop()
    return {one.request_id: one.sampling.get("structured_outputs") for one in engine.seen}


def test_an_engine_that_dies_in_the_warm_up_fails_the_start() -> None:
    engine = ScriptedEngine(_Anything([EngineDown("dead")]))
    service = Service(engine, ServingOptions())
    with pytest.raises(EngineDown):
        service.start()
    assert engine.stopped


def test_the_watch_cancels_whose_client_has_gone() -> None:
    with serving({}) as (service, engine):
        with watching(service, lambda: True, drain_timeout_s=20):
            gone, stays = ask(service, "gone"), ask(service, "stays")
            gone.cancelled = True
            assert gone.final.wait(DEADLINE_S)
        assert engine.aborted == ["gone"]
        assert stays.finals == 0


class _Anything(dict[str, Sequence[Step | Exception]]):
    """The same script for every prompt."""

    def __init__(self, script: Sequence[Step | Exception]) -> None:
        super().__init__()
        self._script = script

    def __contains__(self, prompt: object) -> bool:
        return True

    def get(self, prompt: str, default: object = None) -> Sequence[Step | Exception]:  # type: ignore[override]
        return self._script
