"""Tensors and errors at the server's edge, with the server's module replaced by one of the same surface."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rbln_vllm_backend.engine import Piece, SpeculationCounts, Step, TokenLogprob
from rbln_vllm_backend.errors import InvalidRequest, RequestError, Unavailable
from rbln_vllm_backend.request import Request
from rbln_vllm_backend.wire import INPUTS, OUTPUTS, RETURN_SWITCHES

INSIDE_TRITON = Path(__file__).parents[1] / "fakes" / "inside_triton"
FINAL = 1


@pytest.fixture(autouse=True)
def _inside_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(INSIDE_TRITON))


@pytest.fixture
def pb() -> Any:
    import triton_python_backend_utils

    return triton_python_backend_utils


@pytest.fixture
def io() -> Any:
    from rbln_vllm_backend import triton_io

    return triton_io


Answer = Callable[..., tuple[dict[str, list[Any]], int]]


@pytest.fixture
def answer(pb: Any, io: Any) -> Answer:
    """What a reply sends for a step: tensors as lists, and the flags."""

    def build(step: Step, asked: frozenset[str] = frozenset(), prefix: str = "", n: int = 1) -> Any:
        request = pb.InferenceRequest([])
        reply = io.TritonReply(request)
        reply.expect(Request("p", False, {"n": n}, asked, prefix, ""))
        reply.send(step)
        ((response, flags),) = request.sender.sent
        return {tensor.name(): tensor.as_numpy().tolist() for tensor in response.output_tensors()}, flags

    return build


def one(text: str, finish: str | None = None, **more: Any) -> Step:
    return Step((Piece(0, text, 2, finish, **more),), num_input_tokens=5, finished=finish is not None)


def test_only_the_text_is_sent_unless_more_is_asked(answer: Answer) -> None:
    assert answer(one("hi")) == ({"text_output": [b"hi"]}, 0)


def test_final_rides_on_the_last_response(answer: Answer) -> None:
    assert answer(one("hi", "stop")) == ({"text_output": [b"hi"]}, FINAL)


def test_a_unary_answer_starts_with_its_prefix(answer: Answer) -> None:
    assert answer(one(" there", "stop"), prefix="hi")[0] == {"text_output": [b"hi there"]}


def test_counts_and_reason_are_sent_when_asked(answer: Answer) -> None:
    asked = frozenset({"return_finish_reason", "return_num_input_tokens", "return_num_output_tokens"})
    assert answer(one("hi"), asked)[0] == {
        "text_output": [b"hi"],
        "num_input_tokens": [5],
        "num_output_tokens": [2],
    }
    assert answer(one("hi", "length"), asked)[0]["finish_reason"] == [b"length"]


def test_several_sequences_carry_their_index(answer: Answer) -> None:
    step = Step((Piece(0, "a", 1), Piece(2, "b", 1)), 5, False)
    assert answer(step, n=3)[0] == {"text_output": [b"a", b"b"], "sequence_index": [0, 2]}


def test_logprobs_are_strict_json_with_the_token_ids_as_keys(answer: Answer) -> None:
    step = one("hi", cumulative_logprob=-0.5, logprobs=({7: TokenLogprob(-0.5, 1, "hi")},))
    sent, _ = answer(step, frozenset({"return_logprobs", "return_cumulative_logprob"}))
    assert json.loads(sent["logprobs"][0]) == [{"7": {"logprob": -0.5, "rank": 1, "decoded_token": "hi"}}]
    assert sent["cumulative_logprob"] == [-0.5]


def test_speculation_is_told_at_the_end(answer: Answer) -> None:
    asked = frozenset({"return_speculation"})
    assert set(answer(one("hi"), asked)[0]) == {"text_output"}
    sent, _ = answer(one("hi", "length", speculation=SpeculationCounts(4, 16, 6)), asked)
    assert sent["num_draft_tokens"] == [16]
    assert sent["num_accepted_tokens"] == [6]
    assert sent["acceptance_rate"] == [0.375]
    assert sent["mean_acceptance_length"] == [2.5]


def test_without_speculation_in_the_engine_the_numbers_are_zero(answer: Answer) -> None:
    sent, _ = answer(
        one("hi", "length", speculation=SpeculationCounts(configured=False)), frozenset({"return_speculation"})
    )
    numbers = ["num_draft_tokens", "num_accepted_tokens", "acceptance_rate", "mean_acceptance_length"]
    assert [sent[name] for name in numbers] == [[0], [0], [0.0], [0.0]]


def test_numbers_that_the_engine_lacks_are_left_out(answer: Answer) -> None:
    assert set(answer(one("hi", "stop"), frozenset({"return_speculation"}))[0]) == {"text_output"}


def test_an_error_carries_its_code_and_final(pb: Any, io: Any) -> None:
    for error, code in [
        (InvalidRequest("no"), pb.TritonError.INVALID_ARG),
        (Unavailable("full"), pb.TritonError.UNAVAILABLE),
        (RequestError("ours"), pb.TritonError.INTERNAL),
    ]:
        request = pb.InferenceRequest([])
        io.TritonReply(request).fail(error)
        ((response, flags),) = request.sender.sent
        assert (response.error().message(), response.error().code(), flags) == (str(error), code, FINAL)


def test_nan_in_the_request_parameters_is_the_clients_fault(pb: Any, io: Any) -> None:
    text = pb.Tensor("text_input", np.array([b"hi"], dtype=np.object_))
    with pytest.raises(InvalidRequest, match="temperature = nan: must be a number from 0 to 2"):
        io.decode(pb.InferenceRequest([text], parameters='{"temperature": NaN}'), ())


def test_a_message_is_never_as_long_as_a_request(pb: Any, io: Any) -> None:
    assert len(io.error_of(InvalidRequest("x" * 1_000_000)).message()) == 1000


def test_a_request_is_decoded_from_tensors_and_parameters(pb: Any, io: Any) -> None:
    request = pb.InferenceRequest(
        [
            pb.Tensor("text_input", np.array([b"hi"], dtype=np.object_)),
            pb.Tensor("stream", np.array([True])),
            pb.Tensor("return_speculation", np.array([[True]])),
        ],
        parameters='{"max_tokens": 4, "id": "x"}',
        request_id="7",
    )
    assert io.decode(request, ("id",)) == Request(
        "hi", True, {"max_tokens": 4}, frozenset({"return_speculation"}), "", "7"
    )


def test_a_tensor_that_cannot_be_read_is_named(pb: Any, io: Any) -> None:
    request = pb.InferenceRequest([pb.Tensor("text_input", ValueError("unexpected end"))])
    with pytest.raises(InvalidRequest, match=r"text_input: the tensor can't be decoded \(unexpected end\)\."):
        io.decode(request, ())


def test_every_switch_is_an_input_and_every_output_has_a_shape() -> None:
    names = {tensor.name for tensor in INPUTS}
    assert set(RETURN_SWITCHES) <= names
    assert {tensor.dims for tensor in OUTPUTS} == {(-1,)}
