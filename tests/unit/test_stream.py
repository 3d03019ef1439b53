"""The way out: order, merging, and exactly one FINAL on every path."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fakes.engine import step
from fakes.reply import RecordingReply
from rbln_vllm_backend.engine import Piece, SpeculationCounts, Step, TokenLogprob
from rbln_vllm_backend.errors import Cancelled, RequestError, Unavailable
from rbln_vllm_backend.stream import Lane, Outbox, ResponseStream, merge


def at_once(function: Callable[[], None]) -> None:
    """The loop's ``call_soon`` where each push is a turn of its own."""
    function()


class ManualLane(Lane):
    """A lane whose sender is the test."""

    def __init__(self) -> None:
        super().__init__(at_once)
        self.streams: list[ResponseStream] = []

    def put(self, stream: ResponseStream) -> None:
        self.streams.append(stream)

    def put_with_the_turn(self, stream: ResponseStream) -> None:
        self.streams.append(stream)


class Manual:
    """A stream whose sender is the test."""

    def __init__(self, reply: RecordingReply) -> None:
        self.lane = ManualLane()
        self.gone: list[str] = []
        self.stream = ResponseStream(reply, self.lane, "r1", self.gone.append)

    def send_all(self) -> None:
        while self.lane.streams:
            self.lane.streams.pop(0).deliver()


@pytest.fixture
def reply() -> RecordingReply:
    return RecordingReply()


def test_steps_go_out_in_order_with_final_on_the_last(reply: RecordingReply) -> None:
    manual = Manual(reply)
    for item in (step("a"), step("b"), step("c", finish="stop")):
        manual.stream.push(item)
        manual.send_all()
    assert [one.pieces[0].text for one in reply.steps] == ["a", "b", "c"]
    assert [one.finished for one in reply.steps] == [False, False, True]
    assert reply.finals == 1


def test_steps_that_wait_are_merged(reply: RecordingReply) -> None:
    manual = Manual(reply)
    for item in (step("a"), step("b", tokens=3), step("c", finish="stop")):
        manual.stream.push(item)
    manual.send_all()
    assert [one.pieces[0].text for one in reply.steps] == ["abc"]
    assert reply.tokens == 5
    assert reply.finals == 1


def test_a_step_without_text_waits_for_one_that_has_some(reply: RecordingReply) -> None:
    manual = Manual(reply)
    manual.stream.push(step(""))
    manual.send_all()
    assert reply.steps == []
    manual.stream.push(step("é"))
    manual.send_all()
    assert (reply.text, reply.tokens) == ("é", 2)


def test_asking_after_a_client_sends_no_step_without_text(reply: RecordingReply) -> None:
    manual = Manual(reply)
    manual.stream.push(step(""))
    manual.stream.ask_client()
    manual.send_all()
    assert reply.steps == []
    manual.stream.push(step("a", finish="stop"))
    manual.send_all()
    assert (reply.text, reply.tokens, reply.finals) == ("a", 2, 1)


def test_the_last_piece_may_be_empty(reply: RecordingReply) -> None:
    manual = Manual(reply)
    manual.stream.push(step("a"))
    manual.send_all()
    manual.stream.push(step("", finish="length"))
    manual.send_all()
    assert [one.pieces[0].text for one in reply.steps] == ["a", ""]
    assert reply.finals == 1


def test_an_error_comes_behind_what_was_said_before_it(reply: RecordingReply) -> None:
    manual = Manual(reply)
    manual.stream.push(step("a"))
    manual.stream.fail(Unavailable("down"))
    manual.send_all()
    assert reply.text == "a"
    assert [str(error) for error in reply.errors] == ["down"]
    assert reply.finals == 1
    assert reply.after_final == 0


def test_nothing_follows_the_end(reply: RecordingReply) -> None:
    manual = Manual(reply)
    manual.stream.push(step("a", finish="stop"))
    manual.stream.push(step("b"))
    manual.stream.fail(Cancelled("late"))
    manual.stream.fail(Cancelled("later"))
    manual.send_all()
    assert reply.text == "a"
    assert reply.errors == []
    assert (reply.finals, reply.after_final) == (1, 0)


def test_of_two_failures_the_first_is_told(reply: RecordingReply) -> None:
    manual = Manual(reply)
    manual.stream.fail(Unavailable("first"))
    manual.stream.fail(Cancelled("second"))
    manual.send_all()
    assert [str(error) for error in reply.errors] == ["first"]


def test_a_response_that_cannot_be_built_still_ends_the_stream() -> None:
    reply = RecordingReply(fail_on_send=TypeError("no such tensor"))
    manual = Manual(reply)
    manual.stream.push(step("a", finish="stop"))
    manual.send_all()
    assert reply.finals == 1
    assert str(reply.errors[0]) == ("The request failed inside the backend; the server's log has the cause under r1.")


