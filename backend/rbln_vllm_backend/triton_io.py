"""Tensors ↔ our objects, errors → Triton's codes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import triton_python_backend_utils as pb_utils

from rbln_vllm_backend import fixed_config, trace_context, unary_call
from rbln_vllm_backend import request as requests
from rbln_vllm_backend.engine import Piece, SpeculationCounts, Step, TokenLogprob
from rbln_vllm_backend.errors import ConfigError, InvalidRequest, RequestError
from rbln_vllm_backend.request import Cancellation, Request
from rbln_vllm_backend.terms import Terms
from rbln_vllm_backend.wire import INPUTS, OUTPUTS, UNARY_OUTPUTS

_LONGEST_MESSAGE = 1000  # vLLM's messages may quote a whole request
_UNARY_NAMES = frozenset(tensor.name for tensor in UNARY_OUTPUTS)
FINAL = 1  # TRITONSERVER_RESPONSE_COMPLETEFINAL; pb_utils fills its own constant only inside the stub


def complete(model_config: Any, decoupled: bool = True) -> None:
    """Adds what every model of this backend has: inputs, outputs, no batching, and decoupled but for the unary one.

    Raises:
        TritonModelException: the file says otherwise.
    """
    given = model_config.as_dict()
    policy = given.get("model_transaction_policy", {}).get("decoupled")
    if faults := fixed_config.contradictions(given.get("max_batch_size", 0), policy, decoupled):
        raise pb_utils.TritonModelException(str(ConfigError(faults)))
    for tensor in INPUTS:
        model_config.add_input(tensor.as_triton(optional=True))
    for tensor in OUTPUTS if decoupled else UNARY_OUTPUTS:
        model_config.add_output(tensor.as_triton())
    model_config.set_model_transaction_policy({"decoupled": decoupled})
    model_config.set_max_batch_size(0)


def decode(triton_request: Any, parameters: Mapping[str, object], terms: Terms) -> Request | Cancellation:
    """One request of Triton's as ours; ``parameters`` are the client's.

    Raises:
        RequestError: the client's fault, with the field's name.
    """
    tensors = {}
    for tensor in triton_request.inputs():
        tensors[tensor.name()] = _elements(tensor)
    cancellation = requests.cancellation(tensors)
    if cancellation is not None:
        return cancellation
    own = trace_context.without_headers(parameters)
    request = requests.read(tensors, own, triton_request.request_id(), terms, triton_request.timeout())
    return replace(request, trace_headers=trace_context.headers(_server_trace(triton_request), parameters))


def _server_trace(triton_request: Any) -> str | None:
    """The context of the server's span as JSON text; only a server that traces to OpenTelemetry has one."""
    try:
        context: str | None = triton_request.trace().get_context()
    except AttributeError:  # older servers
        return None
    return context


def _elements(tensor: Any) -> list[object]:
    try:
        elements: list[object] = tensor.as_numpy().reshape(-1).tolist()
    except Exception as error:
        raise InvalidRequest(f"{tensor.name()}: the tensor can't be decoded ({error}).") from error
    return elements


def parameters_of(triton_request: Any) -> Mapping[str, object]:
    """The request parameters: scalars by name; raises InvalidRequest."""
    _, text = texts_of(triton_request)
    try:
        # Python's reader, as Triton writes NaN and Infinity: the parameter's own rule refuses them by name.
        parameters: dict[str, object] = json.loads(text) if text else {}
    except ValueError as error:
        raise InvalidRequest(f"The request's parameters can't be decoded ({error}).") from error
    return parameters


def texts_of(triton_request: Any) -> tuple[str, str]:
    """The request's id and the JSON text of its parameters, which Triton hands on as whatever bytes it got.

    Raises:
        InvalidRequest: one isn't UTF-8.
    """
    try:
        return triton_request.request_id(), triton_request.parameters()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The request's id and parameters can't be decoded ({error}).") from error


def error_of(error: RequestError) -> Any:
    """Triton's error object, with the code that ``error`` names."""
    code = getattr(pb_utils.TritonError, error.code, pb_utils.TritonError.INTERNAL)
    return pb_utils.TritonError(_cut(str(error)), code)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"


