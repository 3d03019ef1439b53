"""Tensors and errors at the server's edge, with the server's module replaced by one of the same surface."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rbln_vllm_backend.engine import Piece, SpeculationCounts, Step, TokenLogprob
from rbln_vllm_backend.errors import InvalidRequest, RequestError, Unavailable
from rbln_vllm_backend.request import Cancellation, Request
from rbln_vllm_backend.terms import Terms
from rbln_vllm_backend.wire import INPUTS, OUTPUTS, RETURN_SWITCHES, UNARY_OUTPUTS

FINAL = 1


@pytest.fixture
def io(pb: Any) -> Any:
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


def test_a_request_carries_its_trace_and_its_headers_are_no_sampling_parameters(pb: Any, io: Any) -> None:
    prompt = pb.Tensor("text_input", np.array([b"hi"], dtype=np.object_))
    trace = pb.InferenceTrace(json.dumps({"traceparent": "00-a-b-01"}))
    parameters = {"traceparent": "00-c-d-01", "n": 2}
    request = io.decode(pb.InferenceRequest([prompt], trace=trace), parameters, Terms())
    assert (request.trace_headers, request.sampling) == ({"traceparent": "00-a-b-01"}, {"n": 2})
    untraced = io.decode(pb.InferenceRequest([prompt]), parameters, Terms())
    assert untraced.trace_headers == {"traceparent": "00-c-d-01"}


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


def test_what_else_is_asked_comes_with_the_end_of_a_sequence_or_of_the_answer(answer: Answer) -> None:
    asked = frozenset({"return_stop_reason", "return_token_ids", "return_cached_tokens", "return_totals"})
    assert answer(one("hi", token_ids=[7, 8]), asked)[0] == {"text_output": [b"hi"], "token_ids": [7, 8]}
    last = Step((Piece(0, "hi", 2, "stop", stop_reason="END", token_ids=[7, 8]),), 5, True, num_cached_tokens=4)
    assert answer(last, asked)[0] == {
        "text_output": [b"hi"],
        "stop_reason": [b'"END"'],
        "token_ids": [7, 8],
        "num_cached_tokens": [4],
        "total_input_tokens": [5],
        "total_output_tokens": [2],
    }


@pytest.mark.parametrize(("reason", "told"), [("\n", b'"\\n"'), (151643, b"151643"), (None, b"null")])
def test_the_stop_reason_is_json(answer: Answer, reason: object, told: bytes) -> None:
    assert answer(one("hi", "stop", stop_reason=reason), frozenset({"return_stop_reason"}))[0]["stop_reason"] == [told]


def test_the_totals_add_up_over_pieces_and_sequences(pb: Any, io: Any) -> None:
    request = pb.InferenceRequest([])
    reply = io.TritonReply(request)
    reply.expect(Request("p", True, {"n": 2}, frozenset({"return_totals"}), "", ""))
    reply.send(Step((Piece(0, "a", 3), Piece(1, "b", 1)), 5, False))
    reply.send(Step((Piece(1, "c", 2, "stop"),), 5, False))
    reply.send(Step((Piece(0, "d", 1, "length"),), 5, True))
    tensors = [
        {one.name(): one.as_numpy().tolist() for one in response.output_tensors()}
        for response, _ in request.sender.sent
    ]
    assert ["total_output_tokens" in sent for sent in tensors] == [False, False, True]
    assert (tensors[2]["total_input_tokens"], tensors[2]["total_output_tokens"]) == ([5], [7])


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


def test_a_call_of_the_unary_model_is_acknowledged_and_told_errors_in_an_output(pb: Any, io: Any) -> None:
    request = pb.InferenceRequest([])
    reply = io.TritonReply(request)
    reply.acknowledge_call()
    reply.fail(InvalidRequest("no"))
    (first, first_flags), (last, last_flags) = request.sender.sent
    assert (first.output_tensors(), first.error(), first_flags) == ([], None, 0)
    assert (last.error(), last_flags) == (None, FINAL)
    assert [(tensor.name(), tensor.as_numpy().tolist()) for tensor in last.output_tensors()] == [
        ("call_error", [b"INVALID_ARG: no"])
    ]


@pytest.mark.parametrize(
    ("requested", "sent"),
    [
        ([], {"text_output", "num_output_tokens"}),
        (["text_output"], {"text_output"}),
        (["num_output_tokens", "finish_reason"], {"num_output_tokens"}),
        ([tensor.name for tensor in OUTPUTS], {"text_output", "num_output_tokens"}),
    ],
)
def test_what_a_client_did_not_request_is_not_sent(pb: Any, io: Any, requested: list[str], sent: set[str]) -> None:
    request = pb.InferenceRequest([], requested_output_names=requested)
    reply = io.TritonReply(request)
    reply.expect(Request("p", True, {}, frozenset({"return_num_output_tokens"}), "", ""))
    reply.send(one("hi"))
    ((response, _),) = request.sender.sent
    assert {tensor.name() for tensor in response.output_tensors()} == sent


def test_who_forges_a_call_gets_no_output_that_it_did_not_request(pb: Any, io: Any) -> None:
    request = pb.InferenceRequest([], requested_output_names=[tensor.name for tensor in UNARY_OUTPUTS])
    reply = io.TritonReply(request)
    reply.acknowledge_call()
    reply.fail(InvalidRequest("no"))
    _, (last, flags) = request.sender.sent
    assert (last.output_tensors(), last.error().message(), flags) == ([], "no", FINAL)


def test_parameters_that_are_no_text_are_the_clients_fault(pb: Any, io: Any) -> None:
    class Request(pb.InferenceRequest):  # type: ignore[misc,name-defined]
        def parameters(self) -> str:
            return b'{"foo": "\xff"}'.decode()

    with pytest.raises(InvalidRequest) as caught:
        io.parameters_of(Request([]))
    assert str(caught.value) == (
        "The request's id and parameters can't be decoded ('utf-8' codec can't decode byte 0xff in position 9: "
        "invalid start byte)."
    )


def test_a_request_may_be_a_cancellation(pb: Any, io: Any) -> None:
    name = pb.Tensor("cancel_request_id", np.array([b"7"], dtype=np.object_))
    assert io.decode(pb.InferenceRequest([name]), {}, Terms()) == Cancellation("7")
    prompt = pb.Tensor("text_input", np.array([b"hi"], dtype=np.object_))
    with pytest.raises(InvalidRequest) as caught:
        io.decode(pb.InferenceRequest([name, prompt]), {}, Terms())
    assert str(caught.value) == "cancel_request_id: a request that cancels another one has no prompt of its own."


def test_nan_in_the_request_parameters_is_the_clients_fault(pb: Any, io: Any) -> None:
    text = pb.Tensor("text_input", np.array([b"hi"], dtype=np.object_))
    request = pb.InferenceRequest([text], parameters='{"temperature": NaN}')
    with pytest.raises(InvalidRequest, match="temperature = nan: must be a number from 0 to 2"):
        io.decode(request, io.parameters_of(request), Terms())


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
    assert io.decode(request, io.parameters_of(request), Terms()) == Request(
        "hi", True, {"max_tokens": 4}, frozenset({"return_speculation"}), "", "7"
    )


def test_the_servers_timeout_is_the_requests_deadline(pb: Any, io: Any) -> None:
    text = pb.Tensor("text_input", np.array([b"hi"], dtype=np.object_))
    assert io.decode(pb.InferenceRequest([text], timeout=1_500_000), {}, Terms()).timeout_s == 1.5


def test_a_tensor_that_cannot_be_read_is_named(pb: Any, io: Any) -> None:
    request = pb.InferenceRequest([pb.Tensor("text_input", ValueError("unexpected end"))])
    with pytest.raises(InvalidRequest, match=r"text_input: the tensor can't be decoded \(unexpected end\)\."):
        io.decode(request, {}, Terms())


def test_every_switch_is_an_input_and_every_output_has_a_shape() -> None:
    names = {tensor.name for tensor in INPUTS}
    assert set(RETURN_SWITCHES) <= names
    assert {tensor.dims for tensor in OUTPUTS} == {(-1,)}


class AutoCompleted:
    """The surface of Triton's configuration that is being completed."""

    def __init__(self, **given: Any) -> None:
        self.given: dict[str, Any] = {"max_batch_size": 0, "input": [], "output": [], **given}

    def as_dict(self) -> dict[str, Any]:
        return self.given

    def add_input(self, tensor: dict[str, Any]) -> None:
        self.given["input"].append(tensor)

    def add_output(self, tensor: dict[str, Any]) -> None:
        self.given["output"].append(tensor)

    def set_model_transaction_policy(self, policy: dict[str, bool]) -> None:
        self.given["model_transaction_policy"] = policy

    def set_max_batch_size(self, size: int) -> None:
        self.given["max_batch_size"] = size