def test_a_client_that_has_gone_is_reported(reply: RecordingReply) -> None:
    manual = Manual(reply)
    manual.stream.ask_client()
    manual.send_all()
    assert manual.gone == []
    reply.cancelled = True
    manual.stream.ask_client()
    manual.stream.ask_client()
    manual.send_all()
    assert manual.gone == ["r1"]


def test_no_client_is_asked_after_its_final(reply: RecordingReply) -> None:
    manual = Manual(reply)
    manual.stream.push(step("a", finish="stop"))
    manual.stream.ask_client()
    manual.send_all()
    manual.stream.ask_client()
    manual.send_all()
    assert (reply.finals, reply.asked_after_final) == (1, 0)


def test_one_thread_says_all_of_a_stream(reply: RecordingReply) -> None:
    outbox = Outbox(at_once, threads=3)
    outbox.start()
    stream = outbox.open(reply, "r1", lambda request_id: None)
    for _ in range(50):
        stream.push(step("a"))
        stream.ask_client()
    stream.push(step("b", finish="stop"))
    stream.ask_client()
    outbox.stop()
    assert len(reply.threads) == 1
    assert reply.asked_after_final == 0


def test_sequences_are_merged_each_by_itself() -> None:
    merged = merge([step("a", index=0), step("x", index=1), step("b", index=0), step("y", finish="stop", index=1)])
    assert merged is not None
    assert [(piece.index, piece.text, piece.finish_reason) for piece in merged.pieces] == [
        (0, "ab", None),
        (1, "xy", "stop"),
    ]


def test_merging_keeps_logprobs_totals_and_the_last_numbers() -> None:
    token = TokenLogprob(-0.5, 1, "a")
    counts = SpeculationCounts(2, 8, 5)
    first = Step((Piece(0, "a", 1, cumulative_logprob=-0.5, logprobs=({1: token},), token_ids=[1]),), 3, False)
    last = Step((Piece(0, "b", 2, "stop", -1.5, ({2: token}, {3: token}), counts, "b", [2, 3]),), 3, True, 2)
    whole = Piece(0, "ab", 3, "stop", -1.5, ({1: token}, {2: token}, {3: token}), counts, "b", (1, 2, 3))
    assert merge([first, last]) == Step((whole,), 3, True, 2)


def test_the_outbox_delivers_every_stream_in_order() -> None:
    outbox = Outbox(at_once, threads=3)
    outbox.start()
    replies = [RecordingReply() for _ in range(20)]
    streams = [outbox.open(reply, f"r{number}", lambda request_id: None) for number, reply in enumerate(replies)]
    for number in range(100):
        for stream in streams:
            stream.push(step(f"{number},"))
    for stream in streams:
        stream.push(step("end", finish="stop"))
    outbox.stop()
    expected = "".join(f"{number}," for number in range(100)) + "end"
    assert {reply.text for reply in replies} == {expected}
    assert {reply.finals for reply in replies} == {1}


def test_what_one_turn_of_the_loop_pushed_is_handed_over_together() -> None:
    due: list[Callable[[], None]] = []
    outbox = Outbox(due.append, threads=1)
    outbox.start()
    replies = [RecordingReply() for _ in range(3)]
    streams = [outbox.open(reply, f"r{number}", lambda request_id: None) for number, reply in enumerate(replies)]
    for stream in streams:
        stream.push(step("a", finish="stop"))
    assert len(due) == 1
    assert not any(reply.final.is_set() for reply in replies)
    due.pop()()
    assert all(reply.final.wait(5) for reply in replies)
    outbox.stop()


def test_a_turn_that_the_loop_never_ended_is_delivered_at_the_stop(reply: RecordingReply) -> None:
    outbox = Outbox([].append, threads=1)
    outbox.start()
    outbox.open(reply, "r1", lambda request_id: None).push(step("a", finish="stop"))
    outbox.stop()
    assert (reply.text, reply.finals) == ("a", 1)


def test_an_outbox_that_was_never_started_stops(reply: RecordingReply) -> None:
    Outbox(at_once).stop()


def test_acceptance_is_safe_at_zero_and_counts_the_targets_own_token() -> None:
    assert SpeculationCounts(4, 16, 6).acceptance_rate == 0.375
    assert SpeculationCounts(4, 16, 6).mean_acceptance_length == 2.5
    assert (SpeculationCounts().acceptance_rate, SpeculationCounts().mean_acceptance_length) == (0.0, 1.0)
    assert SpeculationCounts(configured=False).mean_acceptance_length == 0.0


def test_errors_are_told_by_who_is_at_fault() -> None:
    assert RequestError("x").code == "INTERNAL"
    assert Unavailable("x").code == "UNAVAILABLE"
    assert Cancelled("x").code == "CANCELLED"