class TritonReply:
    """One client's answer over Triton's response sender. Implements ``stream.Reply``."""

    def __init__(self, triton_request: Any) -> None:
        self._is_call = False
        # A tensor that wasn't requested must not reach `send`: Triton 24.10 drops it without the interpreter's lock.
        requested = frozenset(triton_request.requested_output_names())
        self._takes_errors = not requested or unary_call.ERROR in requested
        self._requested = requested if requested and not requested >= _UNARY_NAMES else None
        self._sender = triton_request.get_response_sender()
        self._asked: frozenset[str] = frozenset()
        self._prefix = ""
        self._indexed = False
        self._num_output_tokens = 0
        self._speculation: SpeculationCounts | None = SpeculationCounts(configured=False)

    def acknowledge_call(self) -> None:
        """The unary model asks, and is answered as ``unary_call`` says: an empty response frees the server's thread."""
        self._is_call = self._takes_errors  # who merely says that it is the unary model may not have asked for them
        self._sender.send(pb_utils.InferenceResponse(output_tensors=[]))

    def expect(self, request: Request) -> None:
        """Says what the client asked for; before that only ``fail`` may be called."""
        self._asked = request.asked
        self._prefix = request.prefix
        self._indexed = request.sequences > 1

    def send(self, step: Step) -> None:
        """See ``stream.Reply.send``."""
        response = pb_utils.InferenceResponse(output_tensors=self._tensors(step))
        self._sender.send(response, flags=FINAL if step.finished else 0)

    def fail(self, error: RequestError) -> None:
        """See ``stream.Reply.fail``."""
        if self._is_call:
            response = pb_utils.InferenceResponse([_bytes(unary_call.ERROR, [_cut(unary_call.told(error))])])
        else:
            response = pb_utils.InferenceResponse(error=error_of(error))
        self._sender.send(response, flags=FINAL)

    def is_cancelled(self) -> bool:
        """See ``stream.Reply.is_cancelled``."""
        return bool(self._sender.is_cancelled())

    def _tensors(self, step: Step) -> list[Any]:
        pieces = step.pieces
        prefix = self._prefix
        tensors = [_bytes("text_output", [prefix + piece.text for piece in pieces])]
        if self._indexed:
            tensors.append(_array("sequence_index", [piece.index for piece in pieces], np.uint32))
        for name in self._asked:
            tensors += _ASKED[name](pieces, step)
        if "return_speculation" in self._asked:
            tensors += self._speculation_tensors(step)
        if "return_totals" in self._asked:
            tensors += self._total_tensors(step)
        if self._requested is not None:
            tensors = [tensor for tensor in tensors if tensor.name() in self._requested]
        return tensors

    def _total_tensors(self, step: Step) -> list[Any]:
        """The request's tokens, all its sequences together, on its last response."""
        self._num_output_tokens += sum(piece.num_tokens for piece in step.pieces)
        if not step.finished:
            return []
        return [
            _array("total_input_tokens", [step.num_input_tokens], np.uint32),
            _array("total_output_tokens", [self._num_output_tokens], np.uint32),
        ]

    def _speculation_tensors(self, step: Step) -> list[Any]:
        """The request's totals, on its last response; nothing if the engine lacks the numbers of a sequence."""
        for piece in step.pieces:
            if piece.finish_reason is not None:
                known = self._speculation is not None and piece.speculation is not None
                self._speculation = self._speculation + piece.speculation if known else None  # type: ignore[operator]
        counts = self._speculation
        if not step.finished or counts is None:
            return []
        return [
            _array("num_draft_tokens", [counts.draft_tokens], np.uint32),
            _array("num_accepted_tokens", [counts.accepted_tokens], np.uint32),
            _array("acceptance_rate", [counts.acceptance_rate], np.float32),
            _array("mean_acceptance_length", [counts.mean_acceptance_length], np.float32),
        ]


def _bytes(name: str, texts: Sequence[str]) -> Any:
    return pb_utils.Tensor(name, np.array([text.encode() for text in texts], dtype=np.object_))


def _array(name: str, numbers: Sequence[float], kind: Any) -> Any:
    return pb_utils.Tensor(name, np.array(numbers, dtype=kind))


def _finish_reason(pieces: Sequence[Piece], step: Step) -> list[Any]:
    if not any(piece.finish_reason for piece in pieces):
        return []
    return [_bytes("finish_reason", [piece.finish_reason or "" for piece in pieces])]


def _stop_reason(pieces: Sequence[Piece], step: Step) -> list[Any]:
    if not any(piece.finish_reason for piece in pieces):
        return []
    return [_bytes("stop_reason", [msgspec.json.encode(piece.stop_reason).decode() for piece in pieces])]


def _cumulative_logprob(pieces: Sequence[Piece], step: Step) -> list[Any]:
    if any(piece.cumulative_logprob is None for piece in pieces):
        return []
    return [_array("cumulative_logprob", [piece.cumulative_logprob or 0.0 for piece in pieces], np.float32)]


def _logprobs(pieces: Sequence[Piece], step: Step) -> list[Any]:
    if any(piece.logprobs is None for piece in pieces):
        return []
    return [_bytes("logprobs", [_logprobs_json(piece.logprobs or ()) for piece in pieces])]


def _logprobs_json(positions: Sequence[Mapping[int, TokenLogprob]]) -> str:
    return msgspec.json.encode(
        [{str(token): item for token, item in position.items()} for position in positions]
    ).decode()


def _num_input_tokens(pieces: Sequence[Piece], step: Step) -> list[Any]:
    return [_array("num_input_tokens", [step.num_input_tokens], np.uint32)]


def _num_output_tokens(pieces: Sequence[Piece], step: Step) -> list[Any]:
    return [_array("num_output_tokens", [piece.num_tokens for piece in pieces], np.uint32)]


def _token_ids(pieces: Sequence[Piece], step: Step) -> list[Any]:
    return [_array("token_ids", [token for piece in pieces for token in piece.token_ids], np.int64)]


def _num_cached_tokens(pieces: Sequence[Piece], step: Step) -> list[Any]:
    if not step.finished or step.num_cached_tokens is None:
        return []
    return [_array("num_cached_tokens", [step.num_cached_tokens], np.uint32)]


def _told_by_the_reply(pieces: Sequence[Piece], step: Step) -> list[Any]:
    return []


_ASKED: dict[str, Any] = {
    "return_finish_reason": _finish_reason,
    "return_stop_reason": _stop_reason,
    "return_cumulative_logprob": _cumulative_logprob,
    "return_logprobs": _logprobs,
    "return_num_input_tokens": _num_input_tokens,
    "return_num_output_tokens": _num_output_tokens,
    "return_token_ids": _token_ids,
    "return_cached_tokens": _num_cached_tokens,
    "return_totals": _told_by_the_reply,
    "return_speculation": _told_by_the_reply,
}