@pytest.mark.parametrize("decoupled", [True, False])
def test_what_every_model_has_is_completed(pb: Any, io: Any, decoupled: bool) -> None:
    completed = AutoCompleted()
    io.complete(completed, decoupled)
    assert [tensor["name"] for tensor in completed.given["input"]] == [tensor.name for tensor in INPUTS]
    outputs = OUTPUTS if decoupled else UNARY_OUTPUTS
    assert [tensor["name"] for tensor in completed.given["output"]] == [tensor.name for tensor in outputs]
    assert completed.given["model_transaction_policy"] == {"decoupled": decoupled}


@pytest.mark.parametrize(
    ("decoupled", "said"),
    [
        (
            True,
            "False: the model must be decoupled to stream. "
            "Set it to true; `rbln-vllm-backend check --full-config` prints the whole file.",
        ),
        (
            False,
            "True: the unary model can't be decoupled. "
            "Remove it; the decoupled model is the one that serving.target_model names.",
        ),
    ],
)
def test_a_file_that_says_otherwise_fails_the_load(pb: Any, io: Any, decoupled: bool, said: str) -> None:
    with pytest.raises(pb.TritonModelException) as caught:
        io.complete(AutoCompleted(max_batch_size=8, model_transaction_policy={"decoupled": not decoupled}), decoupled)
    assert str(caught.value) == (
        "2 faults in config.pbtxt:\n"
        "  - max_batch_size = 8: the engine makes its batches itself, from requests that come one by one. "
        "Remove it, or set it to 0; the engine's own is max_num_seqs.\n"
        f"  - model_transaction_policy.decoupled = {said}"
    )
